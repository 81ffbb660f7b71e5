//! Counts of a run of tests, and its slowest. Pure.

use std::time::Duration;

/// How many of the slowest tests are named.
const SLOWEST: usize = 10;

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TestResult {
    /// It passed.
    Passed,
    /// This machine cannot run it; the cause.
    Skipped(String),
    /// It failed; how.
    Failed(String),
}

/// The counts of a run of tests, and its slowest tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestSummary {
    passed: usize,
    skipped: usize,
    /// The names of those that failed.
    pub(crate) failed: Vec<String>,
    /// The slowest first.
    slowest: Vec<(Duration, String)>,
}

impl TestSummary {
    /// Counts one test.
    pub(crate) fn add(&mut self, name: String, result: TestResult, took: Duration) {
        match result {
            TestResult::Passed => self.passed += 1,
            TestResult::Skipped(_) => self.skipped += 1,
            TestResult::Failed(_) => self.failed.push(name.clone()),
        }
        self.slowest.push((took, name));
        self.keep_slowest();
    }

    /// Adds the tests of another run.
    pub(crate) fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.failed.extend(other.failed);
        self.slowest.extend(other.slowest);
        self.keep_slowest();
    }

    /// The counts, in the form that tools read.
    pub(crate) fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped)
    }

    /// A line for each of the slowest.
    pub(crate) fn slowest(&self) -> String {
        self.slowest.iter().map(|(took, name)| format!("{:>7.1} s  {name}\n", took.as_secs_f64())).collect()
    }

    fn keep_slowest(&mut self) {
        self.slowest.sort_by(|one, other| other.cmp(one));
        self.slowest.truncate(SLOWEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_slowest_of_two_runs_are_named() {
        let mut one = TestSummary::default();
        for number in 0..8 {
            one.add(format!("one {number}"), TestResult::Passed, Duration::from_secs(number));
        }
        let mut other = TestSummary::default();
        other.add("other".into(), TestResult::Skipped("no Java".into()), Duration::from_secs(6));
        for number in 0..4 {
            other.add(format!("other {number}"), TestResult::Failed("1".into()), Duration::from_millis(number));
        }
        one.merge(other);
        assert_eq!(one.line(), "8 passed, 4 failed, 1 skipped");
        let shown = one.slowest();
        assert_eq!(shown.lines().count(), SLOWEST);
        assert!(shown.starts_with("    7.0 s  one 7\n    6.0 s  other\n    6.0 s  one 6\n"), "{shown}");
    }
}
