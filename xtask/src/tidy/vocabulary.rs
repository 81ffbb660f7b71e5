//! Names and prose use the words of the field: a private word is reported with the word that replaces it.

use super::{SourceFile, TidyProblem};

/// Words of names and prose, and what to write instead. A word counts in `snake_case`, `CamelCase` and sentences, but not
/// alone in quotes or backticks: a table or a column keeps its stored name.
const WORDS: &[(&str, &str)] = &[
    ("told", "configured, advertised or answered"),
    ("knowing", "catalogue_for, or a verb: `that knows`"),
    ("doomed", "gc_mark"),
    ("halving", "range_bisect"),
    ("worn", "overwritten"),
    ("deed", "an action or an operation"),
    ("weather", "network_faults"),
    ("say_alive", "write_heartbeat"),
    ("say_gone", "delete_heartbeat"),
    ("turned_away", "overload_response"),
    ("step_down", "downgrade"),
    ("dead_until", "VersionVector::get"),
    ("keeps_tombstones", "tombstones_slow_reads"),
];
/// Ends of sentences that hide when something happens.
const ENDINGS: &[(&str, &str)] = &[("meanwhile.", "while, at the beginning")];
/// Files that may hold the words: this table, and the document that translates them.
const EXEMPT: &[&str] = &["xtask/src/tidy/vocabulary.rs", "docs/glossary.md"];

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    let prose = files.iter().filter(|file| file.is_rust() || file.path.ends_with(".md"));
    prose.filter(|file| !EXEMPT.contains(&file.path.as_str())).flat_map(in_file).collect()
}

fn in_file(file: &SourceFile) -> Vec<TidyProblem> {
    let lines = std::iter::once((1, file.path.as_str())).chain(file.lines());
    let found = lines.flat_map(|(number, line)| {
        let found = words(line).chain(endings(line)).chain(citations(line)).chain(numbered_tests(line));
        found.map(move |(word, instead)| (number, word, instead)).collect::<Vec<_>>()
    });
    found.map(|(number, word, instead)| TidyProblem::at(file, number, format!("`{word}`: write {instead}"))).collect()
}

/// A word of a line, and the text to write instead.
type BannedWord = (String, &'static str);

fn words(line: &str) -> impl Iterator<Item = BannedWord> {
    let snake = names(line).map(|name| format!("_{}_", snake_case(name)));
    snake.flat_map(|name| {
        let banned = WORDS.iter().filter(move |(word, _)| name.contains(word) && name.contains(&format!("_{word}_")));
        banned.map(|(word, instead)| ((*word).to_owned(), *instead))
    })
}

fn endings(line: &str) -> impl Iterator<Item = BannedWord> {
    ENDINGS.iter().filter(|(ending, _)| line.contains(ending)).map(|(ending, instead)| ((*ending).to_owned(), *instead))
}

/// References to a numbered list that is not in the repository.
fn citations(line: &str) -> impl Iterator<Item = BannedWord> {
    let words: Vec<&str> = line.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let cited: Vec<BannedWord> = words
        .windows(2)
        .filter(|pair| matches!(pair[0], "hole" | "holes" | "Hole" | "Holes") && is_number(pair[1]))
        .map(|pair| (pair.join(" "), "the race in one sentence, or `[invariant N]`"))
        .collect();
    cited.into_iter()
}

/// Tests that are named after a number of such a list.
fn numbered_tests(line: &str) -> impl Iterator<Item = BannedWord> {
    let numbered = |name: &&str| {
        let number = name.strip_prefix("row_").and_then(|rest| rest.split_once('_'));
        number.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    names(line).filter(numbered).map(|name| (name.to_owned(), "a name that says what goes wrong"))
}

/// The names and words of a line, without those that stand alone in quotes or backticks.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let mut end = 0;
    let parts = line.split(move |char: char| !is_part(char)).map(move |part| {
        let start = end;
        end = start + part.len() + 1;
        (start, part)
    });
    parts.filter(|(start, part)| !part.is_empty() && !is_quoted(line, *start, part.len())).map(|(_, part)| part)
}

fn is_quoted(line: &str, start: usize, length: usize) -> bool {
    let before = line.get(..start).and_then(|text| text.chars().next_back());
    let after = line.get(start + length..).and_then(|text| text.chars().next());
    before == after && matches!(before, Some('"' | '`'))
}

/// `CamelCase` and `snake_case` as words between underscores.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut last_is_lower = false;
    for char in name.chars() {
        if char.is_uppercase() && last_is_lower {
            snake.push('_');
        }
        last_is_lower = char.is_lowercase() || char.is_numeric();
        snake.extend(char.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    fn problems(text: &str) -> Vec<String> {
        shown(&check(&[file("crates/a/src/a.rs", text)]))
    }

    #[test]
    fn private_words_are_found_in_names_and_prose() {
        let expected = ["crates/a/src/a.rs:1: `worn`: write overwritten"];
        for text in
            ["struct WornKey;\n", "fn read_worn() {}\n", "// Worn keys are slow.\n", "const WORN_KEYS: u8 = 1;\n"]
        {
            assert_eq!(problems(text), expected, "{text}");
        }
        assert_eq!(problems("let sworn = 1; // sworn\n"), [""; 0]);
        assert_eq!(shown(&check(&[file("tests/worn.rs", "")])), ["tests/worn.rs:1: `worn`: write overwritten"]);
        assert_eq!(shown(&check(&[file("a.toml", "worn = 1\n")])), [""; 0]);
    }

    #[test]
    fn stored_names_are_kept() {
        assert_eq!(problems("let table = \"doomed\"; // the table `doomed`\n"), [""; 0]);
        assert_eq!(problems("let text = \"a doomed row\";\n").len(), 1);
    }

    #[test]
    fn lists_outside_the_repository_are_not_cited() {
        assert_eq!(
            problems("// Both count [hole 26].\n"),
            ["crates/a/src/a.rs:1: `hole 26`: write the race in one sentence, or `[invariant N]`"]
        );
        assert_eq!(problems("// Both count [invariant 26], a hole in 26 rows.\n"), [""; 0]);
        assert_eq!(
            problems("fn row_26_is_lost() {}\n"),
            ["crates/a/src/a.rs:1: `row_26_is_lost`: write a name that says what goes wrong"]
        );
        assert_eq!(problems("let (row_1, row_of_2) = (1, 2);\n"), [""; 0]);
    }

    #[test]
    fn a_sentence_does_not_end_with_meanwhile() {
        assert_eq!(problems("// A reader waits meanwhile.\n").len(), 1);
        assert_eq!(problems("// Meanwhile a reader waits.\n"), [""; 0]);
    }
}
