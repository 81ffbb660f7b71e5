//! Files of a crate import in one direction, except in groups that are listed and may only shrink.
//!
//! An edge of the graph is a path that begins with `crate::` or `super::`, in an import or in code; it leads to the file of
//! the deepest module that the path names. A group is a set of files each of which reaches every other.

use std::collections::{BTreeMap, BTreeSet};

use super::openings::comment;
use super::{SourceFile, TidyProblem};

/// The size of the largest group of a crate; a crate that is not listed has none.
const LARGEST: &[(&str, usize)] = &[
    ("benches", 2),
    ("crates/api-s3", 2),
    ("crates/gateway", 2),
    ("crates/model", 4),
    ("crates/store-local", 3),
    ("crates/testkit", 2),
    ("crates/transfer", 2),
];

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        if let Some((folder, _)) = file.path.split_once("/src/") {
            crates.entry(folder).or_default().push(file);
        }
    }
    crates.iter().flat_map(|(folder, files)| in_crate(folder, files)).collect()
}

fn in_crate(folder: &str, files: &[&SourceFile]) -> Vec<TidyProblem> {
    let largest = LARGEST.iter().find(|(listed, _)| *listed == folder).map_or(1, |(_, largest)| *largest);
    let groups = groups(&imports(files));
    let too_large = groups.into_iter().filter(|group| group.len() > largest);
    too_large
        .filter_map(|group| {
            let names: Vec<&str> = group.iter().map(|file| short(&files[*file].path)).collect();
            let what = format!("{} files import each other, at most {largest} may: {}", names.len(), names.join(" "));
            Some(TidyProblem::at(files[*group.first()?], 1, what))
        })
        .collect()
}

fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, name)| name)
}

/// The files that each file imports, by index.
fn imports(files: &[&SourceFile]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeMap<Vec<&str>, usize> =
        files.iter().enumerate().rev().map(|(file, source)| (module(&source.path), file)).collect();
    let of_file = |(number, file): (usize, &&SourceFile)| {
        let own = module(&file.path);
        let code: String = file.code().map(|(_, line)| comment(line).map_or(line, |(code, _)| code)).collect();
        let targets = paths(&code).into_iter().filter_map(|path| resolve(&own, &path, &modules));
        targets.filter(|target| *target != number).collect()
    };
    files.iter().enumerate().map(of_file).collect()
}

/// The module of a file: `src/a/mod.rs` and `src/a.rs` are `a`, `src/lib.rs` and `src/main.rs` are the root.
fn module(path: &str) -> Vec<&str> {
    let name = short(path).trim_end_matches(".rs");
    let name = if name == "lib" || name == "main" { "" } else { name.strip_suffix("/mod").unwrap_or(name) };
    name.split('/').filter(|part| !part.is_empty()).collect()
}

/// The file of the deepest module that a path names.
fn resolve(own: &[&str], path: &[String], modules: &BTreeMap<Vec<&str>, usize>) -> Option<usize> {
    let mut at = own.to_vec();
    let mut target = None;
    for segment in path {
        match segment.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            _ => at.push(segment),
        }
        match modules.get(&at) {
            Some(file) => target = Some(*file),
            None => break,
        }
    }
    target
}

/// The paths of some code that begin with `crate::` or `super::`, with the branches of their use trees.
fn paths(code: &str) -> Vec<Vec<String>> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|root| code.match_indices(root));
    let own = |start: &usize| {
        !code[..*start].ends_with(|char: char| char.is_alphanumeric() || char == '_' || char == ':' || char == '$')
    };
    let mut paths = Vec::new();
    for start in starts.map(|(start, _)| start).filter(own) {
        tree(&code[start..], &mut Vec::new(), &mut paths);
    }
    paths
}

/// Reads a path or a use tree below `prefix` and returns the code after it.
fn tree<'a>(code: &'a str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'a str {
    let depth = prefix.len();
    let mut rest = code.trim_start();
    loop {
        let end = rest.find(|char: char| !(char.is_alphanumeric() || char == '_')).unwrap_or(rest.len());
        let (segment, after) = rest.split_at(end);
        if !segment.is_empty() {
            prefix.push(segment.to_owned());
        }
        match after.strip_prefix("::").map(str::trim_start) {
            Some(next) if !segment.is_empty() => rest = next,
            _ => {
                rest = after;
                break;
            }
        }
    }
    match rest.strip_prefix('{') {
        // A brace after `::` opens the branches of a use tree; one after a name opens a block of code.
        Some(branches) if code[..code.len() - rest.len()].trim_end().ends_with("::") => {
            rest = branches;
            while !rest.is_empty() && !rest.starts_with('}') {
                let after = tree(rest, prefix, paths);
                let next = after.find([',', '}']).unwrap_or(after.len());
                rest = after[next..].strip_prefix(',').unwrap_or(&after[next..]).trim_start();
            }
            rest = rest.strip_prefix('}').unwrap_or(rest);
        }
        _ => paths.push(prefix.clone()),
    }
    prefix.truncate(depth);
    rest
}

/// The groups of more than one file, each file of which reaches every other.
fn groups(imports: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..imports.len()).map(|file| reach(file, imports)).collect();
    let group = |file: usize| -> BTreeSet<usize> {
        reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect()
    };
    let groups: BTreeSet<BTreeSet<usize>> = (0..imports.len()).map(group).filter(|group| group.len() > 1).collect();
    groups.into_iter().collect()
}

/// The files that a file imports, and those that these import, and so on.
fn reach(file: usize, imports: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![file];
    while let Some(file) = next.pop() {
        next.extend(imports[file].iter().copied().filter(|target| reached.insert(*target)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn files_that_import_each_other_are_found() {
        let files = [
            file("crates/a/src/lib.rs", "mod b;\nmod c;\nmod d;\n"),
            file("crates/a/src/b/mod.rs", "use crate::c::{C, inner::{self, I}};\n"),
            file("crates/a/src/b/x.rs", "use super::B;\nfn x() { crate::d::d() }\n"),
            file("crates/a/src/c.rs", "fn c() -> u8 {\n    // super::d is elsewhere.\n    super::b::x::x()\n}\n"),
            file("crates/a/src/d.rs", "#[cfg(test)]\nmod tests {\n    use crate::b::x::X;\n}\n"),
        ];
        let expected = ["crates/a/src/b/mod.rs:1: 3 files import each other, at most 1 may: b/mod.rs b/x.rs c.rs"];
        assert_eq!(shown(&check(&files)), expected);
    }

    #[test]
    fn imports_in_one_direction_pass() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct A;\nmod b;\n"),
            file("crates/a/src/b.rs", "use crate::A;\nuse other::b::B;\npub(crate) struct B(pub(super) A);\n"),
        ];
        assert_eq!(shown(&check(&files)), [""; 0]);
    }

    #[test]
    fn use_trees_are_read_to_their_leaves() {
        let read =
            paths("use crate::a::{b::{C, D as E}, f, *};use super::g;fn h() { match super::I { J => $crate::k } }");
        let read: Vec<String> = read.iter().map(|path| path.join("::")).collect();
        let expected = ["crate::a::b::C", "crate::a::b::D", "crate::a::f", "crate::a", "super::g", "super::I"];
        assert_eq!(read, expected);
    }
}
