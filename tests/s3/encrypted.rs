//! Published S3 clients over HTTPS, unmodified, which trust the server's certificate alone.

use std::fs;
use std::path::Path;

use crate::harness::{LarderNode, S3_KEY, S3_SECRET, client_place};

use super::clients::{file, python_program, rclone_environment, run, same};

/// Bytes of an object that clients send in parts.
const LARGE: usize = 20 << 20;

/// A server with a certificate, and the path of that.
fn encrypted() -> (LarderNode, String) {
    let first = LarderNode::s3(&["--durability", "buffered"]);
    let directory = first.home().path().join("tls");
    first.admin().output(&["tls", "self-signed", directory.to_str().expect("a path in UTF-8")]);
    let path = |name: &str| directory.join(name).to_str().expect("a path in UTF-8").to_owned();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let listeners = ["--durability", "buffered", "--s3", "127.0.0.1:0", "--s3-https", "127.0.0.1:0"];
    let files = ["--tls-cert", &certificate, "--tls-key", &key];
    (LarderNode::start_in(first.into_home(), &[&listeners[..], &files].concat()), certificate)
}

#[test]
fn boto3_over_https() {
    let Some(python) = python_program("python") else { return };
    let (node, certificate) = encrypted();
    let port = node.s3_https().port().to_string();
    let environment = [
        ("LARDER_S3_PORT", port.as_str()),
        ("LARDER_S3_KEY", S3_KEY),
        ("LARDER_S3_SECRET", S3_SECRET),
        ("AWS_CA_BUNDLE", &certificate),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/s3/boto3_https.py");
    run(&node, &python, &[script.to_str().expect("a path of this repository")], &environment);
}

#[test]
fn aws_command_line_over_https() {
    let Some(aws) = python_program("aws") else { return };
    let (node, certificate) = encrypted();
    let endpoint = format!("https://{}", node.s3_https());
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_CA_BUNDLE", &certificate),
    ];
    let aws = |args: &[&str]| run(&node, &aws, args, &environment);
    let (large, back) = (file(&node, "large", LARGE), node.home().path().join("back"));
    let back = back.to_str().expect("a path in UTF-8");
    aws(&["s3", "mb", "s3://cli"]);
    aws(&["s3", "cp", &large, "s3://cli/large", "--no-progress"]);
    aws(&["s3", "cp", "s3://cli/large", back, "--no-progress"]);
    same(&large, back);
    aws(&["s3", "rb", "s3://cli", "--force"]);
}

#[test]
fn rclone_over_https() {
    let Some(rclone) = client_place("LARDER_RCLONE", "rclone") else { return };
    let (node, certificate) = encrypted();
    let endpoint = format!("https://{}", node.s3_https());
    let environment = rclone_environment(&endpoint, ("RCLONE_CA_CERT", &certificate));
    let rclone = |args: &[&str]| run(&node, &rclone, args, &environment);
    let tree = node.home().path().join("tree");
    fs::create_dir_all(&tree).expect("a folder can be made");
    file(&node, "tree/large", LARGE);
    file(&node, "tree/small", 100);
    let tree = tree.to_str().expect("a path in UTF-8");
    rclone(&["mkdir", "L:clone"]);
    rclone(&["copy", tree, "L:clone"]);
    rclone(&["check", "--download", tree, "L:clone"]);
    rclone(&["purge", "L:clone"]);
}
