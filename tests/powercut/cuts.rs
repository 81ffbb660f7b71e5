//! Cuts of a record: where, and what is wrong after them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::thread;

use larder_tests::{Home, Random};

use crate::disk::Luck;
use crate::image::Image;
use crate::judge::{Bodies, Finding, judge};
use crate::ledger::{Ledger, Micros};
use crate::record::Record;
use crate::replay::{Step, steps};

/// Calls before a cut that are told.
const TOLD: usize = 14;
/// Differences that are told between what a cut left and what there was.
const DIFFERENCES: usize = 12;
/// Free memory from which on what a cut leaves is kept in memory.
const MEMORY_MIN: u64 = 2 << 30;

/// A cut: right before a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its number in the run of a record.
    pub number: usize,
    /// The step, of all of the record.
    step: usize,
    /// When.
    pub at: Micros,
    /// Decides what is lost.
    seed: u64,
}

/// A cut after which something is wrong.
#[derive(Debug)]
pub struct Failure {
    /// The cut.
    pub cut: Cut,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How much of what was not synced was kept, in percent.
    luck: Luck,
    /// The last calls before the cut.
    calls: Vec<String>,
    /// What was lost by it.
    lost: Vec<String>,
}

/// The outcome of the cuts of a record.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Cuts after which nothing is wrong.
    pub good: Vec<Cut>,
    /// The others.
    pub failures: Vec<Failure>,
}

/// A record with what its cuts need.
pub struct Cuts<'a> {
    record: &'a Record,
    steps: Vec<Step>,
    bodies: Bodies,
    parent: PathBuf,
}

impl<'a> Cuts<'a> {
    /// Of this record.
    pub fn new(record: &'a Record) -> Self {
        Self { record, steps: steps(&record.calls), bodies: Bodies::new(&record.ledger), parent: parent() }
    }

    /// Chooses so many cuts, in the order of the record.
    pub fn choose(&self, count: usize, random: &mut Random) -> Vec<Cut> {
        let mut replay = self.record.replay();
        let mut places = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let call = &self.record.calls[step.call];
            if replay.step(call, step.is_end) {
                let weight = weight(&call.name);
                places.extend(std::iter::repeat_n(at, weight));
                // Right before the next step of any kind: what was answered meanwhile counts.
                places.extend(std::iter::repeat_n((at + 1).min(self.steps.len() - 1), weight));
            }
        }
        let mut chosen: Vec<(usize, u64)> = (0..count).map(|_| (*random.pick(&places), random.number())).collect();
        chosen.sort_unstable();
        let cut = |(number, (step, seed))| Cut { number, step, at: self.steps[step].at, seed };
        chosen.into_iter().enumerate().map(cut).collect()
    }

    /// Makes the cuts, as many at a time as there are cores.
    pub fn run(&self, cuts: &[Cut]) -> Outcome {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut outcome = Outcome::default();
        thread::scope(|scope| {
            let share = |worker| move || self.work(cuts.iter().skip(worker).step_by(workers).copied());
            let running: Vec<_> = (0..workers).map(|worker| scope.spawn(share(worker))).collect();
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

    /// What a cut leaves, and what had been promised by then.
    pub fn left(&self, cut: Cut) -> (Image, Ledger) {
        let mut replay = self.record.replay();
        for step in &self.steps[..cut.step] {
            replay.step(&self.record.calls[step.call], step.is_end);
        }
        let (_, image) = lose(&replay.disk, cut);
        (image, self.record.ledger.cut(cut.at))
    }

    fn work(&self, cuts: impl Iterator<Item = Cut>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut replay = self.record.replay();
        let mut last = VecDeque::new();
        let mut at = 0;
        for cut in cuts {
            for step in &self.steps[at..cut.step] {
                let call = &self.record.calls[step.call];
                if replay.step(call, step.is_end) {
                    let end = if step.is_end || call.begun == call.ended { "" } else { " …" };
                    last.push_back(format!("{} {}{end}", step.line, replay.describe(call)));
                    if last.len() > TOLD {
                        last.pop_front();
                    }
                }
            }
            at = cut.step;
            let (luck, image) = lose(&replay.disk, cut);
            let home = Home::inside(&self.parent).expect("a directory for what a cut leaves");
            image.store(home.path()).expect("what a cut leaves can be stored");
            let findings = judge(home, self.record.durable, &self.record.ledger, &self.bodies, cut.at);
            if findings.is_empty() {
                outcome.good.push(cut);
                continue;
            }
            let mut lost = replay.disk.whole().differences(&image);
            lost.truncate(DIFFERENCES);
            let calls = last.iter().cloned().collect();
            outcome.failures.push(Failure { cut, findings, luck, calls, lost });
        }
        outcome
    }
}

impl Failure {
    /// Everything that is known of it, for people.
    pub fn report(&self) -> String {
        let Cut { number, step, at, seed } = self.cut;
        let findings: String =
            self.findings.iter().take(5).map(|found| format!("  {:?}: {}\n", found.wrong, found.text)).collect();
        let list = |lines: &[String]| lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
        format!(
            "cut {number} before step {step} at {at}, seed {seed}, {:?}: {} wrong\n{findings}  last calls:\n{}  lost by the cut:\n{}",
            self.luck,
            self.findings.len(),
            list(&self.calls),
            list(&self.lost)
        )
    }
}

/// How often a call is cut, beside others: one of the many directories of a start seldom, a removal often.
fn weight(call: &str) -> usize {
    match call {
        _ if call.starts_with("mkdir") => 1,
        _ if call.starts_with("unlink") => 400,
        _ if call.starts_with("rename") => 60,
        "fsync" | "fdatasync" => 30,
        _ => 20,
    }
}

fn lose(disk: &crate::disk::Disk, cut: Cut) -> (Luck, Image) {
    let mut random = Random::seeded(cut.seed);
    let luck = Luck::any(&mut random);
    (luck, disk.cut(luck, &mut random))
}

/// Where what a cut leaves is kept: in memory, where there is enough of it.
fn parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    if free >= MEMORY_MIN { memory.to_owned() } else { std::env::temp_dir() }
}
