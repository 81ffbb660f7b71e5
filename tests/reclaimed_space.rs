//! The space of deleted objects comes back while the server runs: at once on a full disk, else when it rests.
//!
//! `LARDER_TEST_SCALE=soak` tries larger disks and more bytes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking and runs in real time"
)]

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{HttpClient, HttpRequest, LarderNode, S3Client, Scale, SplitMix64, TestEngine, Tmpfs, figure};

const MIB: u64 = 1 << 20;
/// The longest time until a full disk takes puts again after its objects were deleted.
const ROOM_WITHIN: Duration = Duration::from_secs(10);
/// The longest time until a server that rests has given space back.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// Bytes that a server at rest may hold beside 1.3 times its live ones.
const KEPT: u64 = 64 * MIB;
const BUCKET: &str = "space";

/// One of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpaceApi {
    Kv,
    S3,
}

/// A server on a disk of its own, and its clients. Field order: the disk is unmounted after the server has ended.
struct SpaceTest {
    kv: HttpClient,
    s3: S3Client,
    random: SplitMix64,
    node: LarderNode,
    disk: Tmpfs,
}

impl SpaceTest {
    fn new(mib: u64) -> Self {
        let disk = Tmpfs::new(mib);
        let node = LarderNode::start_in(disk.home(), &["--s3", "127.0.0.1:0"]);
        let (kv, mut s3) = (node.client(), node.s3_admin());
        s3.put(&format!("/{BUCKET}"), "").expect(200);
        Self { kv, s3, random: SplitMix64::from_environment("space"), node, disk }
    }

    /// Puts a body of this length, which no compression makes shorter; returns the status.
    fn put(&mut self, api: SpaceApi, number: usize, length: usize) -> u16 {
        let body = self.random.bytes(length);
        match api {
            SpaceApi::Kv => self.kv.send(&HttpRequest::put(&format!("/buckets/{BUCKET}/keys/{number}"), body)).status,
            SpaceApi::S3 => self.s3.put(&format!("/{BUCKET}/{number}"), body).status,
        }
    }

    fn delete(&mut self, api: SpaceApi, number: usize) -> u16 {
        match api {
            SpaceApi::Kv => {
                self.kv.send(&HttpRequest::new("DELETE", &format!("/buckets/{BUCKET}/keys/{number}"))).status
            }
            SpaceApi::S3 => self.s3.delete(&format!("/{BUCKET}/{number}")).status,
        }
    }

    /// Puts bodies until three in a row are refused; returns how many were taken.
    fn fill(&mut self, api: SpaceApi, length: usize) -> usize {
        let (mut taken, mut refused) = (0, 0);
        while refused < 3 {
            match self.put(api, taken, length) {
                200 | 204 => (taken, refused) = (taken + 1, 0),
                507 => refused += 1,
                status => panic!("a put is answered {status}"),
            }
        }
        taken
    }

    /// Deletes objects of these numbers; every delete must pass.
    fn delete_all(&mut self, api: SpaceApi, numbers: impl Iterator<Item = usize>) {
        let refused: Vec<_> =
            numbers.map(|number| (number, self.delete(api, number))).filter(|(_, s)| *s != 204).collect();
        assert!(refused.is_empty(), "{} deletes are refused, such as {:?}", refused.len(), refused[0]);
    }

    /// Waits until no more than these bytes are used; returns how long that took.
    fn wait_until_used(&self, most: u64, within: Duration) -> Duration {
        let begun = Instant::now();
        while self.disk.used() > most {
            assert!(begun.elapsed() < within, "{} MiB are allowed, after {within:?} {}", most / MIB, self.state());
            thread::sleep(Duration::from_millis(100));
        }
        begun.elapsed()
    }

    /// The metrics of the server's disk, and its log.
    fn state(&self) -> String {
        let metrics = self.node.client().get("/metrics").text();
        let metrics: Vec<_> = metrics
            .lines()
            .filter(|line| line.starts_with("larder_engine") || line.starts_with("larder_disk"))
            .collect();
        format!("{} MiB are used; {metrics:?}; {}", self.disk.used() / MIB, self.node.log())
    }
}

fn is_possible(test: &str) -> bool {
    TestEngine::is_local_for("its disk") && Tmpfs::is_possible_here(test)
}

/// Fills a disk, deletes all objects but each of this number, and fills it again.
fn fill_and_delete(api: SpaceApi, mib: u64, length: usize, kept: usize) {
    let mut test = SpaceTest::new(mib);
    let first = test.fill(api, length);
    let deleted: Vec<usize> = (0..first).filter(|number| number % kept > 0).collect();
    test.delete_all(api, deleted.iter().copied());
    let begun = Instant::now();
    let mut taken = 0;
    // Room for a part of what was there, in the same process.
    while taken < deleted.len() / 10 {
        match test.put(api, deleted[taken], length) {
            200 | 204 => taken += 1,
            507 => thread::sleep(Duration::from_millis(50)),
            status => panic!("a put is answered {status}"),
        }
        let waited = begun.elapsed();
        assert!(
            waited < ROOM_WITHIN || taken > 0,
            "{api:?}, {mib} MiB, {length} bytes: no room {waited:?} after {} deletes",
            deleted.len()
        );
    }
    let room = begun.elapsed();
    // The whole disk is there again, not the reserve of a part of it.
    let deadline = Instant::now() + REST_WITHIN;
    while taken < deleted.len() * 3 / 4 {
        match test.put(api, deleted[taken], length) {
            200 | 204 => taken += 1,
            _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            status => {
                panic!("{api:?}, {mib} MiB, {length} bytes: {taken} of {} fit again, then {status}", deleted.len())
            }
        }
    }
    figure(
        &format!(
            "{api:?} on a full disk of {mib} MiB: {} of {first} objects of {length} bytes deleted, room after",
            deleted.len()
        ),
        &format!("{room:?}"),
    );
}

