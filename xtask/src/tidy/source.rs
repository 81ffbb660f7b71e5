//! The lines of a Rust file, split into code and tests.

use super::SourceFile;

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

    /// Its numbered lines of tests.
    pub(super) fn tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let start = if self.is_test() { 0 } else { self.tests_start() };
        self.lines().skip(start)
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

#[cfg(test)]
mod tests {
    use crate::tidy::file;

    #[test]
    fn a_module_of_tests_at_the_end_is_not_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod elsewhere;\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let mixed = file("crates/model/src/a.rs", text);
        assert_eq!(mixed.code().count(), 4);
        assert_eq!(mixed.tests().next(), Some((5, "#[cfg(test)]")));
        let code = file("crates/model/src/a.rs", "fn a() {}\n");
        assert_eq!((code.code().count(), code.tests().count()), (1, 0));
        for path in ["tests/kill9.rs", "crates/model/src/props/tests.rs", "crates/store/tests/a.rs"] {
            let tests = file(path, text);
            assert_eq!((tests.code().count(), tests.tests().count()), (0, 8), "{path}");
        }
    }
}
