//! Damaged journals: a server starts with every acknowledged write, or it names the damage and does not start.
//!
//! `LARDER_TEST_SCALE=soak` cuts at 100 random places instead of 12.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::harness::{Home, LarderNode, ProcessEnd, Scale, SplitMix64, TestEngine, figure};

const KEYS: usize = 60;
/// The subject of these tests, for runs over Cassandra that skip them.
const JOURNAL: &str = "its journal";

fn url(number: usize) -> String {
    format!("/buckets/b/keys/{number}")
}

/// Data with `KEYS` acknowledged writes after a kill.
fn killed() -> Home {
    let node = LarderNode::start(&[]);
    for number in 0..KEYS {
        node.client().put(&url(number), number.to_string().repeat(200)).expect(204);
    }
    node.into_home()
}

fn cut(home: &Home, length: u64) {
    let file = OpenOptions::new().write(true).open(journal(&home.data())).unwrap();
    file.set_len(length).unwrap();
}

fn is_named(ended: &ProcessEnd) -> bool {
    ended.code.is_some_and(|code| code != 0) && ended.stderr.contains("journal") && !ended.stderr.contains("panicked")
}

/// The number of writes that are present; each must equal the bytes that were written.
fn kept(node: &LarderNode) -> usize {
    let mut client = node.client();
    let there = (0..KEYS).filter(|number| {
        let got = client.get(&url(*number));
        assert!(got.status == 404 || got.text() == number.to_string().repeat(200), "{number}: {}", got.status);
        got.status == 200
    });
    there.count()
}

#[test]
fn a_journal_cut_anywhere_loses_nothing_silently() {
    if !TestEngine::is_local_for(JOURNAL) {
        return;
    }
    let mut random = SplitMix64::from_environment("journal");
    let killed = killed();
    let written = written_bytes(&journal(&killed.data()));
    let cuts = Scale::current().pick(12, 100);
    let mut named = 0;
    for _ in 0..cuts {
        let home = killed.copy();
        let length = random.below(usize::try_from(written).unwrap()) as u64;
        cut(&home, length);
        match LarderNode::try_start(home, &[]) {
            Ok(node) => {
                assert_eq!(kept(&node), KEYS, "cut at {length} of {written}: started with less than it acknowledged")
            }
            Err(ended) => {
                assert!(is_named(&ended), "cut at {length} of {written}: {ended:?}");
                named += 1;
            }
        }
    }
    figure("journal cuts", &format!("{cuts}, of them named as damage {named}"));
}

#[test]
fn a_damaged_journal_opens_only_with_its_flag_and_keeps_the_writes_before_the_damage() {
    if !TestEngine::is_local_for(JOURNAL) {
        return;
    }
    let home = killed();
    cut(&home, written_bytes(&journal(&home.data())) / 2);
    for _ in 0..2 {
        assert!(is_named(&home.fails_to_start(&[])), "a refused start repairs nothing");
    }
    let mut node = LarderNode::start_in(home, &["--accept-damaged-journal"]);
    let before = kept(&node);
    assert!(0 < before && before < KEYS, "{before} of {KEYS} came before the damage");
    node.client().put("/buckets/b/keys/after", "v").expect(204);
    assert_eq!(node.terminate().code, Some(0));
    let node = LarderNode::start_in(node.into_home(), &[]);
    assert_eq!(node.client().get("/buckets/b/keys/after").expect(200).text(), "v");
    assert_eq!(kept(&node), before);
}

#[test]
fn a_flipped_bit_in_the_journal_is_named_or_harmless() {
    if !TestEngine::is_local_for(JOURNAL) {
        return;
    }
    let mut random = SplitMix64::from_environment("flipped bit");
    let killed = killed();
    for _ in 0..Scale::current().pick(6, 50) {
        let home = killed.copy();
        let path = journal(&home.data());
        let mut bytes = fs::read(&path).unwrap();
        let at = random.below(usize::try_from(written_bytes(&path)).unwrap());
        bytes[at] ^= 1 << random.below(8);
        fs::write(&path, bytes).unwrap();
        match LarderNode::try_start(home, &[]) {
            Ok(node) => assert_eq!(kept(&node), KEYS, "bit flipped at {at}"),
            Err(ended) => assert!(is_named(&ended), "bit flipped at {at}: {ended:?}"),
        }
    }
}

#[test]
fn bytes_of_an_unfinished_group_at_the_end_are_not_taken_for_damage() {
    if !TestEngine::is_local_for(JOURNAL) {
        return;
    }
    let home = killed();
    let path = journal(&home.data());
    let written = written_bytes(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(bytes.len().max(usize::try_from(written).unwrap() + 100), 0);
    let start = usize::try_from(written).unwrap() + 1;
    let tail = bytes.len().min(start + 60);
    for byte in &mut bytes[start..tail] {
        *byte = 7;
    }
    let mut file = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    file.write_all(&bytes).unwrap();
    drop(file);
    assert_eq!(kept(&LarderNode::start_in(home, &[])), KEYS);
}

/// The journal with the most written bytes.
fn journal(directory: &Path) -> PathBuf {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                open.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "jnl") {
                found.push(entry.path());
            }
        }
    }
    found.into_iter().max_by_key(|path| written_bytes(path)).expect("a journal")
}

/// The written bytes of a file whose length was allocated in advance.
fn written_bytes(path: &Path) -> u64 {
    let mut bytes = Vec::new();
    fs::File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}