#[test]
fn a_full_disk_whose_rows_are_deleted_takes_puts_again() {
    if !is_possible("reclaimed_space::a_full_disk_whose_rows_are_deleted_takes_puts_again") {
        return;
    }
    let cases: &[(SpaceApi, u64, usize)] = Scale::current().pick(
        &[(SpaceApi::S3, 150, 30_000), (SpaceApi::Kv, 60, 4_000)],
        &[
            (SpaceApi::S3, 150, 30_000),
            (SpaceApi::Kv, 150, 3_000),
            (SpaceApi::S3, 400, 30_000),
            (SpaceApi::Kv, 400, 3_000),
        ],
    );
    cases.iter().for_each(|(api, mib, length)| fill_and_delete(*api, *mib, *length, usize::MAX));
}

#[test]
fn a_full_disk_that_keeps_some_of_its_rows_takes_puts_again() {
    if !is_possible("reclaimed_space::a_full_disk_that_keeps_some_of_its_rows_takes_puts_again") {
        return;
    }
    let cases: &[(SpaceApi, u64, usize, usize)] = Scale::current().pick(
        &[(SpaceApi::Kv, 100, 4_000, 4)],
        &[
            (SpaceApi::Kv, 150, 3_000, 4),
            (SpaceApi::Kv, 400, 3_000, 3),
            (SpaceApi::S3, 150, 30_000, 4),
            (SpaceApi::S3, 400, 30_000, 10),
        ],
    );
    cases.iter().for_each(|(api, mib, length, kept)| fill_and_delete(*api, *mib, *length, *kept));
}

#[test]
fn a_full_disk_whose_large_values_are_deleted_takes_puts_again() {
    if !is_possible("reclaimed_space::a_full_disk_whose_large_values_are_deleted_takes_puts_again") {
        return;
    }
    let cases: &[(u64, usize)] = Scale::current().pick(
        &[(150, 200_000), (150, 900_000)],
        &[(150, 200_000), (150, 500_000), (150, 900_000), (400, 200_000), (400, 500_000), (400, 900_000)],
    );
    cases.iter().for_each(|(mib, length)| fill_and_delete(SpaceApi::Kv, *mib, *length, usize::MAX));
}

#[test]
fn a_server_that_rests_gives_the_space_of_deleted_objects_back() {
    if !is_possible("reclaimed_space::a_server_that_rests_gives_the_space_of_deleted_objects_back") {
        return;
    }
    // The bytes of each kind, and the length of a body: beside the rows, in a row of a key, in a row of an object.
    let mib = Scale::current().pick(120, 2_500);
    let mut test = SpaceTest::new(Scale::current().pick(1_000, 12_000));
    let kinds = [(SpaceApi::Kv, 500_000), (SpaceApi::Kv, 4_000), (SpaceApi::S3, 30_000)];
    let counts = kinds.map(|(_, length)| mib * MIB as usize / length);
    let mut first = 0;
    for ((api, length), count) in kinds.into_iter().zip(counts) {
        for number in first..first + count {
            assert!([200, 204].contains(&test.put(api, number, length)));
        }
        first += count;
    }
    let mut first = 0;
    let mut live = 0;
    for ((api, length), count) in kinds.into_iter().zip(counts) {
        // Every tenth stays.
        test.delete_all(api, (first..first + count).filter(|number| number % 10 > 0));
        live += (first..first + count).filter(|number| number % 10 == 0).count() * length;
        first += count;
    }
    let allowed = live as u64 * 13 / 10 + KEPT;
    let took = test.wait_until_used(allowed, REST_WITHIN);
    figure("bytes at rest within 1.3 of the live ones and 64 MiB after", &format!("{took:?}"));
    let mut first = 0;
    for ((api, length), count) in kinds.into_iter().zip(counts) {
        for number in first..first + count {
            let answer = match api {
                SpaceApi::Kv => test.kv.get(&format!("/buckets/{BUCKET}/keys/{number}")),
                SpaceApi::S3 => test.s3.get(&format!("/{BUCKET}/{number}")),
            };
            let expected = if number % 10 == 0 { (200, length) } else { (404, answer.body.len()) };
            assert_eq!((answer.status, answer.body.len()), expected, "{api:?} {number}");
        }
        first += count;
    }
}

/// Looks at the disk while a twentieth of the keys is overwritten a second, in no order.
#[test]
fn keys_that_are_overwritten_keep_little_more_than_their_values() {
    if !is_possible("reclaimed_space::keys_that_are_overwritten_keep_little_more_than_their_values") {
        return;
    }
    const LENGTH: usize = 4_096;
    // The memtables and journals of a small disk are small, and so is what a server has beside them.
    let (disk, live, seconds) = Scale::current().pick((256, 64 * MIB, 15), (12_000, 1_024 * MIB, 120));
    let mut test = SpaceTest::new(disk);
    let keys = live as usize / LENGTH;
    for number in 0..keys {
        assert_eq!(test.put(SpaceApi::Kv, number, LENGTH), 204);
    }
    let mut looks = Vec::new();
    let begun = Instant::now();
    for second in 1..=seconds {
        for _ in 0..keys / 20 {
            let number = test.random.below(keys);
            assert_eq!(test.put(SpaceApi::Kv, number, LENGTH), 204);
        }
        looks.push(test.disk.used());
        thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
    }
    let mean = looks.iter().sum::<u64>() / looks.len() as u64;
    let ratio = mean as f64 / live as f64;
    figure("bytes on disk a live byte while a twentieth of the keys is overwritten a second", &format!("{ratio:.2}"));
    assert!(mean <= live * 3 / 2, "{ratio:.2}: {}", test.state());
}
