//! The S3 SDKs for JavaScript and for Java, unmodified.

use std::path::Path;

use super::clients::run;
use crate::harness::{LarderNode, S3_KEY, S3_SECRET, client_place};
use crate::riak_clients::java;

#[test]
fn objects_and_parts_of_the_javascript_sdk_are_stored() {
    let Some(packages) = client_place("LARDER_NODE_CLIENT", "S3 SDK for JavaScript") else { return };
    let node = LarderNode::s3(&["--durability", "buffered"]);
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
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let port = node.s3_at().port().to_string();
    let environment = [("LARDER_S3_PORT", port.as_str()), ("LARDER_S3_KEY", S3_KEY), ("LARDER_S3_SECRET", S3_SECRET)];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(&node, Path::new("java"), &arguments, &environment);
    assert_eq!(output.matches("ok   ").count(), 3, "{output}");
}
