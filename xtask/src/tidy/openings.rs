//! A sentence names its subject first: it does not open with a question word or with a person without a name.

use super::{SourceFile, TidyProblem};

/// Words that a sentence does not open with.
const BANNED: &[&str] = &["What", "Who", "Whoever", "Whatever", "Nobody", "Somebody"];
/// Documents outside `docs/` whose sentences are read.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    files.iter().flat_map(in_file).collect()
}

fn in_file(file: &SourceFile) -> Vec<TidyProblem> {
    if file.is_rust() {
        sentences(file, |line| comment(line).map(|(_, text)| text))
    } else if is_document(&file.path) {
        sentences(file, |line| (!line.starts_with('|')).then_some(line))
    } else {
        Vec::new()
    }
}

/// A document for readers: the decisions below `docs/decisions` are records and stay as they are.
fn is_document(path: &str) -> bool {
    let manual = path.strip_prefix("docs/").is_some_and(|name| name.ends_with(".md") && !name.contains('/'));
    manual || DOCUMENTS.contains(&path)
}

/// The sentences with a banned opening. `prose` picks the prose of a line; a line without prose ends a paragraph.
fn sentences(file: &SourceFile, prose: impl Fn(&str) -> Option<&str>) -> Vec<TidyProblem> {
    let mut problems = Vec::new();
    let (mut fenced, mut at_start) = (false, true);
    for (number, line) in file.lines() {
        let text = prose(line).unwrap_or_default().trim();
        fenced ^= text.starts_with("```");
        if fenced || text.is_empty() {
            at_start = true;
            continue;
        }
        let opens_block = text.starts_with(['#', '-', '*', '>']);
        let (found, ends) = openings(text, at_start || opens_block);
        problems.extend(found.map(|word| TidyProblem::at(file, number, format!("a sentence opens with {word}"))));
        at_start = ends || text.starts_with('#');
    }
    problems
}

/// The first banned opening of a line, and whether the line ends a sentence.
fn openings(text: &str, mut at_start: bool) -> (Option<&'static str>, bool) {
    let mut found = None;
    for word in text.split_whitespace() {
        let word = word.trim_matches(['*', '_', '(', ')', '"', '[', ']']);
        let letters = word.split(|char: char| !char.is_alphabetic()).next().unwrap_or_default();
        if at_start && found.is_none() {
            found = BANNED.iter().find(|banned| **banned == letters).copied();
        }
        let is_mark = !word.contains(char::is_alphabetic) && (at_start || word.is_empty());
        at_start = is_mark || word.ends_with(['.', '!', '?', ':']);
    }
    (found, at_start)
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
    use super::*;
    use crate::tidy::{file, shown};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&[file(path, text)]).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn openings_of_comments_are_found() {
        let found = shown(&check(&[file("tests/a.rs", "//! Who may read.\n\n/// Reads. What it reads is a row.\n")]));
        assert_eq!(found, ["tests/a.rs:1: a sentence opens with Who", "tests/a.rs:3: a sentence opens with What"]);
        assert_eq!(lines("tests/a.rs", "let a = 1; // Nobody waits.\n// - **Whatever** is left.\n"), [1, 2]);
        assert_eq!(lines("tests/a.rs", "/// One ends.\n/// Somebody begins.\n"), [2]);
    }

    #[test]
    fn the_inside_of_a_sentence_is_free() {
        assert_eq!(lines("tests/a.rs", "/// The reader of\n/// What and Who.\n/// Whose row?\n"), [0; 0]);
        assert_eq!(lines("tests/a.rs", "let a = \"What\";\nlet b = \"a // What\";\n"), [0; 0]);
        assert_eq!(lines("tests/a.rs", "/// ```text\n/// What\n/// ```\n"), [0; 0]);
    }

    #[test]
    fn headings_and_paragraphs_of_documents_are_read() {
        assert_eq!(lines("docs/a.md", "# What it is\n\nIt is.\nWho knows.\n\n| What |\n1. Nobody\n"), [1, 4, 7]);
        assert_eq!(lines("README.md", "Nobody\n"), [1]);
        assert_eq!(lines("docs/decisions/a.md", "What\n"), [0; 0]);
        assert_eq!(lines("CHANGELOG.md", "What\n"), [0; 0]);
    }
}
