//! Spaces, tabs, ends of files.

use super::{SourceFile, TidyProblem};

/// Files that people write. Golden files, which programs compare byte by byte, are not checked.
const EXTENSIONS: &[&str] = &[".rs", ".toml", ".md", ".py", ".js", ".java", ".ci/run"];

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    files.iter().filter(|file| EXTENSIONS.iter().any(|end| file.path.ends_with(end))).flat_map(in_file).collect()
}

fn in_file(file: &SourceFile) -> Vec<TidyProblem> {
    let mut problems: Vec<TidyProblem> =
        file.lines().filter_map(|(number, line)| Some(TidyProblem::at(file, number, in_line(file, line)?))).collect();
    problems.extend(untested_examples(file));
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        problems.push(TidyProblem::at(file, file.text.lines().count(), "does not end with exactly one line end"));
    }
    problems
}

/// The begins of code blocks in documentation that claim to be Rust: no stage runs them, and their own build would take minutes.
fn untested_examples(file: &SourceFile) -> Vec<TidyProblem> {
    let (mut problems, mut is_open) = (Vec::new(), false);
    for (number, line) in file.lines().filter(|_| file.is_rust()) {
        let line = line.trim_start();
        let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        let Some(tag) = comment.and_then(|text| text.strip_prefix("```")) else { continue };
        is_open = !is_open;
        if is_open && matches!(tag, "" | "rust" | "no_run" | "ignore" | "should_panic") {
            problems.push(TidyProblem::at(file, number, "begins an example that no test runs: write `text`"));
        }
    }
    problems
}

/// The problem of a line. In Rust a space at the end can only be inside a literal: `cargo fmt` removes the others.
fn in_line(file: &SourceFile, line: &str) -> Option<&'static str> {
    if line.contains('\t') {
        Some("has a tab")
    } else if line.contains('\r') {
        Some("has a carriage return")
    } else if line.ends_with(' ') && !file.is_rust() {
        Some("ends with a space")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn an_example_that_no_test_runs_is_text() {
        let text = "/// ```text\n/// a\n/// ```\n/// ```\n/// b\n/// ```\n    //! ```no_run\n    //! ```\n";
        let problems = shown(&check(&[file("a.rs", text)]));
        let what = "begins an example that no test runs: write `text`";
        assert_eq!(problems, [format!("a.rs:4: {what}"), format!("a.rs:7: {what}")]);
    }

    #[test]
    fn stray_whitespace_is_found() {
        let problems = shown(&check(&[file("a.md", "a \n\tb\nc\n\n")]));
        let expected =
            ["a.md:1: ends with a space", "a.md:2: has a tab", "a.md:4: does not end with exactly one line end"];
        assert_eq!(problems, expected);
        assert_eq!(shown(&check(&[file("a.rs", "let a = \"b \nc\";\n")])), [""; 0]);
        assert_eq!(shown(&check(&[file("golden/a.txt", "a \n\tb")])), [""; 0]);
        assert_eq!(check(&[file("a.md", "a")]).len(), 1);
    }
}
