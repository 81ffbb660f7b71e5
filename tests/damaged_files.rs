//! Damage to a stopped server's data: a start serves every object, or it changes nothing and names the file. A damaged block
//! loses only its own keys.
//!
//! Files are chosen by their looks from outside: small ones, journals (by their names), the largest of the rest.
//! `LARDER_TEST_SCALE=soak` damages every small file instead of three of every sort.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test fails by panicking and runs in real time"
)]

#[allow(dead_code, reason = "as above")]
#[path = "../crates/store-local/tests/damage/dir_snapshot.rs"]
mod dir_snapshot;
#[allow(dead_code, reason = "the damage test of store-local uses the rest of it")]
#[path = "../crates/store-local/tests/damage/file_corruption.rs"]
mod file_corruption;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{
    Home, HttpClient, HttpRequest, KvAdmin, LarderNode, Process, ProcessEnd, Scale, SplitMix64, TestEngine, figure,
};
pub(crate) use dir_snapshot::DirSnapshot;
use file_corruption::file_class;

/// The subject of these tests, for runs over Cassandra that skip them.
pub(crate) const FILES: &str = "files of its own";
/// The most bytes of a file that describes other files.
const SMALL: usize = 64 * 1024;
/// The zeroed bytes of a journal.
const BEGIN: usize = 64 * 1024;
/// The most objects until there is a second journal.
const OBJECTS_MAX: usize = 20_000;
/// The lock file, which a refused start may create.
const LOCK: &str = "LOCK";
/// The longest time of an export.
const EXPORT: Duration = Duration::from_secs(300);
/// Connections that write at a time: several writes share a sync.
const THREADS: usize = 16;

/// Objects by number. A body is made from the number and the count of its writes.
struct NumberedObjects {
    size: usize,
    /// How often each was written; 0 after a delete.
    written: BTreeMap<usize, u32>,
}

impl NumberedObjects {
    fn new(size: usize) -> Self {
        Self { size, written: BTreeMap::new() }
    }

    fn body(&self, number: usize, times: u32) -> Vec<u8> {
        SplitMix64::new(((number as u64) << 32) | u64::from(times)).bytes(self.size)
    }

    /// Writes these objects again or deletes them; fails the test unless each answer is 204.
    fn change(&mut self, node: &LarderNode, numbers: &[usize], delete: bool) {
        let refused = self.try_change(node, numbers, delete);
        assert!(refused.is_empty(), "{} of {} writes are refused: {}", refused.len(), numbers.len(), refused[0]);
    }

    /// As [`Self::change`]; returns the refused changes, which are not recorded.
    fn try_change(&mut self, node: &LarderNode, numbers: &[usize], delete: bool) -> Vec<String> {
        let this = &*self;
        let refused: Vec<(usize, String)> = on_threads(node, numbers, |client, number| {
            let times = this.written.get(&number).copied().unwrap_or(0) + 1;
            let target = url(number);
            let request = match delete {
                true => HttpRequest::new("DELETE", &target),
                false => HttpRequest::put(&target, this.body(number, times)),
            };
            let answer = client.send(&request);
            (answer.status != 204).then(|| (number, format!("{number}: {} {}", answer.status, answer.text())))
        });
        let refused: BTreeMap<usize, String> = refused.into_iter().collect();
        for number in numbers.iter().filter(|number| !refused.contains_key(*number)) {
            let times = self.written.entry(*number).or_default();
            *times = if delete { 0 } else { *times + 1 };
        }
        refused.into_values().collect()
    }

