//! The allowed dependencies between our crates.

use toml::{Table, Value};

use super::{SourceFile, TidyProblem};

/// A crate and the crates that it may use; dev-dependencies are free. No list has the testkit: it is a dev-dependency only.
const ALLOWED: &[(&str, &[&str])] = &[
    ("rows", &[]),
    ("store", &["rows"]),
    ("testkit", &["store", "rows"]),
    ("store-local", &["store", "rows"]),
    ("store-cassandra", &["store", "rows"]),
    ("admission", &[]),
    ("encryption", &["store", "rows"]),
    ("core", &["admission", "store", "rows"]),
    ("kv", &["core", "admission", "store", "rows"]),
    ("mapreduce", &["kv", "core", "rows"]),
    ("moving", &["api-s3", "s3", "s3-rules", "kv", "core", "store", "rows"]),
    ("s3-rules", &["encryption", "rows"]),
    ("s3", &["s3-rules", "core", "encryption", "store", "rows"]),
    ("transfer", &["s3-rules", "core", "store", "rows"]),
    ("script", &["admission", "core", "rows", "store"]),
    ("net", &["admission", "store", "rows"]),
    ("api-riak", &["admission", "mapreduce", "kv", "core", "rows", "net"]),
    ("api-s3", &["admission", "s3", "s3-rules", "core", "encryption", "rows", "net"]),
    ("console", &["admission", "moving", "kv", "s3", "s3-rules", "core", "rows", "net"]),
    (
        "server",
        &[
            "api-riak",
            "api-s3",
            "console",
            "admission",
            "net",
            "mapreduce",
            "moving",
            "kv",
            "s3",
            "s3-rules",
            "core",
            "encryption",
            "script",
            "transfer",
            "store",
            "store-local",
            "store-cassandra",
            "rows",
            "kv-admin",
        ],
    ),
    ("kv-admin", &[]),
];

/// The prefix of our crates' names.
const PREFIX: &str = "larder-";

pub(super) fn check(files: &[SourceFile]) -> Vec<TidyProblem> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests
        .flat_map(|file| match file.text.parse::<Table>() {
            Ok(manifest) => [lints(file, &manifest), directions(file, &manifest)].concat(),
            Err(error) => vec![TidyProblem::at(file, 1, format!("not TOML: {}", error.message()))],
        })
        .collect()
}

fn lints(file: &SourceFile, manifest: &Table) -> Vec<TidyProblem> {
    let inherited = manifest.get("lints").and_then(|lints| lints.get("workspace")) == Some(&Value::Boolean(true));
    if inherited { Vec::new() } else { vec![TidyProblem::at(file, 1, "has no `[lints] workspace = true`")] }
}

fn directions(file: &SourceFile, manifest: &Table) -> Vec<TidyProblem> {
    let Some(name) = file.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml")) else {
        return Vec::new();
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(from, _)| *from == name) else {
        return vec![TidyProblem::at(file, 1, format!("crate {name} is not in the table of allowed dependencies"))];
    };
    let used = ours(manifest);
    let forbidden = used.iter().filter(|to| !allowed.contains(&to.as_str()));
    forbidden.map(|to| TidyProblem::at(file, line_of(file, to), format!("{name} must not use {to}"))).collect()
}

/// Our crates among the dependencies and build dependencies of a crate.
fn ours(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|table| table.values());
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let names = tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)));
    let names = names.flatten().filter_map(Value::as_table).flat_map(Table::keys);
    names.filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect()
}

fn line_of(file: &SourceFile, to: &str) -> usize {
    let name = format!("{PREFIX}{to} ");
    file.lines().find(|(_, line)| line.starts_with(&name)).map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    fn manifest(name: &str, rest: &str) -> Vec<String> {
        shown(&check(&[file(&format!("crates/{name}/Cargo.toml"), &format!("[lints]\nworkspace = true\n{rest}"))]))
    }

    #[test]
    fn allowed_dependencies_pass_and_others_are_named() {
        assert_eq!(manifest("core", "[dependencies]\nlarder-store = { workspace = true }\n"), [""; 0]);
        let wrong = manifest("kv-admin", "[dependencies]\nclap = \"4\"\nlarder-rows = { workspace = true }\n");
        assert_eq!(wrong, ["crates/kv-admin/Cargo.toml:5: kv-admin must not use rows"]);
        let upward = manifest("rows", "[build-dependencies]\nlarder-core = \"1\"\n");
        assert_eq!(upward, ["crates/rows/Cargo.toml:4: rows must not use core"]);
        let hidden = manifest("store", "[target.'cfg(unix)'.dependencies]\nlarder-core = \"1\"\n");
        assert_eq!(hidden, ["crates/store/Cargo.toml:4: store must not use core"]);
        for (from, to) in [("s3", "kv"), ("kv", "s3"), ("store-local", "core")] {
            let sideways = manifest(from, &format!("[dependencies]\nlarder-{to} = \"1\"\n"));
            assert_eq!(sideways, [format!("crates/{from}/Cargo.toml:4: {from} must not use {to}")]);
        }
    }

    #[test]
    fn dev_dependencies_are_free() {
        assert_eq!(manifest("api-riak", "[dev-dependencies]\nlarder-store = { workspace = true }\n"), [""; 0]);
    }

    #[test]
    fn the_testkit_is_a_dev_dependency_only() {
        for (name, _) in ALLOWED {
            let of_tests = manifest(name, "[dev-dependencies]\nlarder-testkit = { workspace = true }\n");
            assert_eq!(of_tests, [""; 0]);
            let of_product = manifest(name, "[dependencies]\nlarder-testkit = { workspace = true }\n");
            assert_eq!(of_product, [format!("crates/{name}/Cargo.toml:4: {name} must not use testkit")]);
        }
    }

    #[test]
    fn a_new_crate_must_be_entered() {
        let new = manifest("novelty", "");
        assert_eq!(new, ["crates/novelty/Cargo.toml:1: crate novelty is not in the table of allowed dependencies"]);
    }

    #[test]
    fn every_crate_takes_the_workspaces_lints() {
        let without = shown(&check(&[file("tests/Cargo.toml", "[package]\nname = \"x\"\n")]));
        assert_eq!(without, ["tests/Cargo.toml:1: has no `[lints] workspace = true`"]);
    }
}
