//! What a run leaves on the screen and in a file. Pure.

use std::time::Duration;

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything it checks holds.
    Passed,
    /// It was not possible here, and why.
    Skipped(String),
    /// Something it checks does not hold.
    Failed(String),
    /// An earlier stage failed.
    NotRun,
}

/// One stage of a run.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// The stage.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) shows: &'static str,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// How long it took.
    pub(crate) took: Duration,
}

/// The stages as a table for a screen.
pub(crate) fn table(lines: &[Line]) -> String {
    let rows = lines.iter().map(|line| {
        let (word, why) = match &line.outcome {
            Outcome::Passed => ("passed", String::new()),
            Outcome::Skipped(why) => ("SKIPPED", format!(": {why}")),
            Outcome::Failed(_) => ("FAILED", String::new()),
            Outcome::NotRun => ("not run", String::new()),
        };
        format!("{:<11}{:<9}{:>8}  {}{why}\n", line.name, word, clock(line.took), line.shows)
    });
    rows.collect()
}

/// The line that CI reads, and whether it is a good one. A skipped stage is no failure, but it is named.
pub(crate) fn last_line(task: &str, lines: &[Line], took: Duration) -> (String, bool) {
    let names = |wanted: fn(&Outcome) -> bool| -> Vec<&str> {
        lines.iter().filter(|line| wanted(&line.outcome)).map(|line| line.name).collect()
    };
    let failed = names(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = names(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let skipped = if skipped.is_empty() { String::new() } else { format!(", skipped: {}", skipped.join(" ")) };
    let took = clock(took);
    if failed.is_empty() {
        let passed = names(|outcome| *outcome == Outcome::Passed).len();
        (format!("xtask {task}: PASSED, {passed} stages in {took}{skipped}"), true)
    } else {
        (format!("xtask {task}: FAILED: {} after {took}{skipped}", failed.join(" ")), false)
    }
}

/// Minutes and seconds.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}m {:02}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, outcome: Outcome) -> Line {
        Line { name, shows: "it", outcome, took: Duration::from_secs(61) }
    }

    #[test]
    fn the_last_line_names_what_failed_and_what_was_skipped() {
        let good = [line("fmt", Outcome::Passed), line("deny", Outcome::Skipped("not installed".into()))];
        let (text, passed) = last_line("test", &good, Duration::from_secs(75));
        assert_eq!((text.as_str(), passed), ("xtask test: PASSED, 1 stages in 1m 15s, skipped: deny", true));
        let bad = [line("fmt", Outcome::Failed("x".into())), line("unit", Outcome::NotRun)];
        let (text, passed) = last_line("test", &bad, Duration::ZERO);
        assert_eq!((text.as_str(), passed), ("xtask test: FAILED: fmt after 0m 00s", false));
    }

    #[test]
    fn the_table_has_a_row_for_each_stage() {
        let text = table(&[line("fmt", Outcome::Passed), line("deny", Outcome::Skipped("not installed".into()))]);
        assert_eq!(text, "fmt        passed     1m 01s  it\ndeny       SKIPPED    1m 01s  it: not installed\n");
    }
}
