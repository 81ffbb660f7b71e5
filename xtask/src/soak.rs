//! The same checks at full length.

use std::fs;
use std::time::{Duration, Instant};

use crate::mutants::{self, MutantOptions};
use crate::report::{StageOutcome, StageReport, last_line, minutes, table};
use crate::run::{self, StageOptions};
use crate::shell::{Result, Shell};
use crate::test_programs::SCHEDULES;

/// The file in which tests note their measurements.
const FIGURES: &str = ".work/soak-figures.md";
/// The report for people.
const REPORT: &str = ".work/soak.md";
/// The crates whose own tests have a full length: simulation, engines, causality, random input of protocol buffers.
const LONG: &[&str] = &[
    "larder-kv",
    "larder-store",
    "larder-testkit",
    "larder-store-local",
    "larder-s3",
    "larder-api-riak",
    "larder-api-s3",
    "larder-server",
];

/// Runs the long tests of the crates, then the product tests, and writes the report.
///
/// # Errors
/// The last line, when a stage failed.
pub(crate) fn soak(shell: &Shell, options: &StageOptions) -> Result<()> {
    let shell = shell.for_soak().with_variable("LARDER_FIGURES", shell.path(FIGURES));
    fs::create_dir_all(shell.path(".work")).map_err(|error| format!(".work: {error}"))?;
    let _ = fs::remove_file(shell.path(FIGURES));
    let start = Instant::now();
    let mut lines = vec![long_tests(&shell), long_schedules(&shell), all_mutants(&shell)];
    let (others, tests) = run::stages(&shell, &options.for_soak());
    lines.extend(others);
    let took = start.elapsed();
    println!("\nthe slowest tests:\n{}\n{}", tests.slowest(), table(&lines));
    write(&shell, &lines, took)?;
    let (line, good) = last_line("soak", &lines, took);
    if !good {
        return Err(line);
    }
    println!("figures: {REPORT}\n{line}");
    Ok(())
}

/// The release build: a debug build needs days for the schedules.
fn long_tests(shell: &Shell) -> StageReport {
    let packages: Vec<&str> = LONG.iter().flat_map(|name| ["-p", name]).collect();
    let args = [&["test", "--release", "--no-fail-fast"], &packages[..]].concat();
    timed("long", "simulation, conformance, property tests and random input at full length", || shell.cargo(&args))
}

fn long_schedules(shell: &Shell) -> StageReport {
    let args = [&["test", "--release"], SCHEDULES, &["schedules::"]].concat();
    timed("schedules", "100,000 orders of the engine's threads", || shell.cargo(&args))
}

fn all_mutants(shell: &Shell) -> StageReport {
    let all = || mutants::mutants(shell, &MutantOptions::all());
    timed("all-mutants", "rules of the design: a test fails without each", all)
}

fn timed(name: &'static str, shows: &'static str, run: impl FnOnce() -> Result<()>) -> StageReport {
    let start = Instant::now();
    let outcome = match run() {
        Ok(()) => StageOutcome::Passed,
        Err(why) => StageOutcome::Failed(why),
    };
    StageReport { name, shows, outcome, took: start.elapsed() }
}

fn write(shell: &Shell, lines: &[StageReport], took: Duration) -> Result<()> {
    let fact = |program: &str, args: &[&str]| shell.output(program, args).unwrap_or_else(|_| "unknown".to_owned());
    let facts = RunFacts {
        commit: fact("git", &["describe", "--always", "--dirty"]),
        date: fact("date", &["-u", "+%F"]),
        machine: fact("uname", &["-srm"]),
        cores: fact("nproc", &[]),
    };
    let figures = fs::read_to_string(shell.path(FIGURES)).unwrap_or_default();
    let text = text(&facts, lines, &figures, took);
    fs::write(shell.path(REPORT), text).map_err(|error| format!("{REPORT}: {error}"))
}

/// The commit and the machine of a run.
struct RunFacts {
    commit: String,
    date: String,
    machine: String,
    cores: String,
}

fn text(facts: &RunFacts, lines: &[StageReport], figures: &str, took: Duration) -> String {
    let stages: String = lines.iter().map(|line| stage(line) + "\n").collect();
    format!(
        "# Soak\n\nCommit {}, {}, {}, {} cores, {} in all.\n\n\
         | stage | ended | took |\n|---|---|---|\n{stages}\n| figure | value |\n|---|---|\n{figures}",
        facts.commit,
        facts.date,
        facts.machine,
        facts.cores,
        minutes(took)
    )
}

fn stage(line: &StageReport) -> String {
    let ended = match &line.outcome {
        StageOutcome::Passed => "passed".to_owned(),
        StageOutcome::Skipped(why) => format!("skipped: {why}"),
        StageOutcome::Failed(why) => format!("FAILED: {}", why.lines().next().unwrap_or_default()),
        StageOutcome::NotRun => "not run".to_owned(),
    };
    format!("| {} | {ended} | {} |", line.name, minutes(line.took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_stages_and_figures() {
        let facts = RunFacts { commit: "abc".into(), date: "d".into(), machine: "m".into(), cores: "2".into() };
        let line = StageReport { name: "long", shows: "", outcome: StageOutcome::Passed, took: Duration::from_secs(1) };
        let text = text(&facts, &[line], "| rounds | 200 |\n", Duration::from_secs(2));
        assert!(text.starts_with("# Soak\n\nCommit abc, d, m, 2 cores, 0m 02s in all.\n"), "{text}");
        assert!(text.contains("| long | passed | 0m 01s |\n"), "{text}");
        assert!(text.ends_with("|---|---|\n| rounds | 200 |\n"), "{text}");
    }
}