    /// Reads all objects; returns the numbers that answer 500, and all other errors.
    fn read(&self, node: &LarderNode) -> (BTreeSet<usize>, Vec<String>) {
        let numbers: Vec<usize> = self.written.keys().copied().collect();
        let read = on_threads(node, &numbers, |client, number| {
            let (answer, times) = (client.get(&url(number)), self.written[&number]);
            match answer.status {
                500 => Some(Err(number)),
                404 if times == 0 => None,
                200 if times > 0 && answer.body == self.body(number, times) => None,
                status => Some(Ok(format!("{number}: {status}, {} bytes, written {times} times", answer.body.len()))),
            }
        });
        let damaged = read.iter().filter_map(|one| one.as_ref().err().copied()).collect();
        (damaged, read.into_iter().filter_map(Result::ok).collect())
    }

    /// The first difference between the objects and the writes, as a text.
    fn missing(&self, node: &LarderNode) -> Option<String> {
        let (damaged, mut wrong) = self.read(node);
        wrong.extend(damaged.iter().map(|number| format!("{number}: 500")));
        let listed = node.client().get("/buckets/b/keys?keys=true").expect(200).json();
        let listed: BTreeSet<&str> = listed["keys"].as_array().unwrap().iter().filter_map(|key| key.as_str()).collect();
        for (number, times) in &self.written {
            if listed.contains(number.to_string().as_str()) != (*times > 0) {
                wrong.push(format!("{number}: written {times} times, and the listing differs"));
            }
        }
        wrong.first().map(|first| format!("{} of {} objects, {first}", wrong.len(), self.written.len()))
    }
}

fn url(number: usize) -> String {
    format!("/buckets/b/keys/{number}")
}

