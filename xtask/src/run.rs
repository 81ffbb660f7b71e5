//! Running stages one after the other.

use std::time::{Duration, Instant};

use crate::report::{Line, Outcome, last_line, table};
use crate::shell::{Result, Shell};
use crate::stages::{Ended, STAGES, Stage, named};

/// What a cold run may take on two cores.
const BUDGET: Duration = Duration::from_secs(40 * 60);

/// Which stages, and what after a failure.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Options {
    /// Run this stage alone; may be given several times.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    only: Vec<String>,
    /// Leave this stage out; may be given several times.
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    skip: Vec<String>,
    /// Go on after a failed stage.
    #[arg(long)]
    keep_going: bool,
}

impl Options {
    /// For a soak, which runs the unit tests in its own way.
    pub(crate) fn without_unit_tests(&self) -> Self {
        let mut options = self.clone();
        options.skip.push("unit".to_owned());
        options
    }

    fn wants(&self, stage: &Stage) -> bool {
        let listed = |names: &[String]| names.iter().any(|name| name == stage.name);
        !listed(&self.skip) && (self.only.is_empty() || listed(&self.only))
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

/// Runs the test stages and prints how they went; the last line is `xtask test: PASSED …` or `xtask test: FAILED …`.
///
/// # Errors
/// The last line, when a stage failed.
pub(crate) fn test(shell: &Shell, options: &Options) -> Result<()> {
    let start = Instant::now();
    let lines = stages(shell, options);
    let took = start.elapsed();
    println!("\n{}", table(&lines));
    if took > BUDGET {
        println!("over the budget of {} minutes", BUDGET.as_secs() / 60);
    }
    let (line, good) = last_line("test", &lines, took);
    if !good {
        return Err(line);
    }
    println!("{line}");
    Ok(())
}

/// Runs the wanted stages: after a failure the rest are not run, unless told to go on.
pub(crate) fn stages(shell: &Shell, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut failed = false;
    for stage in STAGES.iter().filter(|stage| options.wants(stage)) {
        let (outcome, took) =
            if failed && !options.keep_going { (Outcome::NotRun, Duration::ZERO) } else { timed(stage, shell) };
        failed |= matches!(outcome, Outcome::Failed(_));
        lines.push(Line { name: stage.name, shows: stage.shows, outcome, took });
    }
    lines
}

fn timed(stage: &Stage, shell: &Shell) -> (Outcome, Duration) {
    println!("\n== {}: {}", stage.name, stage.shows);
    let start = Instant::now();
    let outcome = match (stage.run)(shell) {
        Ok(Ended::Passed) => Outcome::Passed,
        Ok(Ended::Skipped(why)) => {
            println!("SKIPPED: {why}");
            Outcome::Skipped(why)
        }
        Err(why) => {
            println!("FAILED: {why}");
            Outcome::Failed(why)
        }
    };
    (outcome, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(only: &[&str], skip: &[&str]) -> Vec<&'static str> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let options = Options { only: owned(only), skip: owned(skip), keep_going: false };
        STAGES.iter().filter(|stage| options.wants(stage)).map(|stage| stage.name).collect()
    }

    #[test]
    fn all_stages_run_unless_told_otherwise() {
        assert_eq!(wanted(&[], &[]).len(), STAGES.len());
        assert_eq!(wanted(&["fmt", "tidy"], &[]), ["tidy", "fmt"]);
        assert!(!wanted(&[], &["product"]).contains(&"product"));
        assert_eq!(wanted(&["fmt"], &["fmt"]), [""; 0]);
    }

    #[test]
    fn an_unknown_stage_is_answered_with_the_known_ones() {
        assert!(stage("nosuch").is_err_and(|text| text.contains("clippy")));
        assert_eq!(stage("unit").as_deref(), Ok("unit"));
    }
}
