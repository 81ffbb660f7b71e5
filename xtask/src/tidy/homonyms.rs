//! A type name stands for one thing: it is defined in one file of the workspace.

use std::collections::BTreeMap;

use super::{SourceFile, TidyProblem};

/// Names that several files may define: Rust reads them with their module, as in `store::Error`.
const ALLOWED: &[&str] = &["Error", "Result", "Kind"];
/// The folders whose Rust files are compared.
const FOLDERS: &[&str] = &["crates/", "xtask/", "tests/", "benches/"];
/// The keywords that define a type name.
const KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    let ours = files.iter().filter(|file| file.is_rust() && FOLDERS.iter().any(|folder| file.path.starts_with(folder)));
    let mut owners: BTreeMap<&str, Vec<(&SourceFile, usize)>> = BTreeMap::new();
    for (file, number, name) in ours.flat_map(definitions) {
        let owners = owners.entry(name).or_default();
        if owners.iter().all(|(owner, _)| owner.path != file.path) {
            owners.push((file, number));
        }
    }
    let shared = owners.iter().filter(|(name, owners)| owners.len() > 1 && !ALLOWED.contains(name));
    shared.filter_map(|(name, owners)| problem(name, owners)).collect()
}

/// One problem for a name, at its first file.
fn problem(name: &str, owners: &[(&SourceFile, usize)]) -> Option<TidyProblem> {
    let ((first, number), others) = owners.split_first()?;
    let others: Vec<&str> = others.iter().map(|(file, _)| file.path.as_str()).collect();
    Some(TidyProblem::at(first, *number, format!("type {name} is also defined in {}", others.join(", "))))
}

/// The types that a file defines outside inline modules: their lines and names.
fn definitions(file: &SourceFile) -> impl Iterator<Item = (&SourceFile, usize, &str)> {
    file.lines().filter_map(move |(number, line)| Some((file, number, defined(line)?)))
}

/// The type name that a line defines; an indented line belongs to an inline module, a trait or an impl.
fn defined(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (keyword, rest) = item.split_once(' ')?;
    let end = rest.find(|char: char| !(char.is_alphanumeric() || char == '_')).unwrap_or(rest.len());
    let name = rest.get(..end)?;
    (KEYWORDS.contains(&keyword) && name.starts_with(char::is_uppercase)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn a_name_in_two_files_is_reported_once() {
        let files = [
            file("crates/a/src/a.rs", "/// A page.\npub(crate) struct Page<'a> {\n}\n"),
            file("xtask/src/b.rs", "enum Page {}\n"),
            file("tests/c.rs", "type Page = u8;\ntrait Other {}\n"),
        ];
        assert_eq!(
            shown(&check(&files)),
            ["crates/a/src/a.rs:2: type Page is also defined in xtask/src/b.rs, tests/c.rs"]
        );
    }

    #[test]
    fn conventional_names_and_inner_types_may_repeat() {
        let text = "pub enum Error {}\npub type Result<T> = std::result::Result<T, Error>;\n";
        assert_eq!(shown(&check(&[file("crates/a/src/a.rs", text), file("crates/b/src/a.rs", text)])), [""; 0]);
        let inner = "impl A for B {\n    type Page = u8;\n}\n";
        assert_eq!(shown(&check(&[file("crates/a/src/a.rs", inner), file("crates/b/src/a.rs", inner)])), [""; 0]);
        let twice = "#[cfg(unix)]\nstruct Page;\n#[cfg(not(unix))]\nstruct Page(u8);\n";
        assert_eq!(shown(&check(&[file("crates/a/src/a.rs", twice)])), [""; 0]);
    }
}
