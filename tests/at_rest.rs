//! Encryption at rest, from outside: who reads the disk finds names alone, and a start without its master key says so.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Home, LarderNode, TestEngine};

/// In every value that is written.
const SECRET: &str = "nobody-reads-this";
/// Bytes of bodies in rows, in files of large values, in bulk rows and in files of their own.
const LENGTHS: [usize; 4] = [100, 20_000, 300_000, 3_000_000];

fn body(length: usize) -> String {
    SECRET.repeat(length / SECRET.len() + 1)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.is_file())
        .collect()
}

/// The files with the secret in them.
fn readable(dir: &Path) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
    };
    files(dir).into_iter().filter(has).collect()
}

fn write_all(node: &LarderNode) {
    let mut client = node.client();
    for length in LENGTHS {
        client.put(&format!("/buckets/b/keys/{length}"), body(length)).expect(204);
    }
    let mut s3 = node.s3_admin();
    s3.put("/shelf", "").expect(200);
    for length in LENGTHS {
        s3.put(&format!("/shelf/{length}"), body(length)).expect(200);
    }
}

fn read_all(node: &LarderNode) {
    let (mut client, mut s3) = (node.client(), node.s3_admin());
    for length in LENGTHS {
        let found = client.get(&format!("/buckets/b/keys/{length}"));
        assert_eq!(found.body, body(length).as_bytes(), "{length}");
        assert_eq!(s3.get(&format!("/shelf/{length}")).body, body(length).as_bytes(), "{length}");
    }
}

fn check(home: &Home, more: &[&str]) -> String {
    let program = home.command(&[]).get_program().to_owned();
    let data = home.data();
    let done = Command::new(program).args(["check", "--data-dir", data.to_str().unwrap()]).args(more).output().unwrap();
    format!("{:?} {}", done.status.code(), String::from_utf8(done.stdout).unwrap())
}

#[test]
fn a_disk_shows_no_value_and_a_kill_loses_none() {
    if !TestEngine::is_local_for("its files") {
        return;
    }
    let keys = Home::new();
    let ring = keys.path().join("keys");
    fs::write(&ring, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n").unwrap();
    let args = ["--encrypt-at-rest", "--encryption-keys", ring.to_str().unwrap()];
    let mut node = LarderNode::s3(&args);
    write_all(&node);
    assert_eq!(readable(&node.home().data()), Vec::<PathBuf>::new(), "while it runs");
    node.kill();
    node.restart();
    read_all(&node);
    let rotated = node.admin().output(&["s3", "encryption", "rotate"]);
    assert!(rotated.contains("wrapped anew: 2;"), "{rotated}");
    node.terminate();
    let home = node.into_home();
    assert_eq!(readable(&home.data()), Vec::<PathBuf>::new(), "after its end");

    let whole = check(&home, &["--encryption-keys", ring.to_str().unwrap()]);
    assert!(whole.starts_with("Some(0)") && !whole.contains("do not open"), "{whole}");
    let unopened = check(&home, &[]);
    assert!(unopened.starts_with("Some(0)") && unopened.contains("data keys that do not open: 2;"), "{unopened}");

    let refused = home.fails_to_start(&["--encrypt-at-rest"]);
    assert!(refused.stderr.contains("is not in the ring of --encryption-keys"), "{}", refused.stderr);
    // The new key alone: the data keys are under it. Switched off, what is sealed is read.
    let newest = fs::read_to_string(&ring).unwrap().lines().last().unwrap().to_owned();
    fs::write(&ring, newest + "\n").unwrap();
    let node = LarderNode::start_in(home, &["--s3", "127.0.0.1:0", args[1], args[2]]);
    read_all(&node);
}
