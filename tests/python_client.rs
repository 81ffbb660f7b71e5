//! The Python client `riak`, unmodified, over HTTP and over protocol buffers.
//!
//! `LARDER_PYTHON` names the interpreter of an environment with the client (`cargo xtask test` makes one). Without it the test
//! prints that it is skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads the path of Python from the environment"
)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use larder_tests::{LarderNode, Process, figure};

/// Runs one script of `tests/python` over both protocols, each against a server of its own.
#[track_caller]
fn check(script: &str) {
    for protocol in ["http", "pbc"] {
        check_over(protocol, script);
    }
}

#[track_caller]
fn check_over(protocol: &str, script: &str) {
    let Some(python) = std::env::var_os("LARDER_PYTHON") else {
        figure("python client", "skipped: LARDER_PYTHON names no interpreter");
        return;
    };
    let node = LarderNode::start(&["--durability", "buffered", "--pb", "127.0.0.1:0"]);
    node.admin().active_type("many", r#"{"props":{"n_val":1}}"#);
    node.admin().active_type("single", r#"{"props":{"allow_mult":false}}"#);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut command = Command::new(python);
    command
        .arg("-W")
        .arg("ignore::DeprecationWarning")
        .arg(here.join(script))
        .env("PYTHONPATH", here.join("shim"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
        .env("LARDER_PROTOCOL", protocol)
        .env("LARDER_HTTP_PORT", node.http().port().to_string())
        .env("LARDER_PB_PORT", node.pb().port().to_string());
    let ended = Process::start(&mut command).wait_for_end(Duration::from_secs(60));
    assert_eq!(
        ended.code,
        Some(0),
        "{script} over {protocol}\n{}\n{}\nserver: {}",
        ended.stdout,
        ended.stderr,
        node.log()
    );
}

#[test]
fn it_stores_reads_and_deletes_objects() {
    check("objects.py");
}

#[test]
fn it_sees_and_resolves_siblings() {
    check("siblings.py");
}

#[test]
fn it_reads_sets_and_clears_properties() {
    check("props.py");
}

#[test]
fn it_lists_keys_and_buckets() {
    check("listing.py");
}
