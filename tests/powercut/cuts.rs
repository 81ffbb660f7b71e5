//! The power cuts of a record: their places, and the failures after them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::thread;

use crate::harness::{Home, SplitMix64};

use crate::powercut::disk::KeptShare;
use crate::powercut::image::DirImage;
use crate::powercut::judge::{BodyTable, CutFinding, judge};
use crate::powercut::ledger::{CutLedger, WallMicros};
use crate::powercut::record::ServerRecord;
use crate::powercut::replay::{ReplayStep, steps};

/// Calls before a cut that a report shows.
const CALLS_SHOWN: usize = 14;
/// Differences between the files before and after a cut that a report shows.
const DIFFERENCES: usize = 12;
/// The least free memory for keeping the remaining files in memory.
const MEMORY_MIN: u64 = 2 << 30;

/// A power cut right before a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerCut {
    /// Its number in the run of a record.
    pub number: usize,
    /// The step, counted over the whole record.
    step: usize,
    /// Its time.
    pub at: WallMicros,
    /// The seed that chooses the lost writes.
    seed: u64,
}

/// A cut after which the server violates a promise.
#[derive(Debug)]
pub struct FailedCut {
    /// The cut.
    pub cut: PowerCut,
    /// The violations.
    pub findings: Vec<CutFinding>,
    /// The percentage of unsynced writes that was kept.
    share: KeptShare,
    /// The last calls before the cut.
    calls: Vec<String>,
    /// The differences to the files before it.
    lost: Vec<String>,
}

/// The outcomes of the cuts of a record.
#[derive(Debug, Default)]
pub struct CutOutcome {
    /// The cuts without a violation.
    pub good: Vec<PowerCut>,
    /// The cuts with violations.
    pub failures: Vec<FailedCut>,
}

/// A record, prepared for its cuts.
pub struct CutRun<'a> {
    record: &'a ServerRecord,
    steps: Vec<ReplayStep>,
    bodies: BodyTable,
    parent: PathBuf,
}

impl<'a> CutRun<'a> {
    /// Prepares this record.
    pub fn new(record: &'a ServerRecord) -> Self {
        Self { record, steps: steps(&record.calls), bodies: BodyTable::new(&record.ledger), parent: parent() }
    }

    /// Chooses `count` cuts, in the order of the record.
    pub fn choose(&self, count: usize, random: &mut SplitMix64) -> Vec<PowerCut> {
        let mut replay = self.record.replay();
        let mut places = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let call = &self.record.calls[step.call];
            if replay.step(call, step.is_end) {
                let weight = weight(&call.name);
                places.extend(std::iter::repeat_n(at, weight));
                // A cut right before the next step of any kind: answers between the two steps count.
                places.extend(std::iter::repeat_n((at + 1).min(self.steps.len() - 1), weight));
            }
        }
        let mut chosen: Vec<(usize, u64)> = (0..count).map(|_| (*random.pick(&places), random.number())).collect();
        chosen.sort_unstable();
        let cut = |(number, (step, seed))| PowerCut { number, step, at: self.steps[step].at, seed };
        chosen.into_iter().enumerate().map(cut).collect()
    }

    /// Makes the cuts, as many at a time as there are cores.
    pub fn run(&self, cuts: &[PowerCut]) -> CutOutcome {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut outcome = CutOutcome::default();
        thread::scope(|scope| {
            let work = |worker| move || self.work(cuts.iter().skip(worker).step_by(workers).copied());
            let running: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
            for worker in running {
                let done = worker.join().expect("a judge does not panic");
                outcome.good.extend(done.good);
                outcome.failures.extend(done.failures);
            }
        });
        outcome.good.sort_unstable_by_key(|cut| cut.number);
        outcome.failures.sort_unstable_by_key(|failure| failure.cut.number);
        outcome
    }

    /// The files after a cut, and the changes that were promised before it.
    pub fn remains(&self, cut: PowerCut) -> (DirImage, CutLedger) {
        let mut replay = self.record.replay();
        for step in &self.steps[..cut.step] {
            replay.step(&self.record.calls[step.call], step.is_end);
        }
        let (_, image) = lose(&replay.disk, cut);
        (image, self.record.ledger.cut(cut.at))
    }

    fn work(&self, cuts: impl Iterator<Item = PowerCut>) -> CutOutcome {
        let mut outcome = CutOutcome::default();
        let mut replay = self.record.replay();
        let mut last = VecDeque::new();
        let mut at = 0;
        for cut in cuts {
            for step in &self.steps[at..cut.step] {
                let call = &self.record.calls[step.call];
                if replay.step(call, step.is_end) {
                    let end = if step.is_end || call.begun == call.ended { "" } else { " …" };
                    last.push_back(format!("{} {}{end}", step.line, replay.describe(call)));
                    if last.len() > CALLS_SHOWN {
                        last.pop_front();
                    }
                }
            }
            at = cut.step;
            let (share, image) = lose(&replay.disk, cut);
            let home = Home::inside(&self.parent).expect("a directory for the remaining files");
            image.store(home.path()).expect("the remaining files can be stored");
            let findings = judge(home, self.record.durable, &self.record.ledger, &self.bodies, cut.at);
            if findings.is_empty() {
                outcome.good.push(cut);
                continue;
            }
            let mut lost = replay.disk.whole().differences(&image);
            lost.truncate(DIFFERENCES);
            let calls = last.iter().cloned().collect();
            outcome.failures.push(FailedCut { cut, findings, share, calls, lost });
        }
        outcome
    }
}

impl FailedCut {
    /// A report for people.
    pub fn report(&self) -> String {
        let PowerCut { number, step, at, seed } = self.cut;
        let findings: String =
            self.findings.iter().take(5).map(|found| format!("  {:?}: {}\n", found.violation, found.text)).collect();
        let list = |lines: &[String]| lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
        format!(
            "cut {number} before step {step} at {at}, seed {seed}, {:?}: {} violations\n{findings}  last calls:\n{}  lost by the cut:\n{}",
            self.share,
            self.findings.len(),
            list(&self.calls),
            list(&self.lost)
        )
    }
}

/// The relative frequency of cuts at a call: rare for the many directories of a start, frequent for a removal.
fn weight(call: &str) -> usize {
    match call {
        _ if call.starts_with("mkdir") => 1,
        _ if call.starts_with("unlink") => 400,
        _ if call.starts_with("rename") => 60,
        "fsync" | "fdatasync" => 30,
        _ => 20,
    }
}

fn lose(disk: &crate::powercut::disk::DiskModel, cut: PowerCut) -> (KeptShare, DirImage) {
    let mut random = SplitMix64::new(cut.seed);
    let share = KeptShare::any(&mut random);
    (share, disk.cut(share, &mut random))
}

/// The folder of the remaining files: in memory, when enough is free.
fn parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    if free >= MEMORY_MIN { memory.to_owned() } else { std::env::temp_dir() }
}
