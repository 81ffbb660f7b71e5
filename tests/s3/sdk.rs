//! The S3 SDKs for JavaScript, for Java and for Go, unmodified.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::clients::run;
use crate::harness::{Home, LarderNode, S3_KEY, S3_SECRET, client_place};
use crate::riak_clients::java;

/// A server that encrypts over every engine: over a cluster it makes no master key of its own.
fn node_with_master_key(more: &[&str]) -> LarderNode {
    let home = Home::new();
    let ring = home.path().join("master-keys");
    fs::write(&ring, STANDARD.encode([7; 32]) + "\n").expect("a file can be written");
    let ring = ring.to_str().expect("a path in UTF-8");
    let args = ["--durability", "buffered", "--s3", "127.0.0.1:0", "--encryption-keys", ring];
    LarderNode::start_in(home, &[&args[..], more].concat())
}

#[test]
fn objects_and_parts_of_the_javascript_sdk_are_stored() {
    let Some(packages) = client_place("LARDER_NODE_CLIENT", "S3 SDK for JavaScript") else { return };
    let node = node_with_master_key(&[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/s3.js");
    let port = node.s3_at().port().to_string();
    let environment = [
        ("LARDER_S3_PORT", port.as_str()),
        ("LARDER_S3_KEY", S3_KEY),
        ("LARDER_S3_SECRET", S3_SECRET),
        ("NODE_PATH", packages.to_str().expect("a path of the working copy")),
    ];
    let script = script.to_str().expect("a path of this repository");
    let output = run(&node, Path::new("node"), &["--no-warnings", script], &environment);
    assert_eq!(output.matches("ok   ").count(), 3, "{output}");
}

#[test]
fn objects_parts_and_locks_of_the_java_sdk_are_stored() {
    let Some(arguments) = java::arguments("S3Test") else { return };
    let node = node_with_master_key(&[]);
    let port = node.s3_at().port().to_string();
    let environment = [("LARDER_S3_PORT", port.as_str()), ("LARDER_S3_KEY", S3_KEY), ("LARDER_S3_SECRET", S3_SECRET)];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(&node, Path::new("java"), &arguments, &environment);
    assert_eq!(output.matches("ok   ").count(), 3, "{output}");
}

#[test]
fn transfers_links_locks_and_errors_of_the_go_sdk_are_as_it_expects() {
    let Some(program) = client_place("LARDER_GO_CLIENT", "S3 SDK for Go") else { return };
    let node = node_with_master_key(&["--s3-ssec-plain"]);
    let port = node.s3_at().port().to_string();
    let environment = [("LARDER_S3_PORT", port.as_str()), ("LARDER_S3_KEY", S3_KEY), ("LARDER_S3_SECRET", S3_SECRET)];
    let output = run(&node, &program, &[], &environment);
    assert_eq!(output.matches("ok   ").count(), 9, "{output}");
}
