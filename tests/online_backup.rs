//! `kv-admin backup` while the server serves and is killed: what a backup holds is restored and compared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Home, HttpRequest, LarderNode, Scale, SplitMix64, TestEngine};

const WRITERS: u64 = 4;
/// Every so many keys have a body of a file.
const LARGE_EVERY: u64 = 50;
/// A folder on another file system than the data.
const OTHER_DISK: &str = "/dev/shm";

fn body(writer: u64, number: u64) -> Vec<u8> {
    let bytes = if number.is_multiple_of(LARGE_EVERY) { 1_200_000 } else { 2_000 };
    SplitMix64::new(writer << 32 | number).bytes(bytes)
}

fn path(writer: u64, number: u64) -> String {
    format!("/buckets/b{writer}/keys/{number}")
}

/// Writes new keys until the test ends; counts the answered ones.
fn write(node: &LarderNode, writer: u64, answered: &AtomicU64, ended: &AtomicBool) {
    let mut client = node.client();
    for number in 1.. {
        // The server may be killed in between.
        let put = HttpRequest::put(&path(writer, number), body(writer, number));
        if ended.load(Ordering::SeqCst) || !client.try_send(&put).is_ok_and(|answer| answer.status == 204) {
            return;
        }
        answered.store(number, Ordering::SeqCst);
    }
}

/// Starts a server on a copy of a backup, and reads all that was answered before.
fn assert_restores(backup: &Path, answered: &[u64]) {
    let home = Home::new();
    let copied = Command::new("cp").arg("-a").arg(backup).arg(home.data()).status().unwrap();
    assert!(copied.success());
    let mut check = Command::new(home.command(&[]).get_program());
    let checked = check.args(["check", "--data-dir", home.data().to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let node = LarderNode::start_in(home, &["--durability", "buffered"]);
    let mut client = node.client();
    for (writer, count) in (0..).zip(answered) {
        for number in 1..=*count {
            let found = client.get(&path(writer, number));
            assert!(
                found.status == 200 && found.body == body(writer, number),
                "{}: status {}",
                path(writer, number),
                found.status
            );
        }
    }
}

/// The backups in a folder, oldest first.
fn backups(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.is_dir() && path.extension().is_none());
    found.sort();
    found
}

#[test]
fn a_backup_beside_writers_restores_all_that_was_answered_before() {
    if !TestEngine::is_local_for("a backup is of the embedded engine") {
        return;
    }
    let (node, folder) = (LarderNode::start(&[]), tempfile::tempdir().unwrap());
    let folder = folder.path().join("backups");
    let (answered, ended) = ([const { AtomicU64::new(0) }; WRITERS as usize], AtomicBool::new(false));
    thread::scope(|scope| {
        for (writer, answered) in (0..).zip(&answered) {
            let (node, ended) = (&node, &ended);
            scope.spawn(move || write(node, writer, answered, ended));
        }
        for round in 1..=Scale::current().pick(2, 20) {
            thread::sleep(Duration::from_millis(1_500));
            let before = answered.each_ref().map(|count| count.load(Ordering::SeqCst));
            let printed = node.admin().output(&["backup", folder.to_str().unwrap()]);
            assert!(printed.starts_with(&format!("backed up into {}/", folder.display())), "{printed}");
            let made = backups(&folder);
            assert_eq!(made.len(), round);
            assert_restores(&made[round - 1], &before);
        }
        ended.store(true, Ordering::SeqCst);
    });
    assert!(!node.home().data().join("backup.partial").exists());
}

#[test]
fn a_backup_on_another_disk_copies_what_changed_alone() {
    let Ok(folder) = tempfile::Builder::new().prefix("larder-backup-").tempdir_in(OTHER_DISK) else {
        eprintln!("skipped: {OTHER_DISK} cannot be written");
        return;
    };
    if !TestEngine::is_local_for("a backup is of the embedded engine") {
        return;
    }
    let node = LarderNode::buffered();
    let mut client = node.client();
    for number in 1..=8 {
        client.put(&path(0, number * LARGE_EVERY), body(0, number * LARGE_EVERY)).expect(204);
    }
    let copied = |printed: &str| -> f64 {
        let (before, _) = printed.split_once(" MB of them copied").unwrap_or_else(|| panic!("{printed}"));
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let first = copied(&node.admin().output(&["backup", folder.path().to_str().unwrap()]));
    client.put(&path(0, LARGE_EVERY * 9), body(0, LARGE_EVERY * 9)).expect(204);
    // Names are times in seconds.
    thread::sleep(Duration::from_millis(1_100));
    let second = copied(&node.admin().output(&["backup", folder.path().to_str().unwrap()]));
    assert!(first > 9.0 && (1.2..3.0).contains(&second), "{first} MB, then {second} MB");
    let made = backups(folder.path());
    drop(client);
    assert_eq!(made.len(), 2);
    let home = Home::new();
    assert!(Command::new("cp").arg("-a").arg(&made[1]).arg(home.data()).status().unwrap().success());
    let restored = LarderNode::start_in(home, &[]);
    for number in 1..=9 {
        let found = restored.client().get(&path(0, number * LARGE_EVERY)).expect(200);
        assert_eq!(found.body, body(0, number * LARGE_EVERY));
    }
}

#[test]
fn a_kill_in_the_middle_leaves_no_half_of_a_backup() {
    if !TestEngine::is_local_for("a backup is of the embedded engine") {
        return;
    }
    let other = tempfile::Builder::new().prefix("larder-backup-").tempdir_in(OTHER_DISK);
    let folder = other.unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let mut node = LarderNode::buffered();
    let mut client = node.client();
    for number in 1..=20 {
        client.put(&path(0, number * LARGE_EVERY), body(0, number * LARGE_EVERY)).expect(204);
    }
    drop(client);
    for round in 0..Scale::current().pick(4, 100) {
        let admin = node.admin();
        let target = folder.path().to_str().unwrap().to_owned();
        thread::scope(|scope| {
            scope.spawn(move || admin.run(&["backup", &target]));
            thread::sleep(Duration::from_millis(5 + 7 * (round as u64 % 6)));
            node.kill();
        });
        node.restart();
        assert!(!node.home().data().join("backup.partial").exists(), "round {round}");
        for made in backups(folder.path()) {
            let home = Home::new();
            assert!(Command::new("cp").arg("-a").arg(&made).arg(home.data()).status().unwrap().success());
            let restored = LarderNode::start_in(home, &[]);
            let found = restored.client().get(&path(0, 20 * LARGE_EVERY)).expect(200);
            assert_eq!(found.body, body(0, 20 * LARGE_EVERY));
            fs::remove_dir_all(made).unwrap();
        }
    }
    thread::sleep(Duration::from_millis(1_100));
    node.admin().output(&["backup", folder.path().to_str().unwrap()]);
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(names.len(), 1, "the rests of kills are gone: {names:?}");
}
