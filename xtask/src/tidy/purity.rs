//! Values and rules are pure: below `src/rules/` of a crate, in `s3-rules` and in `rows`, nothing waits, reads a clock or a disk, or draws a number.

use super::source::comment;
use super::{SourceFile, TidyProblem};

/// Words of what is not pure.
const IMPURE: &[&str] = &["tokio", "async", "await", "fs", "TcpStream", "thread", "Instant::now", "SystemTime", "rand"];
/// Begins of paths of which only the rules may follow.
const CRATES: &[&str] = &["crate::", "larder_core::", "larder_kv::", "larder_s3::"];
/// Crates that are rules as a whole: what they may use is in the table of dependencies.
const PURE: &[&str] = &["crates/rows/src/", "crates/s3-rules/src/"];
/// A crate that waits.
const STORE: &str = "larder_store";

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    files.iter().filter(|file| file.is_rust() && !file.is_test() && is_pure(&file.path)).flat_map(in_file).collect()
}

fn is_pure(path: &str) -> bool {
    PURE.iter().any(|begin| path.starts_with(begin)) || path.starts_with("crates/") && path.contains("/src/rules/")
}

fn in_file(file: &SourceFile) -> Vec<TidyProblem> {
    let of_crate = file.path.contains("/src/rules/");
    let lines = file.code().map(|(number, line)| (number, comment(line).map_or(line, |(code, _)| code)));
    let problems = lines.filter_map(|(number, line)| {
        let word = IMPURE.iter().find(|word| has_words(line, word));
        let what = word.map(|word| format!("{word} is not pure"));
        let leaves = of_crate && leads_out(&file.path, line);
        Some(TidyProblem::at(file, number, what.or_else(|| leaves.then(|| "imports what is no rule".to_owned()))?))
    });
    problems.collect()
}

/// Whether a path of the line leads out of the rules.
fn leads_out(path: &str, line: &str) -> bool {
    let is_begin = |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric() || "_:".contains(before));
    let is_rules = |rest: &str| rest.strip_prefix("rules").is_some_and(|rest| !rest.starts_with(is_part));
    let to_other =
        |root: &str| line.match_indices(root).any(|(at, _)| is_begin(at) && !is_rules(&line[at + root.len()..]));
    let below = path.split_once("/src/rules/").map_or("", |(_, name)| name.trim_end_matches(".rs"));
    let depth = below.split('/').filter(|part| *part != "mod").count();
    let upward = format!("{}super::", "super::".repeat(depth));
    CRATES.iter().any(|root| to_other(root)) || line.contains(STORE) || line.contains(&upward)
}

fn is_part(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Whether the line has these words, and not as a part of longer ones.
fn has_words(line: &str, words: &str) -> bool {
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
        let path = "crates/kv/src/rules/a.rs";
        assert_eq!(problems(path, "use tokio::time;\n"), ["crates/kv/src/rules/a.rs:1: tokio is not pure"]);
        assert_eq!(problems(path, "use crate::commit::X;\n"), ["crates/kv/src/rules/a.rs:1: imports what is no rule"]);
        assert_eq!(
            problems("crates/rows/src/a.rs", "x(SystemTime);\n"),
            ["crates/rows/src/a.rs:1: SystemTime is not pure"]
        );
        for out in [
            "use super::super::commit::X;\n",
            "use larder_core::Core;\n",
            "use larder_store::Store;\n",
            "use crate::rules_x::X;\n",
        ] {
            assert_eq!(problems(path, out), ["crates/kv/src/rules/a.rs:1: imports what is no rule"], "{out}");
        }
        assert_eq!(problems(path, "use std::{fs, io};\n"), ["crates/kv/src/rules/a.rs:1: fs is not pure"]);
        assert_eq!(problems("crates/kv/src/rules/b/c.rs", "use super::super::a::X;\n"), [""; 0]);
        assert_eq!(problems(path, "use crate::rules::b::Operand;\n// tokio\nuse larder_rows;\n"), [""; 0]);
        assert_eq!(problems("crates/s3/src/a.rs", "use tokio::time;\nuse crate::b;\n"), [""; 0]);
    }
}
