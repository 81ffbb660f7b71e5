//! One case: a copy of a stopped store, one harm, and the verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use larder_store::{Kind, Partition, Store};

use super::base::Base;
use super::harm::{Harm, HarmKind, Random};
use super::judge::Readings;
use super::opened::Opened;
use super::plan::{Expected, Op, Plan};
use super::runtime;
use super::tree::Tree;

/// More reads than these may not fail because of one bit.
const FLIP_COST_MAX: usize = 300;
/// What holds the lock of a data directory; a refused start may make it anew.
const LOCK: &str = "LOCK";

/// How a case ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The start was refused, and nothing was changed.
    Refused,
    /// All reads answered what was written.
    Whole,
    /// This many reads said that what they would answer is damaged.
    Damaged(usize),
}

/// Why a case failed: the sort of failure, and what was seen.
#[derive(Debug, Clone)]
pub struct Failure {
    pub sort: &'static str,
    pub what: String,
}

/// Every panic so far, whoever caught it.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Makes panics of any thread known to [`run`].
pub fn watch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.lock().unwrap().push(panic.to_string().replace('\n', " "));
        before(panic);
    }));
}

/// Harms a copy of `base` in `dir` and judges what becomes of it.
pub fn run(base: &Base, harm: Option<&Harm>, random: &Random, dir: &Path) -> Result<Outcome, Failure> {
    let panics = PANICS.lock().unwrap().len();
    let mut tree = base.tree.clone();
    std::fs::create_dir_all(dir).unwrap();
    base.tree.write(dir).unwrap();
    if let Some(harm) = harm {
        harm.apply(dir).unwrap();
        harm.apply_to(&mut tree);
    }
    let judged = catch_unwind(AssertUnwindSafe(|| runtime().block_on(judge(base, &tree, harm, random, dir))));
    if let Some(panic) = PANICS.lock().unwrap().get(panics) {
        return Err(failure("panic", panic));
    }
    judged.unwrap_or_else(|_| Err(failure("panic", "it was not seen")))
}

async fn judge(base: &Base, tree: &Tree, harm: Option<&Harm>, random: &Random, dir: &Path) -> Result<Outcome, Failure> {
    let opened = match Opened::open(dir) {
        Ok(opened) => opened,
        Err(error) => return refused(&error, tree, harm, dir),
    };
    let mut expected = base.expected.clone();
    let more = Plan::more(&expected, random.clone());
    // Partitions that are new are read before, too: a damaged block may be where they will be.
    more.iter().flat_map(touched).for_each(|partition| expected.expect(partition));
    let before = Readings::of(&opened, &expected).await;
    judge_readings(&before, harm)?;
    write_more(&opened, &mut expected, &before, &more).await?;
    if !opened.store.is_ready() {
        return Err(failure("no writes", "the store is poisoned"));
    }
    opened.close().await.map_err(|error| failure("no close", &error.to_string()))?;
    let opened = Opened::open(dir).map_err(|error| failure("no second start", &error))?;
    let after = Readings::of(&opened, &expected).await;
    judge_readings(&after, harm)?;
    match after.damaged.difference(&before.damaged).next() {
        Some(new) => Err(failure("spreads", &format!("{new} is damaged after a restart, and was not before"))),
        None if before.damaged.is_empty() && before.absent_blobs == 0 => Ok(Outcome::Whole),
        None => Ok(Outcome::Damaged(before.damaged.len() + before.absent_blobs)),
    }
}

/// A refusal is one line that names what is wrong, and changes nothing.
fn refused(error: &str, tree: &Tree, harm: Option<&Harm>, dir: &Path) -> Result<Outcome, Failure> {
    let Some(harm) = harm else { return Err(failure("refused", error)) };
    let differences = tree.differences(&Tree::read(dir).unwrap());
    let differences: Vec<String> = differences.into_iter().filter(|one| *one != format!("{LOCK} is new")).collect();
    if !differences.is_empty() {
        let first = differences[..differences.len().min(5)].join(", ");
        return Err(failure("a refused start changes files", &format!("{first} ({}); {error}", differences.len())));
    }
    let is_named = error.contains(harm.path.to_str().unwrap_or_default()) || error.contains("missing");
    if error.trim().is_empty() || error.trim().contains('\n') || !is_named {
        return Err(failure("a refusal names no file", error));
    }
    Ok(Outcome::Refused)
}

fn judge_readings(readings: &Readings, harm: Option<&Harm>) -> Result<(), Failure> {
    if !readings.wrong.is_empty() {
        let first = readings.wrong[..readings.wrong.len().min(4)].join("; ");
        return Err(failure("silent", &format!("{} wrong reads: {first}", readings.wrong.len())));
    }
    // A file that is gone takes its own blob with it, and the row that names the blob tells.
    let absent_max = usize::from(harm.is_some_and(|harm| harm.kind == HarmKind::Delete));
    if readings.absent_blobs > absent_max {
        return Err(failure("silent", &format!("{} blobs are not there", readings.absent_blobs)));
    }
    let (cost, first) = (readings.damaged.len(), readings.damaged.first());
    match harm {
        None if cost > 0 => Err(failure("damage in a whole store", &format!("{cost} reads: {first:?}"))),
        Some(Harm { kind: HarmKind::FlipBit, .. }) if cost > FLIP_COST_MAX => {
            Err(failure("one bit costs too much", &format!("{cost} reads are damaged: {first:?}")))
        }
        _ => Ok(()),
    }
}

/// Writes, overwrites and removes; only what is damaged already may be refused.
async fn write_more(opened: &Opened, expected: &mut Expected, readings: &Readings, more: &[Op]) -> Result<(), Failure> {
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
fn touched(op: &Op) -> Vec<Partition> {
    match op {
        Op::Apply(batch) => batch.partitions.iter().map(|part| part.partition.clone()).collect(),
        Op::Swap { partition, head, .. } => {
            let derived = head.shadow.iter().map(|shadow| shadow.partition.clone());
            std::iter::once(partition.clone()).chain(derived).collect()
        }
        Op::PutBlob { .. } | Op::RemoveBlob(_) | Op::Reopen => Vec::new(),
    }
}

fn failure(sort: &'static str, what: &str) -> Failure {
    Failure { sort, what: what.to_owned() }
}
