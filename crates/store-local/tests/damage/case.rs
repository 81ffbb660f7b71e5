//! One case: a copy of a stopped store, one fault, and the verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use larder_store::{Kind, Partition, Store};
use larder_testkit::SplitMix64;

use super::base::StoppedStore;
use super::dir_snapshot::DirSnapshot;
use super::file_corruption::{CorruptionKind, FileCorruption};
use super::opened::OpenedStore;
use super::plan::{ExpectedData, PlannedWrite, WritePlan};
use super::readings::ReadReport;
use super::runtime;

/// Most reads that one flipped bit may damage.
const FLIP_COST_MAX: usize = 300;
/// The lock file of a data directory; a refused start may create it.
const LOCK: &str = "LOCK";

/// The outcome of a passed case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseOutcome {
    /// The start was refused and changed nothing.
    Refused,
    /// All reads returned the written bytes.
    Whole,
    /// This many reads reported damage.
    Damaged(usize),
}

/// The failure of a case: its class, and the observation.
#[derive(Debug, Clone)]
pub struct CaseFailure {
    pub class: &'static str,
    pub what: String,
}

/// Every panic so far, caught or not.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Reports panics of any thread to [`run`].
pub fn watch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.lock().unwrap().push(panic.to_string().replace('\n', " "));
        before(panic);
    }));
}

/// Applies a fault to a copy of `base` in `dir` and judges the outcome.
pub fn run(
    base: &StoppedStore,
    fault: Option<&FileCorruption>,
    random: &SplitMix64,
    dir: &Path,
) -> Result<CaseOutcome, CaseFailure> {
    let panics = PANICS.lock().unwrap().len();
    let mut tree = base.tree.clone();
    std::fs::create_dir_all(dir).unwrap();
    base.tree.write(dir).unwrap();
    if let Some(fault) = fault {
        fault.apply(dir).unwrap();
        fault.apply_to(&mut tree);
    }
    let judged = catch_unwind(AssertUnwindSafe(|| runtime().block_on(judge(base, &tree, fault, random, dir))));
    if let Some(panic) = PANICS.lock().unwrap().get(panics) {
        return Err(failure("panic", panic));
    }
    judged.unwrap_or_else(|_| Err(failure("panic", "it was not seen")))
}

async fn judge(
    base: &StoppedStore,
    tree: &DirSnapshot,
    fault: Option<&FileCorruption>,
    random: &SplitMix64,
    dir: &Path,
) -> Result<CaseOutcome, CaseFailure> {
    let opened = match OpenedStore::open(dir) {
        Ok(opened) => opened,
        Err(error) => return refused(&error, tree, fault, dir),
    };
    let mut expected = base.expected.clone();
    let more = WritePlan::more(&expected, random.clone());
    // New partitions are read before as well: a damaged block may cover their keys.
    more.iter().flat_map(touched).for_each(|partition| expected.expect(partition));
    let before = ReadReport::of(&opened, &expected).await;
    judge_readings(&before, fault)?;
    write_more(&opened, &mut expected, &before, &more).await?;
    if !opened.store.is_ready() {
        return Err(failure("no writes", "the store is poisoned"));
    }
    opened.close().await.map_err(|error| failure("no close", &error.to_string()))?;
    let opened = OpenedStore::open(dir).map_err(|error| failure("no second start", &error))?;
    let after = ReadReport::of(&opened, &expected).await;
    judge_readings(&after, fault)?;
    match after.damaged.difference(&before.damaged).next() {
        Some(new) => Err(failure("spreads", &format!("{new} is damaged after a restart, and was not before"))),
        None if before.damaged.is_empty() && before.absent_blobs == 0 => Ok(CaseOutcome::Whole),
        None => Ok(CaseOutcome::Damaged(before.damaged.len() + before.absent_blobs)),
    }
}

/// Checks that a refusal is one line that names the damage, and that it changed nothing.
fn refused(
    error: &str,
    tree: &DirSnapshot,
    fault: Option<&FileCorruption>,
    dir: &Path,
) -> Result<CaseOutcome, CaseFailure> {
    let Some(fault) = fault else { return Err(failure("refused", error)) };
    let differences = tree.differences(&DirSnapshot::read(dir).unwrap());
    let differences: Vec<String> = differences.into_iter().filter(|one| *one != format!("{LOCK} is new")).collect();
    if !differences.is_empty() {
        let first = differences[..differences.len().min(5)].join(", ");
        return Err(failure("a refused start changes files", &format!("{first} ({}); {error}", differences.len())));
    }
    let is_named = error.contains(fault.path.to_str().unwrap_or_default()) || error.contains("missing");
    if error.trim().is_empty() || error.trim().contains('\n') || !is_named {
        return Err(failure("a refusal names no file", error));
    }
    Ok(CaseOutcome::Refused)
}

fn judge_readings(readings: &ReadReport, fault: Option<&FileCorruption>) -> Result<(), CaseFailure> {
    if !readings.wrong.is_empty() {
        let first = readings.wrong[..readings.wrong.len().min(4)].join("; ");
        return Err(failure("silent", &format!("{} wrong reads: {first}", readings.wrong.len())));
    }
    // A missing blob file is a missing blob; only the row that names it shows the loss.
    let absent_max = usize::from(fault.is_some_and(|fault| fault.kind == CorruptionKind::Delete));
    if readings.absent_blobs > absent_max {
        return Err(failure("silent", &format!("{} blobs are not there", readings.absent_blobs)));
    }
    let (cost, first) = (readings.damaged.len(), readings.damaged.first());
    match fault {
        None if cost > 0 => Err(failure("damage in a whole store", &format!("{cost} reads: {first:?}"))),
        Some(FileCorruption { kind: CorruptionKind::FlipBit, .. }) if cost > FLIP_COST_MAX => {
            Err(failure("one bit costs too much", &format!("{cost} reads are damaged: {first:?}")))
        }
        _ => Ok(()),
    }
}

/// Writes, overwrites and removes; only writes to damaged partitions may be refused.
async fn write_more(
    opened: &OpenedStore,
    expected: &mut ExpectedData,
    readings: &ReadReport,
    more: &[PlannedWrite],
) -> Result<(), CaseFailure> {
    for op in more {
        match opened.run(op).await {
            Ok(Ok(())) => expected.note(op),
            Ok(Err(conflict)) if touched(op).iter().any(|one| readings.is_damaged(one)) => drop(conflict),
            Ok(Err(conflict)) => return Err(failure("silent", &conflict)),
            Err(error) if error.kind == Kind::Damaged => {
                let touched = touched(op);
                if !touched.iter().any(|one| readings.is_damaged(one)) {
                    return Err(failure("no writes", &format!("{touched:?} could be read: {error}")));
                }
            }
            Err(error) => return Err(failure("no writes", &format!("{:?} {error}: {:?}", error.kind, touched(op)))),
        }
    }
    opened.sync().await.map_err(|error| failure("no writes", &error.to_string()))
}

/// The partitions that a write changes.
fn touched(op: &PlannedWrite) -> Vec<Partition> {
    match op {
        PlannedWrite::Apply(batch) => batch.partitions.iter().map(|part| part.partition.clone()).collect(),
        PlannedWrite::Swap { partition, head, .. } => {
            let derived = head.derived.iter().map(|derived| derived.partition.clone());
            std::iter::once(partition.clone()).chain(derived).collect()
        }
        PlannedWrite::PutBlob { .. } | PlannedWrite::RemoveBlob(_) | PlannedWrite::Reopen => Vec::new(),
    }
}

fn failure(class: &'static str, what: &str) -> CaseFailure {
    CaseFailure { class, what: what.to_owned() }
}
