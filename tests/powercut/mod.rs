//! A power cut at any moment loses no change that was answered as durable.
//!
//! ```text
//! record     a server under strace: its calls, and the answers of its clients   trace, workload, datatypes, ledger
//! disk       the bytes and names that a sync had covered at each call           replay, content, image
//! cuts       at any call: bytes that no sync covers are kept, dropped or torn
//! judge      starts a server on the remaining files, reads every key, lists, writes
//! ```
//! The harness knows files only, not the engine. A record of each durability is cut. Then a server runs on the files that one of
//! these cuts left, and its record is cut in turn.
//!
//! Threads never run the same way twice, so a record with a failure is kept and its folder is printed:
//! `LARDER_POWERCUT_RECORD=FOLDER` with the printed `LARDER_TEST_SEED` repeats its cuts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, runs in real time, and prints its progress"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

mod content;
mod cuts;
mod datatypes;
mod disk;
mod image;
mod judge;
mod ledger;
mod record;
mod replay;
mod trace;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::harness::{Scale, SplitMix64, TestEngine, figure};

use crate::powercut::cuts::{CutOutcome, CutRun, FailedCut};
use crate::powercut::image::DirImage;
use crate::powercut::judge::Violation;
use crate::powercut::ledger::CutLedger;
use crate::powercut::record::ServerRecord;

/// Failures of a kind that are printed in full.
const SHOWN: usize = 2;

#[test]
fn a_power_cut_loses_no_durable_change() {
    if !TestEngine::is_local_for("the files of the embedded engine") {
        return;
    }
    let mut random = SplitMix64::from_environment("powercut");
    if let Some(folder) = std::env::var_os("LARDER_POWERCUT_RECORD").map(PathBuf::from) {
        let outcome = cut(&ServerRecord::load(&folder), &mut random);
        report(&folder, 0, &outcome.failures);
        return assert!(outcome.failures.is_empty(), "{} cuts failed", outcome.failures.len());
    }
    let Some(tracer) = record::tracer() else { return };
    let rounds = Scale::current().pick(1, 50);
    let begun = Instant::now();
    let mut wrong = 0;
    let mut cuts = 0;
    for durable in std::iter::repeat_n([true, false], rounds).flatten() {
        let mut start = (DirImage::default(), CutLedger::default());
        for _generation in 0..2 {
            let folder = tempfile::Builder::new().prefix("larder-powercut-").tempdir().expect("a folder");
            let record = ServerRecord::make(&tracer, folder.path(), durable, start, &mut random);
            let seed = random.number();
            eprintln!("the cuts of {} have the seed {seed}", folder.path().display());
            let outcome = cut(&record, &mut SplitMix64::new(seed));
            cuts += outcome.good.len() + outcome.failures.len();
            if !outcome.failures.is_empty() {
                report(folder.path(), seed, &outcome.failures);
                wrong += outcome.failures.len();
                drop(folder.keep());
            }
            // The next server runs on the files that a cut left.
            let Some(next) = outcome.good.iter().rev().nth(outcome.good.len() / 4) else { break };
            start = CutRun::new(&record).remains(*next);
        }
    }
    figure("power cuts", &format!("{cuts} in {} s", begun.elapsed().as_secs()));
    assert_eq!(wrong, 0, "so many cuts failed; their records are kept");
}

/// Makes the cuts of a record and judges them.
fn cut(record: &ServerRecord, random: &mut SplitMix64) -> CutOutcome {
    let cuts = CutRun::new(record);
    let chosen = cuts.choose(Scale::current().pick(170, 500), random);
    let begun = Instant::now();
    let outcome = cuts.run(&chosen);
    let (count, took) = (chosen.len(), begun.elapsed().as_millis());
    let (calls, changes) = (record.calls.len(), record.ledger.changes.len());
    eprintln!("{calls} calls, {changes} changes, {count} cuts, {} ms each", took / count as u128);
    outcome
}

/// Prints the failures of a record: each kind with its first cuts.
fn report(folder: &Path, seed: u64, failures: &[FailedCut]) {
    let mut kinds: BTreeMap<Violation, Vec<&FailedCut>> = BTreeMap::new();
    for failure in failures {
        let found: BTreeSet<Violation> = failure.findings.iter().map(|found| found.violation).collect();
        found.into_iter().for_each(|kind| kinds.entry(kind).or_default().push(failure));
    }
    for (kind, found) in &kinds {
        eprintln!("\n{kind:?} after {} cuts, such as:", found.len());
        eprintln!("LARDER_POWERCUT_RECORD={} LARDER_TEST_SEED={seed}", folder.display());
        found.iter().take(SHOWN).for_each(|failure| eprintln!("{}", failure.report()));
    }
}
