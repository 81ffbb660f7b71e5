//! The same checks at full length.

use std::fs;
use std::time::{Duration, Instant};

use crate::report::{Line, Outcome, clock, last_line, table};
use crate::run::{self, Options};
use crate::shell::{Result, Shell};

/// Simulated schedules.
const SCHEDULES: &str = "100000";
/// Where tests note what they measured.
const FIGURES: &str = ".work/soak-figures.md";
/// What people read afterwards.
const REPORT: &str = ".work/soak.md";
/// The crates whose own tests have a full length: simulation, engines, causality.
const LONG: &[&str] = &["larder-gateway", "larder-store", "larder-store-local", "larder-model"];

/// Runs the long tests of the crates, then the product tests, and writes the report.
///
/// # Errors
/// The last line, when something failed.
pub(crate) fn soak(shell: &Shell, options: &Options) -> Result<()> {
    let shell = shell
        .clone()
        .with("LARDER_TEST_SCALE", "soak")
        .with("LARDER_SCHEDULES", SCHEDULES)
        .with("LARDER_FIGURES", shell.path(FIGURES));
    fs::create_dir_all(shell.path(".work")).map_err(|error| format!(".work: {error}"))?;
    let _ = fs::remove_file(shell.path(FIGURES));
    let start = Instant::now();
    let mut lines = vec![long_tests(&shell)];
    lines.extend(run::stages(&shell, &options.without_unit_tests()));
    let took = start.elapsed();
    println!("\n{}", table(&lines));
    write(&shell, &lines, took)?;
    let (line, good) = last_line("soak", &lines, took);
    if !good {
        return Err(line);
    }
    println!("figures: {REPORT}\n{line}");
    Ok(())
}

/// With optimisation: a hundred thousand schedules are many.
fn long_tests(shell: &Shell) -> Line {
    let start = Instant::now();
    let packages: Vec<&str> = LONG.iter().flat_map(|name| ["-p", name]).collect();
    let args = [&["test", "--release", "--no-fail-fast", "--features", "larder-gateway/rules"], &packages[..]].concat();
    let outcome = match shell.cargo(&args) {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    };
    let shows = "simulation, conformance and property tests at full length";
    Line { name: "long", shows, outcome, took: start.elapsed() }
}

fn write(shell: &Shell, lines: &[Line], took: Duration) -> Result<()> {
    let fact = |program: &str, args: &[&str]| shell.output(program, args).unwrap_or_else(|_| "unknown".to_owned());
    let facts = Facts {
        commit: fact("git", &["describe", "--always", "--dirty"]),
        date: fact("date", &["-u", "+%F"]),
        machine: fact("uname", &["-srm"]),
        cores: fact("nproc", &[]),
    };
    let figures = fs::read_to_string(shell.path(FIGURES)).unwrap_or_default();
    let text = text(&facts, lines, &figures, took);
    fs::write(shell.path(REPORT), text).map_err(|error| format!("{REPORT}: {error}"))
}

struct Facts {
    commit: String,
    date: String,
    machine: String,
    cores: String,
}

fn text(facts: &Facts, lines: &[Line], figures: &str, took: Duration) -> String {
    let stages: String = lines.iter().map(|line| stage(line) + "\n").collect();
    format!(
        "# Soak\n\nCommit {}, {}, {}, {} cores, {} schedules, {} in all.\n\n\
         | stage | ended | took |\n|---|---|---|\n{stages}\n| figure | value |\n|---|---|\n{figures}",
        facts.commit,
        facts.date,
        facts.machine,
        facts.cores,
        SCHEDULES,
        clock(took)
    )
}

fn stage(line: &Line) -> String {
    let ended = match &line.outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::Failed(why) => format!("FAILED: {}", why.lines().next().unwrap_or_default()),
        Outcome::NotRun => "not run".to_owned(),
    };
    format!("| {} | {ended} | {} |", line.name, clock(line.took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_stages_and_figures() {
        let facts = Facts { commit: "abc".into(), date: "d".into(), machine: "m".into(), cores: "2".into() };
        let line = Line { name: "long", shows: "", outcome: Outcome::Passed, took: Duration::from_secs(1) };
        let text = text(&facts, &[line], "| rounds | 200 |\n", Duration::from_secs(2));
        assert!(text.starts_with("# Soak\n\nCommit abc, d, m, 2 cores, 100000 schedules, 0m 02s in all.\n"), "{text}");
        assert!(text.contains("| long | passed | 0m 01s |\n"), "{text}");
        assert!(text.ends_with("|---|---|\n| rounds | 200 |\n"), "{text}");
    }
}
