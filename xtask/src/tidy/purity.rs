//! Values and rules are pure: below `src/rules/` of a crate, and in `rows`, nothing waits, reads a clock or a disk, or draws a number.

use super::openings::comment;
use super::{SourceFile, TidyProblem};

/// Words of what is not pure.
const IMPURE: &[&str] =
    &["tokio", "async fn", "std::fs", "TcpStream", "std::thread", "Instant::now", "SystemTime", "rand"];
/// Begins of paths that lead out of the rules.
const INSIDE: &str = "crate::";

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    files.iter().filter(|file| file.is_rust() && !file.is_test() && is_pure(&file.path)).flat_map(in_file).collect()
}

fn is_pure(path: &str) -> bool {
    path.starts_with("crates/rows/src/") || path.starts_with("crates/") && path.contains("/src/rules/")
}

fn in_file(file: &SourceFile) -> Vec<TidyProblem> {
    let of_crate = file.path.contains("/src/rules/");
    let lines = file.code().map(|(number, line)| (number, comment(line).map_or(line, |(code, _)| code)));
    let problems = lines.filter_map(|(number, line)| {
        let word = IMPURE.iter().find(|word| has_words(line, word));
        let what = word.map(|word| format!("{word} is not pure"));
        let leaves = of_crate && leads_out(line);
        Some(TidyProblem::at(file, number, what.or_else(|| leaves.then(|| "imports what is no rule".to_owned()))?))
    });
    problems.collect()
}

/// Whether a path of the line leads to another folder of the crate.
fn leads_out(line: &str) -> bool {
    line.match_indices(INSIDE).any(|(at, _)| {
        let is_root = !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':');
        is_root && !line[at + INSIDE.len()..].starts_with("rules")
    })
}

/// Whether the line has these words, and not as a part of longer ones.
fn has_words(line: &str, words: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    line.match_indices(words)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + words.len()..].starts_with(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn rules_that_read_a_clock_or_leave_their_folder_are_named() {
        let problems = |path: &str, text: &str| shown(&check(&[file(path, text)]));
        let path = "crates/s3/src/rules/a.rs";
        assert_eq!(problems(path, "use tokio::time;\n"), ["crates/s3/src/rules/a.rs:1: tokio is not pure"]);
        assert_eq!(problems(path, "use crate::commit::X;\n"), ["crates/s3/src/rules/a.rs:1: imports what is no rule"]);
        assert_eq!(
            problems("crates/rows/src/a.rs", "x(SystemTime);\n"),
            ["crates/rows/src/a.rs:1: SystemTime is not pure"]
        );
        assert_eq!(problems(path, "use crate::rules::b::Operand;\n// tokio\nuse larder_rows;\n"), [""; 0]);
        assert_eq!(problems("crates/s3/src/a.rs", "use tokio::time;\nuse crate::b;\n"), [""; 0]);
    }
}
