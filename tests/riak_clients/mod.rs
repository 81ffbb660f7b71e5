//! Published clients of Riak, unmodified: the scripts of `tests/python`, `tests/node` and `tests/java`, each against a
//! server of its own. `cargo xtask test` installs the clients and passes their places; the tests of a client that is not
//! installed print that they are skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads the places of the clients from the environment"
)]

pub(crate) mod java;
mod node;
mod python;
mod secured;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{LarderNode, Process, TestEngine};

/// The longest time of one script.
const TIME: Duration = Duration::from_secs(120);

/// A folder of scripts.
fn scripts(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(language)
}

/// A type for each data type.
const DATATYPES: [(&str, &str); 5] =
    [("counters", "counter"), ("sets", "set"), ("gsets", "gset"), ("maps", "map"), ("hlls", "hll")];

/// Runs a script, which must succeed, against a server with types for objects and data types: `sleeping` is not active. Over a
/// cluster a script of data types has two gateways.
#[track_caller]
fn check(script: &str, command: &mut Command) {
    let of_datatypes = script.to_lowercase().starts_with("datatypes");
    let args = ["--durability", "buffered", "--pb", "127.0.0.1:0", "--object-size-max", "16MiB"];
    let node = LarderNode::start(&args);
    let admin = node.admin();
    admin.active_type("many", r#"{"props":{"n_val":1}}"#);
    admin.active_type("single", r#"{"props":{"allow_mult":false}}"#);
    for (name, datatype) in DATATYPES {
        admin.active_type(name, &format!(r#"{{"props":{{"datatype":"{datatype}"}}}}"#));
    }
    admin.check(&["bucket-type", "create", "sleeping"], "sleeping created\n");
    command.env("LARDER_HTTP_PORT", node.http().port().to_string());
    let other = (of_datatypes && TestEngine::current() != TestEngine::Local).then(|| node.beside(&args));
    if let Some(other) = &other {
        command.env("LARDER_OTHER_HTTP_PORT", other.http().port().to_string());
        command.env("LARDER_OTHER_PB_PORT", other.pb().port().to_string());
    }
    check_over(&node, script, command);
}

#[track_caller]
fn check_over(node: &LarderNode, script: &str, command: &mut Command) {
    command.current_dir(node.home().path()).env("LARDER_PB_PORT", node.pb().port().to_string());
    let ended = Process::start(command).wait_for_end(TIME);
    let output = format!("{script}\n{}\n{}\nserver: {}", ended.stdout, ended.stderr, node.log());
    assert_eq!(ended.code, Some(0), "{output}");
    // A script that ran no test shows nothing.
    assert!(ended.stdout.lines().any(|line| line.starts_with("ok ")), "no test ran: {output}");
}
