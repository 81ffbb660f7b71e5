//! Running stages one after the other.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::report::{StageEnd, StageOutcome, StageReport, last_line, table};
use crate::shell::{Result, Shell};
use crate::stages::{STAGES, Stage, named};
use crate::test_summary::TestSummary;

/// The longest time of a cold run on two cores.
const BUDGET: Duration = Duration::from_secs(40 * 60);
/// Free bytes that a stage needs: stores refuse writes on a full disk, so tests would fail for a cause that they do not name.
const FREE_MIN: u64 = 3 << 30;

/// The stages of a run, and whether it goes on after a failure.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct StageOptions {
    /// Run this stage alone; may be given several times.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    only: Vec<String>,
    /// Leave this stage out; may be given several times.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    skip: Vec<String>,
    /// Go on after a failed stage.
    #[arg(long)]
    keep_going: bool,
    /// A first look, in minutes: unit tests, the programs, one client of each protocol.
    #[arg(long)]
    quick: bool,
}

impl StageOptions {
    /// The options of the other stages of a soak, which runs unit tests, schedules and mutations in its own way.
    pub(crate) fn for_soak(&self) -> Self {
        let mut options = self.clone();
        options.skip.extend(["unit", "schedules", "mutants"].map(str::to_owned));
        options
    }

    fn wants(&self, stage: &Stage) -> bool {
        let listed = |names: &[String]| names.iter().any(|name| name == stage.name);
        let is_of_run = if self.only.is_empty() { stage.is_quick || !self.quick } else { listed(&self.only) };
        is_of_run && !listed(&self.skip)
    }
}

fn stage(name: &str) -> std::result::Result<String, String> {
    match named(name) {
        Some(stage) => Ok(stage.name.to_owned()),
        None => {
            let names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
            Err(format!("the stages are {}", names.join(", ")))
        }
    }
}

/// Runs the test stages and prints their outcomes; the last line is `xtask test: PASSED …` or `xtask test: FAILED …`.
///
/// # Errors
/// The last line, when a stage failed.
pub(crate) fn test(shell: &Shell, options: &StageOptions) -> Result<()> {
    let start = Instant::now();
    let shell = if options.quick { shell.clone().for_first_look() } else { shell.clone() };
    let (lines, tests) = stages(&shell, options);
    let took = start.elapsed();
    println!("\nthe slowest tests:\n{}\n{}", tests.slowest(), table(&lines));
    if took > BUDGET {
        println!("this run took longer than its budget of {} minutes", BUDGET.as_secs() / 60);
    }
    let (line, good) = last_line("test", &lines, took);
    if !good {
        return Err(line);
    }
    println!("{line}\n{}", tests.line());
    Ok(())
}

/// Runs the wanted stages. After a failure the rest are not run, unless `--keep-going` is given.
pub(crate) fn stages(shell: &Shell, options: &StageOptions) -> (Vec<StageReport>, TestSummary) {
    let (mut lines, mut tests) = (Vec::new(), TestSummary::default());
    let mut failed = false;
    let wanted = || STAGES.iter().filter(|stage| options.wants(stage));
    // They end at the end of the run, also of one that failed.
    let mut jobs = Vec::new();
    for stage in wanted() {
        if !failed {
            let early = wanted().filter_map(|later| later.early.as_ref()).filter(|early| early.with == stage.name);
            // A job that does not start is work that its own stage does.
            jobs.extend(early.filter_map(|early| (early.begin)(shell).ok()));
        }
        let (outcome, took) = if failed && !options.keep_going {
            (StageOutcome::NotRun, Duration::ZERO)
        } else {
            timed(stage, shell, &mut tests)
        };
        println!("== {}: {:.1} s", stage.name, took.as_secs_f64());
        failed |= matches!(outcome, StageOutcome::Failed(_));
        lines.push(StageReport { name: stage.name, shows: stage.shows, outcome, took });
    }
    (lines, tests)
}

fn timed(stage: &Stage, shell: &Shell, tests: &mut TestSummary) -> (StageOutcome, Duration) {
    println!("\n== {}: {}", stage.name, stage.shows);
    let start = Instant::now();
    let outcome = match require_free_disk(shell.root()).and_then(|()| (stage.run)(shell)) {
        Ok(StageEnd::Passed(of_stage)) => {
            tests.merge(of_stage);
            StageOutcome::Passed
        }
        Ok(StageEnd::Skipped(why)) => {
            println!("SKIPPED: {why}");
            StageOutcome::Skipped(why)
        }
        Err(why) => {
            println!("FAILED: {why}");
            StageOutcome::Failed(why)
        }
    };
    (outcome, start.elapsed())
}

/// Refuses a disk on which tests of the store would fail.
fn require_free_disk(root: &Path) -> Result<()> {
    let disk =
        rustix::fs::statvfs(root).map_err(|error| format!("the free space of the disk cannot be read: {error}"))?;
    let free = disk.f_bavail * disk.f_frsize;
    if free < FREE_MIN {
        let [free, least] = [free, FREE_MIN].map(|bytes| bytes >> 20);
        return Err(format!(
            "the disk has {free} MiB free, a stage needs {least}: `cargo clean` frees what builds left"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(only: &[&str], skip: &[&str]) -> Vec<&'static str> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let options = StageOptions { only: owned(only), skip: owned(skip), ..StageOptions::default() };
        STAGES.iter().filter(|stage| options.wants(stage)).map(|stage| stage.name).collect()
    }

    #[test]
    fn all_stages_run_unless_options_choose() {
        assert_eq!(wanted(&[], &[]).len(), STAGES.len());
        assert_eq!(wanted(&["fmt", "tidy"], &[]), ["tidy", "fmt"]);
        assert!(!wanted(&[], &["product"]).contains(&"product"));
        assert_eq!(wanted(&["fmt"], &["fmt"]), [""; 0]);
    }

    #[test]
    fn the_error_of_an_unknown_stage_lists_the_known_ones() {
        assert!(stage("nosuch").is_err_and(|text| text.contains("build")));
        assert_eq!(stage("unit").as_deref(), Ok("unit"));
    }
}
