//! A file of the repository: its lines, split into code and tests; and a problem in one of them.

use std::fmt;

/// A file of the repository.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// Its path from the root.
    pub(super) path: String,
    /// Its content.
    pub(super) text: String,
}

/// A line that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TidyProblem {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) what: String,
}

impl TidyProblem {
    pub(super) fn at(file: &SourceFile, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }

    pub(super) fn missing(path: &str, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 1, what: what.into() }
    }
}

impl fmt::Display for TidyProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl SourceFile {
    /// Whether it is Rust.
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it holds tests only.
    pub(super) fn is_test(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        self.is_rust()
            && parts.iter().any(|part| *part == "tests" || *part == "tests.rs" || part.ends_with("_tests.rs"))
    }

    /// Its numbered lines before its module of tests.
    pub(super) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = if self.is_test() { 0 } else { self.tests_start() };
        self.lines().take(end)
    }

    /// Its lines, numbered from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(number, line)| (number + 1, line))
    }

    /// How many lines come before a module of tests that is written out at the end.
    fn tests_start(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let opens = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{');
        lines.windows(2).position(opens).unwrap_or(lines.len())
    }
}

/// The code before a line's comment and the comment's text; `None` when there is no comment.
pub(super) fn comment(line: &str) -> Option<(&str, &str)> {
    let trimmed = line.trim_start();
    if let Some(text) = trimmed.strip_prefix("//") {
        return Some(("", text.trim_start_matches(['/', '!'])));
    }
    let (code, text) = line.split_once(" // ")?;
    let quotes = code.matches('"').count() - code.matches("\\\"").count();
    (quotes % 2 == 0).then_some((code, text))
}

#[cfg(test)]
mod tests {
    use crate::tidy::file;

    #[test]
    fn a_module_of_tests_at_the_end_is_not_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod elsewhere;\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let mixed = file("crates/rows/src/a.rs", text);
        assert_eq!(mixed.code().count(), 4);
        let code = file("crates/rows/src/a.rs", "fn a() {}\n");
        assert_eq!(code.code().count(), 1);
        for path in ["tests/kill9.rs", "crates/core/src/rules/props/tests.rs", "crates/store/tests/a.rs"] {
            assert_eq!(file(path, text).code().count(), 0, "{path}");
        }
    }
}
