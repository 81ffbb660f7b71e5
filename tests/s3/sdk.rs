//! The S3 SDK for JavaScript, unmodified.

use std::path::Path;

use super::clients::run;
use crate::harness::{LarderNode, S3_KEY, S3_SECRET, client_place};

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
    assert_eq!(output.matches("ok   ").count(), 2, "{output}");
}
