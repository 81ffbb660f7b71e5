//! The end of each stage, and the table and the last line of a run. Pure.

use std::time::Duration;

use crate::test_summary::TestSummary;

/// How a stage ended, when it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StageEnd {
    /// Everything that it checks holds; its tests, if it has some.
    Passed(TestSummary),
    /// It was not run; the cause.
    Skipped(String),
}

/// How a stage of a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StageOutcome {
    /// Everything that it checks holds.
    Passed,
    /// This machine cannot run it; the cause.
    Skipped(String),
    /// A check failed; its report.
    Failed(String),
    /// It was not run because an earlier stage failed.
    NotRun,
}

/// One stage of a run.
#[derive(Debug, Clone)]
pub(crate) struct StageReport {
    /// The name of the stage.
    pub(crate) name: &'static str,
    /// The property that it shows.
    pub(crate) shows: &'static str,
    /// How it ended.
    pub(crate) outcome: StageOutcome,
    /// How long it took.
    pub(crate) took: Duration,
}

/// The stages as a table for a screen.
pub(crate) fn table(lines: &[StageReport]) -> String {
    let rows = lines.iter().map(|line| {
        let (word, why) = match &line.outcome {
            StageOutcome::Passed => ("passed", String::new()),
            StageOutcome::Skipped(why) => ("SKIPPED", format!(": {why}")),
            StageOutcome::Failed(_) => ("FAILED", String::new()),
            StageOutcome::NotRun => ("not run", String::new()),
        };
        format!("{:<11}{:<9}{:>8}  {}{why}\n", line.name, word, minutes(line.took), line.shows)
    });
    rows.collect()
}

/// The line that CI reads, and whether the run passed. A skipped stage is no failure, but it is named.
pub(crate) fn last_line(task: &str, lines: &[StageReport], took: Duration) -> (String, bool) {
    let names = |wanted: fn(&StageOutcome) -> bool| -> Vec<&str> {
        lines.iter().filter(|line| wanted(&line.outcome)).map(|line| line.name).collect()
    };
    let failed = names(|outcome| matches!(outcome, StageOutcome::Failed(_)));
    let skipped = names(|outcome| matches!(outcome, StageOutcome::Skipped(_)));
    let skipped = if skipped.is_empty() { String::new() } else { format!(", skipped: {}", skipped.join(" ")) };
    let took = minutes(took);
    if failed.is_empty() {
        let passed = names(|outcome| *outcome == StageOutcome::Passed).len();
        (format!("xtask {task}: PASSED, {passed} stages in {took}{skipped}"), true)
    } else {
        (format!("xtask {task}: FAILED: {} after {took}{skipped}", failed.join(" ")), false)
    }
}

/// Minutes and seconds.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}m {:02}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, outcome: StageOutcome) -> StageReport {
        StageReport { name, shows: "it", outcome, took: Duration::from_secs(61) }
    }

    #[test]
    fn the_last_line_names_failed_and_skipped_stages() {
        let good = [line("fmt", StageOutcome::Passed), line("deny", StageOutcome::Skipped("not installed".into()))];
        let (text, passed) = last_line("test", &good, Duration::from_secs(75));
        assert_eq!((text.as_str(), passed), ("xtask test: PASSED, 1 stages in 1m 15s, skipped: deny", true));
        let bad = [line("fmt", StageOutcome::Failed("x".into())), line("unit", StageOutcome::NotRun)];
        let (text, passed) = last_line("test", &bad, Duration::ZERO);
        assert_eq!((text.as_str(), passed), ("xtask test: FAILED: fmt after 0m 00s", false));
    }

    #[test]
    fn the_table_has_a_row_for_each_stage() {
        let text =
            table(&[line("fmt", StageOutcome::Passed), line("deny", StageOutcome::Skipped("not installed".into()))]);
        assert_eq!(text, "fmt        passed     1m 01s  it\ndeny       SKIPPED    1m 01s  it: not installed\n");
    }
}
