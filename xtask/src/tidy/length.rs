//! A file has one noun.

use super::{SourceFile, TidyProblem};

/// The most lines of a file without its tests.
const LINES_MAX: usize = 500;

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    files.iter().filter(|file| file.is_rust()).filter_map(too_long).collect()
}

fn too_long(file: &SourceFile) -> Option<TidyProblem> {
    let lines = file.code().count();
    let what = || format!("{lines} lines without tests, more than {LINES_MAX}: split it by noun");
    (lines > LINES_MAX).then(|| TidyProblem::at(file, LINES_MAX + 1, what()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn code_counts_and_tests_do_not() {
        let code = "fn a() {}\n".repeat(500);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn b() {}\n".repeat(500));
        assert_eq!(shown(&check(&[file("crates/a/src/a.rs", &format!("{code}{tests}"))])), [""; 0]);
        let long = shown(&check(&[file("crates/a/src/a.rs", &format!("{code}fn c() {{}}\n"))]));
        assert_eq!(long, ["crates/a/src/a.rs:501: 501 lines without tests, more than 500: split it by noun"]);
        assert_eq!(shown(&check(&[file("README.md", &"line\n".repeat(900))])), [""; 0]);
    }
}
