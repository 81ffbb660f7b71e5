//! Checks the files in `packaging/` against the table: a renamed setting must not break an installation.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::cli::{Invocation, command, read};
use super::{EngineKind, Listener, ServerSettings};

/// The path of the settings file in `larder.service`.
const INSTALLED: &str = "/etc/larder/larder.toml";

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(packaging(name)).unwrap()
}

/// The settings of a server started with these arguments and the shipped settings file.
fn settings(words: impl IntoIterator<Item = String>) -> ServerSettings {
    let words = std::iter::once("larder".to_owned()).chain(words).map(OsString::from);
    let file = |path: &Path| {
        assert_eq!(path, Path::new(INSTALLED));
        fs::read_to_string(packaging("larder.toml"))
    };
    match read(words, &[], file) {
        Ok(Invocation::Serve(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_shipped_settings_file_is_valid() {
    let loaded = settings(["--config".to_owned(), INSTALLED.to_owned()]);
    assert_eq!(loaded.engine, EngineKind::Cassandra);
    assert_eq!(loaded.cassandra.unwrap().nodes.len(), 3);
    assert_eq!(loaded.http, Listener::At("0.0.0.0:8098".to_owned()));
}

#[test]
fn the_service_starts_with_existing_settings() {
    let service = text("larder.service");
    let start = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let loaded = settings(start.split_whitespace().skip(1).map(str::to_owned));
    assert_eq!((loaded.engine, loaded.data_dir.as_path()), (EngineKind::Cassandra, Path::new("/var/lib/larder")));
}

#[test]
fn the_gateways_of_compose_start_with_existing_settings() {
    let compose = text("compose.yaml");
    let commands: Vec<Vec<String>> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("command: "))
        .map(|words| serde_json::from_str(words).unwrap())
        .collect();
    let names: BTreeSet<_> = commands.into_iter().map(|words| settings(words).node_name.unwrap()).collect();
    assert_eq!(names.len(), 2, "two gateways, each with a name of its own: {names:?}");
}

#[test]
fn each_example_in_the_settings_file_of_the_package_is_valid() {
    let examples = text("deb/larder.toml");
    let examples: Vec<&str> =
        examples.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" = ").map(|_| &line[1..])).collect();
    let words = ["larder", "--config", INSTALLED].map(OsString::from);
    match read(words, &[], |_| Ok(examples.join("\n"))) {
        Ok(Invocation::Serve(loaded)) => assert_eq!((examples.len(), loaded.cassandra.unwrap().nodes.len()), (6, 3)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_flag_in_the_packaging_exists() {
    let command = command();
    let settings = command.find_subcommand("settings").unwrap();
    let flags: BTreeSet<_> =
        command.get_arguments().chain(settings.get_arguments()).filter_map(clap::Arg::get_long).collect();
    let mut seen = 0;
    for name in ["compose.yaml", "larder.service", "larder.toml", "deb/larder.toml"] {
        let text = text(name);
        for word in text.split(|letter: char| letter.is_whitespace() || "\"`[](),=".contains(letter)) {
            let Some(flag) = word.strip_prefix("--") else { continue };
            assert!(flags.contains(flag), "{name}: --{flag}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}
