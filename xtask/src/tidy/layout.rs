//! Spaces, tabs, ends of files.

use super::{File, Problem};

/// Files that people write. What programs compare byte by byte (golden files) is left alone.
const EXTENSIONS: &[&str] = &[".rs", ".toml", ".md", ".py", ".ci/run"];

pub(super) fn check(files: &[File]) -> Vec<Problem> {
    files.iter().filter(|file| EXTENSIONS.iter().any(|end| file.path.ends_with(end))).flat_map(in_file).collect()
}

fn in_file(file: &File) -> Vec<Problem> {
    let mut problems: Vec<Problem> =
        file.lines().filter_map(|(number, line)| Some(Problem::at(file, number, in_line(file, line)?))).collect();
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        problems.push(Problem::at(file, file.text.lines().count(), "does not end with exactly one line end"));
    }
    problems
}

/// In Rust a space at the end can only be inside a literal: `cargo fmt` takes the others.
fn in_line(file: &File, line: &str) -> Option<&'static str> {
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
    use crate::tidy::{file, said};

    #[test]
    fn stray_whitespace_is_found() {
        let problems = said(&check(&[file("a.md", "a \n\tb\nc\n\n")]));
        let expected =
            ["a.md:1: ends with a space", "a.md:2: has a tab", "a.md:4: does not end with exactly one line end"];
        assert_eq!(problems, expected);
        assert_eq!(said(&check(&[file("a.rs", "let a = \"b \nc\";\n")])), [""; 0]);
        assert_eq!(said(&check(&[file("golden/a.txt", "a \n\tb")])), [""; 0]);
        assert_eq!(check(&[file("a.md", "a")]).len(), 1);
    }
}
