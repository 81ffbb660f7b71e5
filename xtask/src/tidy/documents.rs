//! Documents match the repository: the changelog has a place for the next release, commands and links exist.

use super::{SourceFile, TidyProblem};

/// Cargo's own subcommands that our documents may use.
const CARGO: &[&str] = &["build", "run", "test", "clippy", "fmt", "doc", "install", "deny", "nextest"];
/// Documents whose commands a reader types.
const GUIDES: &[&str] = &["README.md", "CONTRIBUTING.md"];

pub(super) fn check(files: &[SourceFile], tasks: &[String]) -> Vec<TidyProblem> {
    let named = |path: &str| files.iter().find(|file| file.path == path);
    let mut problems = Vec::new();
    match named("CHANGELOG.md") {
        Some(file) if file.text.lines().any(is_unreleased) => {}
        Some(file) => problems.push(TidyProblem::at(file, 1, "has no section `## Unreleased`")),
        None => problems.push(TidyProblem::missing("CHANGELOG.md", "is missing")),
    }
    let known = KnownCommands {
        tasks,
        aliases: named(".cargo/config.toml").map_or("", |file| &file.text),
        admin: named("crates/kv-admin/src/help.txt").map_or("", |file| &file.text),
    };
    for path in GUIDES {
        match named(path) {
            Some(file) => problems.extend(commands(file, &known)),
            None => problems.push(TidyProblem::missing(path, "is missing")),
        }
    }
    problems.extend(named("docs/invariants.md").into_iter().flat_map(repeated_numbers));
    problems.extend(files.iter().filter(|file| file.path.ends_with(".md")).flat_map(|file| links(file, files)));
    problems
}

fn is_unreleased(line: &str) -> bool {
    line == "## Unreleased" || line == "## [Unreleased]"
}

/// The commands that exist.
struct KnownCommands<'a> {
    tasks: &'a [String],
    aliases: &'a str,
    admin: &'a str,
}

impl KnownCommands<'_> {
    /// The problem of a line that is typed in a shell.
    fn problem(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().skip_while(|word| *word == "$").collect();
        let alias = |word: &str| self.aliases.lines().any(|line| line.starts_with(&format!("{word} =")));
        match words.as_slice() {
            ["cargo", "xtask", task, ..] if !self.tasks.iter().any(|known| known == task) => {
                Some(format!("cargo xtask {task}: no such task"))
            }
            ["cargo", word, ..] if !CARGO.contains(word) && !alias(word) => {
                Some(format!("cargo {word}: no such alias"))
            }
            ["cargo", "kv-admin", rest @ ..] => self.admin_problem(rest),
            [program, rest @ ..] if program.ends_with("kv-admin") => self.admin_problem(rest),
            _ => None,
        }
    }

    fn admin_problem(&self, words: &[&str]) -> Option<String> {
        let word = words.iter().find(|word| !word.starts_with('-') && !word.contains('/'))?;
        let known = self.admin.split(|char: char| !(char.is_alphanumeric() || char == '-')).any(|known| known == *word);
        (!known && !self.admin.is_empty()).then(|| format!("kv-admin {word}: no such command"))
    }
}

/// Commands in the fenced blocks of a guide that do not exist.
fn commands(file: &SourceFile, known: &KnownCommands<'_>) -> Vec<TidyProblem> {
    let mut fenced = false;
    let mut problems = Vec::new();
    for (number, line) in file.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced && let Some(what) = known.problem(line) {
            problems.push(TidyProblem::at(file, number, what));
        }
    }
    problems
}

/// Rows of the tables of invariants whose number stands above already: comments name an invariant by it.
fn repeated_numbers(file: &SourceFile) -> Vec<TidyProblem> {
    let number = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse::<u32>().ok();
    let rows = file.lines().filter_map(|(at, line)| Some((at, number(line)?)));
    let mut seen = std::collections::BTreeSet::new();
    let repeated = rows.filter(|(_, number)| !seen.insert(*number));
    repeated.map(|(at, number)| TidyProblem::at(file, at, format!("invariant {number} stands above already"))).collect()
}

/// Links to files that the repository does not hold.
fn links(file: &SourceFile, files: &[SourceFile]) -> Vec<TidyProblem> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let broken = |target: &str| {
        let path = target.split('#').next().unwrap_or_default();
        let local = !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:");
        let path = join(folder, path);
        local && !files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")))
    };
    let targets = |line: &str| -> Vec<String> {
        line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    };
    let numbered =
        file.lines().flat_map(|(number, line)| targets(line).into_iter().map(move |target| (number, target)));
    let bad = numbered.filter(|(_, target)| broken(target));
    bad.map(|(number, target)| TidyProblem::at(file, number, format!("{target}: no such file"))).collect()
}

/// A path relative to a folder, without `.` and `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    fn repository(readme: &str) -> Vec<String> {
        let files = [
            file("CHANGELOG.md", "# Changelog\n\n## Unreleased\n"),
            file("CONTRIBUTING.md", ""),
            file(".cargo/config.toml", "[alias]\nxtask = \"run\"\nkv-admin = \"run\"\n"),
            file("crates/kv-admin/src/help.txt", "kv-admin bucket-type list\nkv-admin ping\n"),
            file("docs/format.md", "[up](../README.md#top)\n"),
            file("README.md", readme),
        ];
        shown(&check(&files, &["test".to_owned()]))
    }

    #[test]
    fn commands_of_the_readme_exist() {
        let good =
            "```sh\ncargo run --release\n$ cargo xtask test --only fmt\ncargo kv-admin -- bucket-type list\n```\n";
        assert_eq!(repository(good), [""; 0]);
        let bad = "cargo nonsense is prose\n```sh\ncargo xtask fly\ncargo fly\nkv-admin fly\n```\n";
        let expected = [
            "README.md:3: cargo xtask fly: no such task",
            "README.md:4: cargo fly: no such alias",
            "README.md:5: kv-admin fly: no such command",
        ];
        assert_eq!(repository(bad), expected);
    }

    #[test]
    fn targets_of_links_exist() {
        assert_eq!(repository("[a](docs/format.md) [b](https://example.net/x) [c](docs/)\n"), [""; 0]);
        assert_eq!(repository("[a](docs/none.md)\n"), ["README.md:1: docs/none.md: no such file"]);
    }

    #[test]
    fn two_invariants_once_had_one_number() {
        let table = "| Id | Race |\n|---|---|\n| 7 | a |\n| 8 | b |\n\n| 7 | c |\n";
        let problems = shown(&repeated_numbers(&file("docs/invariants.md", table)));
        assert_eq!(problems, ["docs/invariants.md:6: invariant 7 stands above already"]);
    }

    #[test]
    fn the_changelog_has_a_place_for_the_next_release() {
        let files = [file("CHANGELOG.md", "# Changelog\n"), file("README.md", ""), file("CONTRIBUTING.md", "")];
        assert_eq!(shown(&check(&files, &[])), ["CHANGELOG.md:1: has no section `## Unreleased`"]);
        assert_eq!(check(&[], &[]).len(), 3);
    }
}