/// Calls `work` for each number over several connections; returns the results.
fn on_threads<T: Send>(
    node: &LarderNode,
    numbers: &[usize],
    work: impl Fn(&mut HttpClient, usize) -> Option<T> + Sync,
) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let share = |first: usize| {
            let mut client = node.client();
            scope.spawn(move || {
                let mine = numbers.iter().skip(first).step_by(THREADS);
                mine.filter_map(|number| work(&mut client, *number)).collect::<Vec<T>>()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(share).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// A fault in one file of a stopped server.
struct FileFault<'a> {
    what: &'a str,
    path: &'a Path,
    /// The new bytes; `None` removes the file.
    bytes: Option<Vec<u8>>,
}

/// Starts a server on a copy with one fault. Either all objects are present, or the start is refused, names the file, changes
/// nothing, and succeeds with the original file. Returns whether the start was refused, or the violation.
fn judge(home: &Home, whole: &DirSnapshot, objects: &NumberedObjects, fault: &FileFault<'_>) -> Result<bool, String> {
    let copy = home.copy();
    let path = copy.data().join(fault.path);
    match &fault.bytes {
        Some(bytes) => fs::write(&path, bytes).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
    let before = DirSnapshot::read(&copy.data()).unwrap();
    let violation = |what: String| format!("{} {}: {what}", fault.path.display(), fault.what);
    let ended = match start(copy, &[]) {
        Ok(node) => {
            return objects.missing(&node).map_or(Ok(false), |what| Err(violation(format!("it starts: {what}"))));
        }
        Err(refused) => *refused,
    };
    let (copy, ended) = ended;
    is_unchanged(&before, &copy.data(), &ended).map_err(violation)?;
    let bytes = whole.0[fault.path].as_ref().expect("it is a file");
    fs::write(&path, bytes).unwrap();
    match start(copy, &[]) {
        Ok(node) => objects.missing(&node).map_or(Ok(()), |what| Err(violation(format!("put back: {what}"))))?,
        Err(refused) => return Err(violation(format!("put back, it does not start: {}", refused.1.stderr))),
    }
    is_named(&ended, fault.path).map(|()| true).map_err(violation)
}

/// Checks that a refused start changed no file.
pub(crate) fn is_unchanged(before: &DirSnapshot, data: &Path, ended: &ProcessEnd) -> Result<(), String> {
    let mut differences = before.differences(&DirSnapshot::read(data).unwrap());
    differences.retain(|one| *one != format!("{LOCK} is new"));
    let (count, stderr) = (differences.len(), ended.stderr.trim());
    differences
        .first()
        .map_or(Ok(()), |first| Err(format!("the refused start changed {count} files: {first}: {stderr}")))
}

/// As [`LarderNode::try_start`]; a refused start returns its home.
pub(crate) fn start(home: Home, args: &[&str]) -> Result<LarderNode, Box<(Home, ProcessEnd)>> {
    // A refused start drops its home: this process tries the start first and keeps the home.
    let mut process = Process::start(&mut home.command(args));
    let is_up = process.wait_for(Duration::from_secs(120), |out| out.contains("Riak HTTP").then_some(()));
    match is_up {
        Some(()) => {
            process.kill();
            Ok(LarderNode::start_in(home, args))
        }
        None => Err(Box::new((home, process.wait_for_end(Duration::from_secs(1))))),
    }
}

/// Checks that one line names the file by its path below the data directory.
pub(crate) fn is_named(ended: &ProcessEnd, path: &Path) -> Result<(), String> {
    let stderr = ended.stderr.trim();
    let is_good = ended.code.is_some_and(|code| code != 0)
        && stderr.lines().count() == 1
        && !stderr.contains("panicked")
        && (stderr.contains(path.to_str().unwrap()) || stderr.contains("missing"));
    if is_good { Ok(()) } else { Err(format!("it is not named: {:?}: {stderr}", ended.code)) }
}

/// The data of a stopped server with objects of every kind of storage.
fn small_store() -> (Home, NumberedObjects) {
    let mut node = LarderNode::start(&[]);
    let mut objects = NumberedObjects::new(3000);
    let numbers: Vec<usize> = (0..200).collect();
    for _ in 0..2 {
        objects.change(&node, &numbers, false);
        assert_eq!(node.terminate().code, Some(0));
        node.restart();
    }
    objects.change(&node, &numbers[..20], true);
    node.client().put("/buckets/large/keys/bulk", vec![b'x'; 200_000]).expect(204);
    node.client().put("/buckets/large/keys/file", vec![b'x'; 2 << 20]).expect(204);
    assert_eq!(node.terminate().code, Some(0));
    (node.into_home(), objects)
}

#[test]
fn a_missing_or_damaged_small_file_is_named_and_the_start_changes_nothing() {
    if !TestEngine::is_local_for(FILES) {
        return;
    }
    let mut random = SplitMix64::from_environment("small files");
    let (home, objects) = small_store();
    let whole = DirSnapshot::read(&home.data()).unwrap();
    // Tables and blob files may be small too: their damage costs only their own objects.
    let is_data =
        |path: &Path| path.components().any(|part| ["tables", "blobs"].iter().any(|name| part.as_os_str() == *name));
    let small = whole.files().filter(|(path, bytes)| bytes.len() <= SMALL && !is_data(path));
    let mut small: Vec<(&Path, &[u8])> = small.collect();
    if Scale::current() == Scale::Test {
        // Three files of a sort: each describes another part of the store.
        let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
        small.retain(|(path, _)| {
            let count = sorts.entry(file_class(path)).or_default();
            *count += 1;
            *count <= 3
        });
    }
    let (mut refused, mut failed) = (0, Vec::new());
    for (path, bytes) in &small {
        let mut flipped = bytes.to_vec();
        let at = random.below(bytes.len().max(1));
        flipped.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8));
        let flip = format!("with a bit flipped at {at}");
        let zeroed = vec![0; bytes.len()];
        let faults = [("removed", None), (flip.as_str(), Some(flipped)), ("zeroed", Some(zeroed))];
        for (what, bytes) in faults.into_iter().filter(|(_, after)| after.as_deref() != Some(*bytes)) {
            match judge(&home, &whole, &objects, &FileFault { what, path, bytes }) {
                Ok(was_refused) => refused += usize::from(was_refused),
                Err(what) => failed.push(what),
            }
        }
    }
    figure("small files damaged", &format!("{}, starts refused {refused}", small.len()));
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
    assert!(refused > 0, "no start was refused: {small:?}");
}

/// The files that look like journals, the oldest first.
fn journals(data: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = open.pop() {
        // The running server may remove a file between the listing and this read.
        let entries = fs::read_dir(data.join(&folder)).into_iter().flatten().filter_map(Result::ok);
        for entry in entries {
            let path = folder.join(entry.file_name());
            let text = path.to_string_lossy().to_lowercase();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if text.contains("journal") || text.ends_with(".jnl") || text.ends_with(".wal") {
                found.push(path);
            }
        }
    }
    let number = |path: &PathBuf| {
        let digits: String = path.file_name().unwrap().to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or(0)
    };
    found.sort_by_key(number);
    found
}

/// The data of a server that was killed under load with several journals, and its acknowledged objects.
fn with_journals() -> (Home, NumberedObjects) {
    let mut node = LarderNode::start(&[]);
    let (data, at, next) = (node.home().data(), node.http(), AtomicUsize::new(0));
    let mut objects = NumberedObjects::new(40_000);
    let acknowledged: Vec<usize> = thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| put_until_killed(&objects, at, &next))).collect();
        while journals(&data).len() < 2 && next.load(Ordering::Relaxed) < OBJECTS_MAX {
            thread::sleep(Duration::from_millis(1));
        }
        node.kill();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert!(journals(&data).len() > 1, "one journal after {OBJECTS_MAX} objects: there is nothing to test");
    objects.written.extend(acknowledged.into_iter().map(|number| (number, 1)));
    (node.into_home(), objects)
}

