//! Files of a crate import in one direction, except in groups that are listed and may only shrink.
//!
//! An edge of the graph is a path in an import or in code that begins with `crate::`, `super::` or a child module; it leads to the file
//! that defines what is named, through re-exports. A re-export is an edge only where its file uses the name itself. A group is a
//! set of files each of which reaches every other.

use std::collections::{BTreeMap, BTreeSet};

use super::source::comment;
use super::{SourceFile, TidyProblem};

/// The size of the largest group of a crate; a crate that is not listed has none. A size may only become smaller.
const LARGEST: &[(&str, usize)] = &[
    ("benches", 2),
    ("crates/api-s3", 3),
    ("crates/core", 4),
    ("crates/net", 2),
    ("crates/kv", 6),
    ("crates/mapreduce", 2),
    ("crates/s3", 5),
    ("crates/s3-rules", 5),
    ("crates/script", 3),
    ("crates/server", 5),
    ("crates/store", 2),
    ("crates/store-cassandra", 4),
    ("crates/store-local", 6),
    ("crates/testkit", 3),
    ("crates/transfer", 2),
    ("xtask", 6),
];

/// Longest chain of re-exports that is followed.
const REEXPORTS_MAX: usize = 8;

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
    let listed = LARGEST.iter().find(|(listed, _)| *listed == folder).map(|(_, largest)| *largest);
    let most = listed.unwrap_or(1);
    let groups = groups(&imports(files));
    let largest = groups.iter().map(BTreeSet::len).max().unwrap_or(1);
    let shrunk = listed.filter(|listed| *listed > largest).zip(files.first()).map(|(listed, file)| {
        TidyProblem::at(
            file,
            1,
            format!("the largest group of {folder} has {largest} files: lower {listed} in LARGEST"),
        )
    });
    let too_large = groups.into_iter().filter(|group| group.len() > most).filter_map(|group| {
        let names: Vec<&str> = group.iter().map(|file| short(&files[*file].path)).collect();
        let what = format!("{} files import each other, at most {most} may: {}", names.len(), names.join(" "));
        Some(TidyProblem::at(files[*group.first()?], 1, what))
    });
    too_large.chain(shrunk).collect()
}

fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, name)| name)
}

/// A file as a module: what it declares and re-exports.
struct ModuleFacts<'a> {
    /// Its path in the crate.
    own: Vec<&'a str>,
    /// Its code without comments and re-exports.
    code: String,
    children: BTreeSet<String>,
    /// The names that it re-exports, `*` for all of a module, each with its path.
    reexports: Vec<(String, Vec<String>)>,
}

/// The files that each file imports, by index.
fn imports(files: &[&SourceFile]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeMap<Vec<&str>, usize> =
        files.iter().enumerate().rev().map(|(file, source)| (module(&source.path), file)).collect();
    let facts: Vec<ModuleFacts<'_>> = files.iter().map(|file| ModuleFacts::read(file)).collect();
    let of_file = |(number, facts_of): (usize, &ModuleFacts<'_>)| {
        let used = facts_of.reexports.iter().filter(|(name, _)| has_word(&facts_of.code, name));
        let paths = paths(&facts_of.code, &facts_of.children).into_iter().chain(used.map(|(_, path)| path.clone()));
        let targets = paths.filter_map(|path| resolve(number, &path, &modules, &facts, REEXPORTS_MAX));
        targets.filter(|target| *target != number).collect()
    };
    facts.iter().enumerate().map(of_file).collect()
}

impl<'a> ModuleFacts<'a> {
    fn read(file: &'a SourceFile) -> Self {
        let code: String =
            file.code().map(|(_, line)| comment(line).map_or(line, |(code, _)| code).to_owned() + "\n").collect();
        let (code, reexports) = without_reexports(&code);
        let children = code.lines().filter_map(|line| line.strip_suffix(';')?.split_once("mod ")).collect::<Vec<_>>();
        let children = children.into_iter().filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        let children = children.map(|(_, name)| name.to_owned()).collect();
        Self { own: module(&file.path), code, children, reexports }
    }
}

/// The code without its `pub use` statements, and the names and paths of those.
fn without_reexports(code: &str) -> (String, Vec<(String, Vec<String>)>) {
    let (mut kept, mut reexports, mut is_inside) = (String::new(), Vec::new(), false);
    let mut statement = String::new();
    for line in code.lines() {
        let begins =
            line.starts_with("pub") && line.split_once(" use ").is_some_and(|(before, _)| !before.contains('{'));
        if !begins && !is_inside {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        statement.push_str(line);
        is_inside = !line.ends_with(';');
        if !is_inside {
            let read = std::mem::take(&mut statement);
            let (_, path) = read.split_once(" use ").unwrap_or(("", &read));
            let mut paths = Vec::new();
            tree(path, &mut Vec::new(), &mut paths);
            reexports
                .extend(paths.into_iter().filter_map(|(path, alias)| Some((alias.or(path.last().cloned())?, path))));
        }
    }
    (kept, reexports)
}

fn has_word(code: &str, word: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part))
}

