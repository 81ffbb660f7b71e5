//! The power is cut at any moment, and nothing that was answered as durable is lost.
//!
//! ```text
//! record     a server under strace: its calls, and the answers of its clients   trace, workload, ledger
//! disk       which bytes and names a sync had covered at each call              replay, content, image
//! cuts       at any call: what no sync covers is kept, dropped or torn
//! judge      starts a server on what is left, reads every key, lists, writes
//! ```
//! The harness knows files only, not the engine. A record of each durability is cut, then a server goes on with what one of
//! these cuts left, which is recorded and cut in turn.
//!
//! A run of threads is never the same twice, so a record in which something is wrong is kept, and its folder is named:
//! `LARDER_POWERCUT_RECORD=FOLDER` with the printed `LARDER_TEST_SEED` makes the same cuts of it again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, in real time, and says what it does"
)]
#![allow(unreachable_pub, reason = "a test has no users")]

mod content;
mod cuts;
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

use larder_tests::{Engine, Random, Scale, figure};

use crate::cuts::{Cuts, Failure, Outcome};
use crate::image::Image;
use crate::judge::Wrong;
use crate::ledger::Ledger;
use crate::record::Record;

/// Cuts of a record.
const CUTS: usize = 500;
/// Failures of a kind that are told in full.
const TOLD: usize = 2;

#[test]
fn no_power_cut_takes_what_was_answered_from_disk() {
    if !Engine::is_local_for("the files of the embedded engine") {
        return;
    }
    let mut random = Random::from_environment("powercut");
    if let Some(folder) = std::env::var_os("LARDER_POWERCUT_RECORD").map(PathBuf::from) {
        let outcome = cut(&Record::load(&folder), &mut random);
        report(&folder, 0, &outcome.failures);
        return assert!(outcome.failures.is_empty(), "something is wrong after {} cuts", outcome.failures.len());
    }
    let Some(tracer) = record::tracer() else { return };
    let rounds = Scale::current().of(1, 50);
    let begun = Instant::now();
    let mut wrong = 0;
    let mut cuts = 0;
    for durable in std::iter::repeat_n([true, false], rounds).flatten() {
        let mut start = (Image::default(), Ledger::default());
        for _generation in 0..2 {
            let folder = tempfile::Builder::new().prefix("larder-powercut-").tempdir().expect("a folder");
            let record = Record::make(&tracer, folder.path(), durable, start, &mut random);
            let seed = random.number();
            let outcome = cut(&record, &mut Random::seeded(seed));
            cuts += CUTS;
            if !outcome.failures.is_empty() {
                report(folder.path(), seed, &outcome.failures);
                wrong += outcome.failures.len();
                drop(folder.keep());
            }
            // The next server goes on with what a cut left.
            let Some(next) = outcome.good.iter().rev().nth(outcome.good.len() / 4) else { break };
            start = Cuts::new(&record).left(*next);
        }
    }
    figure("power cuts", &format!("{cuts} in {} s", begun.elapsed().as_secs()));
    assert_eq!(wrong, 0, "something is wrong after so many cuts; their records are kept");
}

/// Cuts a record.
fn cut(record: &Record, random: &mut Random) -> Outcome {
    let cuts = Cuts::new(record);
    let chosen = cuts.choose(CUTS, random);
    let begun = Instant::now();
    let outcome = cuts.run(&chosen);
    let each = begun.elapsed().as_millis() / CUTS as u128;
    eprintln!("{} calls, {} changes, {CUTS} cuts, {each} ms each", record.calls.len(), record.ledger.asked.len());
    outcome
}

/// Says what is wrong with a record: each kind with the first cuts after which it is.
fn report(folder: &Path, seed: u64, failures: &[Failure]) {
    let mut kinds: BTreeMap<Wrong, Vec<&Failure>> = BTreeMap::new();
    for failure in failures {
        let found: BTreeSet<Wrong> = failure.findings.iter().map(|found| found.wrong).collect();
        found.into_iter().for_each(|kind| kinds.entry(kind).or_default().push(failure));
    }
    for (kind, found) in &kinds {
        eprintln!("\n{kind:?} after {} of {CUTS} cuts, such as:", found.len());
        eprintln!("LARDER_POWERCUT_RECORD={} LARDER_TEST_SEED={seed}", folder.display());
        found.iter().take(TOLD).for_each(|failure| eprintln!("{}", failure.report()));
    }
}