/// Puts the next objects until there is no answer; returns the acknowledged numbers.
fn put_until_killed(objects: &NumberedObjects, at: SocketAddr, next: &AtomicUsize) -> Vec<usize> {
    let (mut client, mut acknowledged) = (HttpClient::new(at), Vec::new());
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        match client.try_send(&HttpRequest::put(&url(number), objects.body(number, 1))) {
            Ok(answer) => {
                assert_eq!(answer.status, 204, "{}", answer.text());
                acknowledged.push(number);
            }
            Err(_) => return acknowledged,
        }
    }
}

#[test]
fn a_missing_or_damaged_older_journal_is_never_skipped() {
    if !TestEngine::is_local_for(FILES) {
        return;
    }
    let (home, objects) = with_journals();
    let whole = DirSnapshot::read(&home.data()).unwrap();
    let journals = journals(&home.data());
    let (mut refused, mut failed) = (0, Vec::new());
    for path in &journals[..journals.len() - 1] {
        let bytes = whole.0[path].as_ref().unwrap();
        let mut zeroed = bytes.clone();
        zeroed.iter_mut().take(BEGIN).for_each(|byte| *byte = 0);
        let faults = [("removed", None), ("emptied", Some(Vec::new())), ("with its beginning zeroed", Some(zeroed))];
        for (what, bytes) in faults {
            match judge(&home, &whole, &objects, &FileFault { what, path, bytes }) {
                Ok(was_refused) => refused += usize::from(was_refused),
                Err(what) => failed.push(what),
            }
        }
    }
    figure("older journals damaged", &format!("{}, starts refused {refused}", journals.len() - 1));
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

/// Flips a bit in the middle of a large file that is no journal; returns the place.
fn flip_in_a_table(home: &Home, tree: &DirSnapshot, random: &mut SplitMix64) -> String {
    let journals = journals(&home.data());
    let tables = tree.files().filter(|(path, _)| !journals.iter().any(|journal| journal == path));
    let mut tables: Vec<(&Path, &[u8])> = tables.filter(|(_, bytes)| bytes.len() > 1 << 20).collect();
    assert!(!tables.is_empty(), "no tables were written: there is nothing to test");
    tables.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
    let (path, bytes) = tables[random.below(tables.len().min(3))];
    let at = bytes.len() / 10 + random.below(bytes.len() * 8 / 10);
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1 << random.below(8);
    fs::write(home.data().join(path), flipped).unwrap();
    format!("bit flipped at {at} of {} bytes of {}", bytes.len(), path.display())
}

#[test]
fn a_damaged_block_loses_only_its_own_keys() {
    if !TestEngine::is_local_for(FILES) {
        return;
    }
    let mut random = SplitMix64::from_environment("damaged block");
    let mut node = LarderNode::buffered();
    let mut objects = NumberedObjects::new(20_000);
    let all: Vec<usize> = (0..8000).collect();
    objects.change(&node, &all, false);
    assert_eq!(node.terminate().code, Some(0));
    // A first stop may leave rows in the journal; a second start and stop writes them to tables.
    node.restart();
    objects.change(&node, &all[..100], false);
    assert_eq!(node.terminate().code, Some(0));
    let home = node.into_home();
    let tree = DirSnapshot::read(&home.data()).unwrap();
    let (node, damaged) = (0..10)
        .find_map(|_| {
            let copy = home.copy();
            let place = flip_in_a_table(&copy, &tree, &mut random);
            let node = LarderNode::start_in(copy, &["--durability", "buffered"]);
            let (damaged, wrong) = objects.read(&node);
            assert!(wrong.is_empty(), "{place}: {} wrong reads, {}", wrong.len(), wrong[0]);
            eprintln!("{place}: {} objects are damaged", damaged.len());
            (!damaged.is_empty()).then_some((node, damaged))
        })
        .expect("a flipped bit in a table damages a key");
    assert!(damaged.len() < 40, "one bit damages {} objects", damaged.len());
    drop((home, tree));
    serves_on(node, &mut objects, &damaged);
}

/// Reads, writes and deletes all objects but `damaged`, over restarts.
fn serves_on(mut node: LarderNode, objects: &mut NumberedObjects, damaged: &BTreeSet<usize>) {
    let rest: Vec<usize> = objects.written.keys().copied().filter(|number| !damaged.contains(number)).collect();
    let (begun, mut failed) = (Instant::now(), Vec::new());
    for round in 0..2 {
        // 200 MB in both rounds, over the keys of every table: a compaction meets the damaged block.
        let numbers: Vec<usize> = rest.iter().copied().filter(|number| number % 8 != round).take(5000).collect();
        let gone: Vec<usize> = rest.iter().copied().filter(|number| number % 16 == round).collect();
        for (numbers, delete) in [(&numbers, false), (&gone, true)] {
            let refused = objects.try_change(&node, numbers, delete);
            failed.extend(refused.first().map(|first| format!("{} writes are refused: {first}", refused.len())));
        }
        failed.extend(exports_or_names_damage(&node));
        let ended = node.terminate();
        failed.extend((ended.code != Some(0)).then(|| format!("it stops with {:?}: {}", ended.code, ended.stderr)));
        node.restart();
        let (now, wrong) = objects.read(&node);
        failed.extend(wrong.first().map(|first| format!("{} wrong reads: {first}", wrong.len())));
        failed.extend((!now.is_subset(damaged)).then(|| format!("damage spreads from {damaged:?} to {now:?}")));
        assert!(failed.is_empty(), "round {round}:\n{}", failed.join("\n"));
    }
    objects.change(&node, &rest[..200], false);
    figure("a damaged block: 200 MB written beside it", &format!("{:.1?}", begun.elapsed()));
}

/// An export succeeds or names the damage; returns the output of any other end.
fn exports_or_names_damage(node: &LarderNode) -> Option<String> {
    let out = Home::new();
    let mut command = Command::new(KvAdmin::binary());
    command.arg("--socket").arg(node.home().socket()).arg("export").arg(out.path());
    let ended = Process::start(&mut command).wait_for_end(EXPORT);
    let is_named = ended.stderr.to_lowercase().contains("damaged");
    (ended.code != Some(0) && !is_named)
        .then(|| format!("a failed export does not name the damage: {}", ended.stderr.trim()))
}