/// The module of a file: `src/a/mod.rs` and `src/a.rs` are `a`, `src/lib.rs` and `src/main.rs` are the root.
fn module(path: &str) -> Vec<&str> {
    let name = short(path).trim_end_matches(".rs");
    let name = if name == "lib" || name == "main" { "" } else { name.strip_suffix("/mod").unwrap_or(name) };
    name.split('/').filter(|part| !part.is_empty()).collect()
}

/// The file that defines what a path of a file names: that of the deepest module, or the one from which that re-exports it.
fn resolve(
    from: usize,
    path: &[String],
    modules: &BTreeMap<Vec<&str>, usize>,
    facts: &[ModuleFacts<'_>],
    reexports_max: usize,
) -> Option<usize> {
    let mut at: Vec<&str> = facts[from].own.clone();
    let mut target = None;
    for segment in path {
        match segment.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            name => at.push(name),
        }
        match (modules.get(&at), target) {
            (Some(file), _) => target = Some(*file),
            (None, None) => return None,
            (None, Some(file)) => {
                let reexports = facts[file].reexports.iter();
                let from_there =
                    |(_, path): &(String, Vec<String>)| resolve(file, path, modules, facts, reexports_max - 1);
                let exact =
                    reexports.clone().find(|(name, _)| name == segment && reexports_max > 0).and_then(from_there);
                return exact.or(target);
            }
        }
    }
    target
}

/// The paths of some code that begin with `crate::`, `super::` or a child, with the branches of their use trees.
fn paths(code: &str, children: &BTreeSet<String>) -> Vec<Vec<String>> {
    let roots = ["crate", "super"].into_iter().chain(children.iter().map(String::as_str));
    let mut paths = Vec::new();
    for root in roots {
        for (start, _) in code.match_indices(&format!("{root}::")) {
            let before = &code[..start];
            if before.ends_with(|char: char| char.is_alphanumeric() || matches!(char, '_' | ':' | '$')) {
                continue;
            }
            tree(&code[start..], &mut Vec::new(), &mut paths);
        }
    }
    paths.into_iter().map(|(path, _)| path).collect()
}

/// Reads a path or a use tree below `prefix` and returns the code after it.
fn tree<'a>(code: &'a str, prefix: &mut Vec<String>, paths: &mut Vec<(Vec<String>, Option<String>)>) -> &'a str {
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
        _ if rest.starts_with('*') => paths.push((prefix.clone(), Some("*".to_owned()))),
        _ => {
            let alias = rest.trim_start().strip_prefix("as ").map(str::trim_start);
            let end = |alias: &str| alias.find(|char: char| !(char.is_alphanumeric() || char == '_'));
            let alias = alias.map(|alias| alias[..end(alias).unwrap_or(alias.len())].to_owned());
            paths.push((prefix.clone(), alias));
        }
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
    fn children_and_re_exports_are_followed() {
        let files = [
            file("crates/a/src/lib.rs", "mod b;\nmod c;\n"),
            file(
                "crates/a/src/b/mod.rs",
                "mod x;\nmod y;\npub(crate) use x::{X, W as V};\nuse y::Y;\nfn b() -> Y { Y }\n",
            ),
            file("crates/a/src/b/x.rs", "use super::y::Y;\npub(crate) struct X;\n"),
            file("crates/a/src/b/y.rs", "use crate::c::C;\n"),
            file("crates/a/src/c.rs", "use crate::b::V;\n"),
        ];
        let expected = ["crates/a/src/b/x.rs:1: 3 files import each other, at most 1 may: b/x.rs b/y.rs c.rs"];
        assert_eq!(shown(&check(&files)), expected);
        let child = [
            file("crates/a/src/b/mod.rs", "mod x;\nfn b() { x::x() }\n"),
            file("crates/a/src/b/x.rs", "use super::b;\n"),
        ];
        assert_eq!(shown(&check(&child)).len(), 1);
    }

    #[test]
    fn a_group_that_shrank_may_not_grow_again() {
        let files = [file("crates/net/src/lib.rs", "mod a;\n")];
        let expected = ["crates/net/src/lib.rs:1: the largest group of crates/net has 1 files: lower 2 in LARGEST"];
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
        let read = paths(
            "use crate::a::{b::{C, D as E}, f, *};use super::g;fn h() { match super::I { J => $crate::k } }",
            &BTreeSet::new(),
        );
        let read: Vec<String> = read.iter().map(|path| path.join("::")).collect();
        let expected = ["crate::a::b::C", "crate::a::b::D", "crate::a::f", "crate::a", "super::g", "super::I"];
        assert_eq!(read, expected);
    }
}
