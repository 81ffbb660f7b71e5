//! `larder check` and `larder repair` on a server's data with one flipped bit.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{Home, LarderNode, SplitMix64, TestEngine};

const KEYS: usize = 400;
const LARGE: usize = 3;
/// Bodies that push the keys out of the journal, from which a start would read them: more than a journal file holds.
const FILLERS: usize = 1_100;

fn url(number: usize) -> String {
    format!("/types/default/buckets/b/keys/key-{number}")
}

fn body(number: usize) -> String {
    let length = if number < LARGE { 1_500_000 } else { 700 };
    number.to_string().repeat(length / number.to_string().len())
}

/// The data of a stopped server that wrote all keys: they are in tables, and no longer in the journal.
fn written() -> Home {
    let mut node = LarderNode::buffered();
    let mut client = node.client();
    for number in 0..KEYS {
        client.put(&url(number), body(number)).expect(204);
    }
    for number in 0..FILLERS {
        client.put(&format!("/buckets/z/keys/{number}"), vec![7; 64_000]).expect(204);
    }
    node.terminate();
    node.into_home()
}

fn larder(home: &Home, words: &[&str]) -> Output {
    let program = home.command(&[]).get_program().to_owned();
    Command::new(program).args(words).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The offsets of complete keys in a table: every tenth or sixteenth of the entries, then those of the index.
fn places_of_keys(table: &[u8]) -> Vec<usize> {
    table.windows(4).enumerate().filter(|(_, four)| *four == b"key-").map(|(at, _)| at).collect()
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.is_file() => found.push((path.clone(), fs::read(&path).unwrap())),
            false => {}
        }
    }
    found.sort();
    found
}

#[test]
fn one_flipped_bit_costs_only_the_keys_that_the_check_names() {
    if !TestEngine::is_local_for("its files") {
        return;
    }
    let mut random = SplitMix64::from_environment("check and repair");
    let home = written();
    let data = home.data();
    let whole = larder(&home, &["check", "--data-dir", text(&data)]);
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    assert!(String::from_utf8_lossy(&whole.stdout).contains("0 damaged or missing"), "{whole:?}");

    let tables = files(&data.join("rows/packed/tables"));
    let place = |(path, bytes): (PathBuf, Vec<u8>)| {
        let places = places_of_keys(&bytes);
        (places.len() >= KEYS / 16).then_some((path, bytes, places))
    };
    let (table, mut bytes, places) = tables.into_iter().find_map(place).expect("a table");
    bytes[places[random.below(KEYS / 16)]] ^= 1;
    fs::write(&table, bytes).unwrap();
    let before = files(&data);
    let checked = larder(&home, &["check", "--data-dir", text(&data)]);
    let report = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{report}");
    let named = format!("/packed/tables/{}: ", table.file_name().unwrap().to_str().unwrap());
    assert!(report.contains(&named) && report.contains("objects /types/default/buckets/b/keys/key-"), "{report}");

    let new = Home::new();
    let repaired = larder(&home, &["repair", "--data-dir", text(&data), "--into", text(&new.data())]);
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    assert!(files(&data) == before, "the damaged directory was changed");
    let again = larder(&home, &["repair", "--data-dir", text(&data), "--into", text(&new.data())]);
    assert_eq!(again.status.code(), Some(2), "repair wrote into a directory that was not empty");

    let node = LarderNode::start_in(new, &[]);
    let mut client = node.client();
    let mut lost = Vec::new();
    for number in 0..KEYS {
        let answer = client.get(&url(number));
        match answer.status {
            404 => lost.push(number),
            _ => assert!(answer.expect(200).text() == body(number), "key {number}"),
        }
    }
    assert!(!lost.is_empty() && lost.len() < 30, "one block was damaged, lost: {lost:?}");
    client.put(&url(lost[0]), "again").expect(204);
    assert_eq!(client.get(&url(lost[0])).expect(200).text(), "again");
}

#[test]
fn check_refuses_the_directory_of_a_running_server() {
    if !TestEngine::is_local_for("its files") {
        return;
    }
    let node = LarderNode::start(&[]);
    let refused = larder(node.home(), &["check", "--data-dir", text(&node.home().data())]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is in use by another server"), "{refused:?}");
}

/// The names of the blob files below a data directory.
fn blob_files(data: &Path) -> Vec<PathBuf> {
    files(&data.join("blobs")).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_deleted_blob_file_was_once_noticed_by_no_check() {
    if !TestEngine::is_local_for("its files") {
        return;
    }
    let mut node = LarderNode::s3(&[]);
    let large = vec![7; 1_500_000];
    node.client().put("/buckets/b/keys/one", large.clone()).expect(204);
    let mut admin = node.s3_admin();
    admin.put("/teas", "").expect(200);
    admin.put("/teas/object", large.clone()).expect(200);
    let upload = admin.begin("/teas/parts");
    let first = admin.part("/teas/parts", &upload, 1, vec![8; 5 << 20]);
    let second = admin.part("/teas/parts", &upload, 2, large.clone());
    admin.complete("/teas/parts", &upload, &[(1, first), (2, second)]).expect(200);
    let open = admin.begin("/teas/open");
    admin.part("/teas/open", &open, 1, large.clone());
    // Replaced and deleted bodies leave no name behind.
    for key in ["two", "three"] {
        node.client().put(&format!("/buckets/b/keys/{key}"), large.clone()).expect(204);
        node.client().delete(&format!("/buckets/b/keys/{key}")).expect(204);
    }
    node.terminate();
    let home = node.into_home();
    let data = home.data();
    let check = || {
        let checked = larder(&home, &["check", "--data-dir", text(&data)]);
        (checked.status.code(), String::from_utf8(checked.stdout).unwrap())
    };
    let (code, report) = check();
    assert_eq!(code, Some(0), "{report}");
    let mut owners = Vec::new();
    let all = blob_files(&data);
    for file in &all {
        let bytes = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let (code, report) = check();
        fs::write(file, bytes).unwrap();
        // The file of a deleted body may wait for the sweep: nothing names it.
        if code == Some(1) {
            assert!(report.contains(&format!("{}: it is missing", file.display())), "{report}");
            owners.push(report.lines().nth(1).unwrap_or_default().to_owned());
        }
    }
    let is_named = |what: &str| owners.iter().filter(|line| line.contains(what)).count();
    assert!(is_named("of objects /types/default/buckets/b/keys/one") == 1, "{owners:?}");
    assert!(owners.len() == 5 && is_named("of heads") == 1 && is_named("of manifests") == 2, "{owners:?}");

    // A repair names it as well.
    fs::remove_file(&all[0]).unwrap();
    let new = Home::new();
    let repaired = larder(&home, &["repair", "--data-dir", text(&data), "--into", text(&new.data())]);
    let report = String::from_utf8(repaired.stdout).unwrap();
    assert!(repaired.status.code() == Some(1) && report.contains("it is missing"), "{report}");
}
