//! Text that finished code does not hold. The words here are put together from halves, so that this file passes.

use super::{SourceFile, TidyProblem};

/// Calls that mark unfinished code; tests may hold them.
const CALLS: &[&str] = &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
/// Notes that promise later work, which belongs in an issue.
const NOTES: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];
/// Hosts of package registries: a build chooses its own.
const HOSTS: &[&str] =
    &[concat!("crates", ".io"), concat!("pypi", ".org"), concat!("pythonhosted", ".org"), concat!("npmjs", ".org")];
/// Addresses that other machines can reach: a unit test may parse them, no test listens there.
const OPEN_ADDRESSES: &[&str] = &[concat!("0.0", ".0.0"), concat!("[:", ":]:"), concat!("UNSPEC", "IFIED")];
/// Files that cargo writes.
const GENERATED: &str = "Cargo.lock";

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    files.iter().filter(|file| file.path != GENERATED).flat_map(in_file).collect()
}

fn in_file(file: &SourceFile) -> Vec<TidyProblem> {
    let mut problems = Vec::new();
    if file.is_rust() {
        problems.extend(found(file, file.code(), CALLS, |line, word| line.contains(word), "is not finished code"));
        let own = file.path.starts_with("tests/");
        let opens = |line: &str, word: &str| line.contains(word) && (own || line.contains("bind"));
        problems.extend(found(file, file.tests(), OPEN_ADDRESSES, opens, "is open to others"));
    }
    problems.extend(found(file, file.lines(), NOTES, has_word, "belongs in an issue"));
    problems.extend(found(file, file.lines(), HOSTS, |line, word| line.contains(word), "is a package registry"));
    problems
}

fn found<'a>(
    file: &'a SourceFile,
    lines: impl Iterator<Item = (usize, &'a str)>,
    words: &[&str],
    has: impl Fn(&str, &str) -> bool,
    why: &str,
) -> Vec<TidyProblem> {
    let in_line = |(number, line): (usize, &str)| {
        let word = words.iter().find(|word| has(line, word))?;
        Some(TidyProblem::at(file, number, format!("{word} {why}")))
    };
    lines.filter_map(in_line).collect()
}

/// Whether `word` stands in `line` by itself.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|char: char| !char.is_alphanumeric()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn unfinished_code_is_found_outside_tests() {
        let text = format!("fn a() {{\n    {}\n}}\n", concat!("todo", "!()"));
        let problems = shown(&check(&[file("crates/a/src/a.rs", &text)]));
        assert_eq!(problems, [concat!("crates/a/src/a.rs:2: todo", "!( is not finished code")]);
        assert_eq!(shown(&check(&[file("tests/a.rs", &text)])), [""; 0]);
        assert_eq!(shown(&check(&[file("docs/a.md", &text)])), [""; 0]);
    }

    #[test]
    fn notes_are_found_everywhere_as_words() {
        let problems = shown(&check(&[file("docs/a.md", concat!("later: FIX", "ME\n"))]));
        assert_eq!(problems, [concat!("docs/a.md:1: FIX", "ME belongs in an issue")]);
        assert_eq!(shown(&check(&[file("docs/a.md", concat!("aXX", "Xb\n"))])), [""; 0]);
    }

    #[test]
    fn registries_are_named_in_the_lock_file_alone() {
        let text = concat!("see https://crates", ".io/x\n");
        assert_eq!(check(&[file("README.md", text)]).len(), 1);
        assert_eq!(check(&[file("Cargo.lock", text)]).len(), 0);
    }

    #[test]
    fn tests_bind_to_loopback() {
        let text = concat!("let a = \"0.0", ".0.0:0\";\n");
        assert_eq!(check(&[file("tests/a.rs", text)]).len(), 1);
        assert_eq!(check(&[file("crates/server/src/a.rs", text)]).len(), 0);
        assert_eq!(check(&[file("crates/server/src/tests.rs", text)]).len(), 0);
        let bound = format!("bind({text})\n");
        assert_eq!(check(&[file("crates/server/src/tests.rs", &bound)]).len(), 1);
    }
}
