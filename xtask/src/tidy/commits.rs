//! Subjects of commits fit the list that `git log --oneline` shows.

use super::TidyProblem;

/// The last commit before the rule.
pub(super) const SINCE: &str = "7a33740";
/// Most characters of a subject.
const SUBJECT_MAX: usize = 72;

/// Checks the lines of `git log --format='%h %s'`.
pub(super) fn check(log: &str) -> Vec<TidyProblem> {
    log.lines().filter_map(|line| too_long(line.split_once(' ')?)).collect()
}

fn too_long((hash, subject): (&str, &str)) -> Option<TidyProblem> {
    let length = subject.chars().count();
    let problem = || format!("a subject of {length} characters, more than {SUBJECT_MAX}: {subject}");
    (length > SUBJECT_MAX).then(|| TidyProblem::missing(&format!("commit {hash}"), problem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::shown;

    #[test]
    fn long_subjects_are_found() {
        let (good, bad) = ("ä".repeat(72), "a".repeat(73));
        let expected = format!("commit 2:1: a subject of 73 characters, more than 72: {bad}");
        assert_eq!(shown(&check(&format!("1 {good}\n2 {bad}\n"))), [expected]);
        assert_eq!(shown(&check("")), [""; 0]);
    }
}
