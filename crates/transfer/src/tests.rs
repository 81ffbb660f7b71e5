//! From store to store, whole, interrupted, damaged.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::objects::{BucketId, Head as ObjectHead};
use larder_store::memory::MemoryStore;
use larder_store::shadows::Shadowed;
use larder_store::{
    Batch, BlobOwner, Change, Clock, Durability, Head, Level, Micros, Options, Partition, ReadQuery, Row, Table,
};
use tokio::time::Instant;

use crate::{Ends, Error, ExportOptions, Exported, Totals, export, import, shadow, verify};

const NOW: Micros = 1_700_000_000_000_000;
const VERSIONS: usize = 60;

#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Micros {
        NOW + self.0.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

fn options() -> Options {
    Options::new(Level::Quorum, Instant::now() + Duration::from_secs(60), Durability::Disk)
}

/// A store as one machine has it, or as many have it: with shadows kept by protocol.
fn ends(many: bool) -> Ends {
    let memory = Arc::new(MemoryStore::new(Arc::new(Hand::default())));
    if many {
        Ends { store: Arc::new(Shadowed::new(memory.clone())), blobs: memory }
    } else {
        Ends { store: memory.clone(), blobs: memory }
    }
}

fn row(name: impl Into<Bytes>, value: impl Into<Bytes>, stamp: u64) -> Row {
    Row { name: name.into(), value: value.into(), stamp: NOW - stamp, expires: None }
}

async fn put(ends: &Ends, partition: Partition, rows: Vec<Row>) {
    let batch = Batch::of(partition, rows.into_iter().map(Change::Put).collect());
    ends.store.apply(batch, &options()).await.unwrap();
}

async fn swap(ends: &Ends, partition: Partition, head: Row, rows: Vec<Row>) {
    let head = shadow::head_of(&partition, head).unwrap();
    let rows = rows.into_iter().map(Change::Put).collect();
    ends.store.apply_if(&partition, None, head, rows, &options()).await.unwrap();
}

async fn blob(ends: &Ends, id: u8, owner: Partition, length: usize) {
    let owner = BlobOwner { partition: owner, row: "r".into() };
    let mut writer = ends.blobs.create(BlobId([id; 24]), owner).await.unwrap();
    let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ id).collect();
    writer.write(bytes.into()).await.unwrap();
    writer.finish(Durability::Disk).await.unwrap();
}

/// Something of everything that is copied in a way of its own.
async fn filled(many: bool) -> Ends {
    let ends = ends(many);
    for number in 0..300_u64 {
        let key = format!("\x01t\x01b{number}");
        let rows = (0..1 + number % 20).map(|slot| row(format!("slot {slot:02}"), vec![slot as u8; 700], slot + 1));
        put(&ends, Partition::own(Table::Objects, key), rows.collect()).await;
    }
    let listed = (0..3000).map(|key| row(format!("key {key:05}"), "\x01", 5)).collect();
    put(&ends, Partition::own(Table::Keys, "\x01t\x01b\0\0"), listed).await;
    let goes = Row { expires: Some(NOW + 3_000_000), ..row("tombstone", "x", 2) };
    put(&ends, Partition::own(Table::Objects, "\x01t\x01bgone"), vec![goes]).await;
    swap(&ends, Partition::own(Table::Consistent, "\x01c\x01bk"), row("any slot", "v", 9), Vec::new()).await;
    swap(&ends, Partition::users(), row("", "\x01", 100), vec![row("u1", "ann", 100), row("u2", "bob", 100)]).await;
    for key in 0..40_u8 {
        // Most objects have one version; one has more than fit into a page.
        let count = if key == 7 { VERSIONS } else { usize::from(key % 3) };
        let versions = (0..count).map(|at| row(vec![at as u8; 16], vec![key; 9000], 50)).collect();
        let head = row("", ObjectHead::default().encode(), u64::from(key) + 10);
        swap(&ends, Partition::head(BucketId([3; 16]), &[key]), head, versions).await;
    }
    for (id, length) in [(1, 10), (2, 0), (3, 1024 * 1024), (4, 3 * 1024 * 1024 + 17), (5, 1024 * 1024 + 1)] {
        blob(&ends, id, Partition::own(Table::Objects, "\x01t\x01b1"), length).await;
    }
    ends
}

fn export_options(dir: &Path, id: u8) -> ExportOptions {
    ExportOptions { dir: dir.to_owned(), id: [id; 32], source: "a test".into(), segment_bytes: 200_000 }
}

async fn exported(ends: &Ends, dir: &Path, id: u8) -> Exported {
    export(ends, &export_options(dir, id), |_| ()).await.unwrap()
}

async fn totals(ends: &Ends) -> Totals {
    let dir = tempfile::tempdir().unwrap();
    let mut totals = exported(ends, dir.path(), b'z').await.totals;
    totals.partitions = 0;
    totals
}

#[track_caller]
fn same(one: &Totals, other: &Totals) {
    assert_eq!(one.differences(other), Vec::<String>::new());
    assert_eq!(one.rows(), other.rows(), "what expires is copied too");
}

#[tokio::test]
async fn there_and_back_nothing_has_changed() {
    let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = filled(false).await;
    let out = exported(&source, dir.path(), b'a').await;
    assert!(out.segments > 5, "{}", out.segments);
    assert_eq!(out.totals.blobs.count, 5);
    let many = ends(true);
    let into = import(&many, dir.path(), |_| ()).await.unwrap();
    assert_eq!((into.totals, into.resumed), (out.totals.clone(), 0));
    same(&out.totals, &verify(&many, dir.path(), |_| ()).await.unwrap());

    same(&exported(&many, back.path(), b'b').await.totals, &out.totals);
    let one = ends(false);
    import(&one, back.path(), |_| ()).await.unwrap();
    same(&totals(&one).await, &totals(&source).await);
    let seen = one.store.read(&Partition::own(Table::Objects, "\x01t\x01bgone"), &ReadQuery::all(9), &options()).await;
    assert_eq!(seen.unwrap().rows[0].expires, Some(NOW + 3_000_000));
}

#[tokio::test]
async fn a_second_export_into_a_directory_was_once_silently_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let source = filled(false).await;
    let first = exported(&source, dir.path(), b'a').await;
    let error = export(&source, &export_options(dir.path(), b'b'), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("holds a complete export already") && error.contains(&first.id), "{error}");
    assert!(error.contains(", begun 2023-11-14T22:13:20Z"), "{error}");
}

#[tokio::test]
async fn a_second_import_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    exported(&filled(false).await, dir.path(), b'a').await;
    let target = ends(false);
    import(&target, dir.path(), |_| ()).await.unwrap();
    let again = import(&target, dir.path(), |_| ()).await.unwrap();
    assert_eq!(again.resumed, again.segments);
    verify(&target, dir.path(), |_| ()).await.unwrap();
}

/// Runs `work`, but only until it told its progress so many times; whether it came to its end.
async fn interrupted<T>(
    steps: u64,
    work: impl AsyncFnOnce(&AtomicU64, &tokio::sync::Notify) -> crate::Result<T>,
) -> bool {
    let (left, enough) = (AtomicU64::new(steps), tokio::sync::Notify::new());
    tokio::select! {
        biased;
        () = enough.notified() => false,
        done = work(&left, &enough) => done.map(|_| true).unwrap(),
    }
}

fn step(left: &AtomicU64, enough: &tokio::sync::Notify) {
    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
        enough.notify_one();
    }
}

#[tokio::test]
async fn interrupted_anywhere_it_goes_on_and_comes_to_the_same() {
    let source = filled(false).await;
    let whole = totals(&source).await;
    for (round, steps) in [3_u64, 41, 90, 200].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut breaks = 0;
        for attempt in 0.. {
            let how = export_options(dir.path(), b'a' + round as u8);
            let run = async |left: &AtomicU64, enough: &tokio::sync::Notify| {
                export(&source, &how, |_| step(left, enough)).await
            };
            if interrupted(steps + attempt, run).await {
                break;
            }
            breaks += 1;
            fs::write(dir.path().join("segment-000099.part"), "left of a dead process").unwrap();
        }
        assert!(breaks > 0, "{steps}");
        let (target, mut breaks) = (ends(round % 2 == 0), 0);
        for attempt in 0.. {
            let run = async |left: &AtomicU64, enough: &tokio::sync::Notify| {
                import(&target, dir.path(), |_| step(left, enough)).await
            };
            if interrupted(steps + attempt, run).await {
                break;
            }
            breaks += 1;
        }
        assert!(breaks > 0, "{steps}");
        verify(&target, dir.path(), |_| ()).await.unwrap();
        same(&totals(&target).await, &whole);
    }
}

#[tokio::test]
async fn a_target_that_has_something_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    exported(&filled(false).await, dir.path(), b'a').await;
    let target = ends(false);
    put(&target, Partition::own(Table::Objects, "\x01t\x01bmine"), vec![row("r", "v", 1)]).await;
    let before = totals(&target).await;
    let error = import(&target, dir.path(), |_| ()).await.unwrap_err();
    assert_eq!(error.to_string(), "the target is not empty: it has objects");
    assert_eq!(totals(&target).await, before);
}

#[tokio::test]
async fn the_admin_every_server_makes_gives_way_to_the_users_of_the_export() {
    let dir = tempfile::tempdir().unwrap();
    let out = exported(&filled(false).await, dir.path(), b'a').await;
    let target = ends(true);
    let admin = ["a", "e admin", "k key", "u admin"].map(|name| Row { stamp: NOW + 5, ..row(name, "admin", 0) });
    swap(&target, Partition::users(), Row { stamp: NOW + 5, ..row("", "\x01", 0) }, admin.to_vec()).await;
    import(&target, dir.path(), |_| ()).await.unwrap();
    same(&out.totals, &verify(&target, dir.path(), |_| ()).await.unwrap());
    let users = target.store.read(&Partition::users(), &ReadQuery::all(99), &options()).await.unwrap();
    assert_eq!(users.rows.iter().map(|row| &row.name[..]).collect::<Vec<_>>(), [&b""[..], b"u1", b"u2"]);
}

#[tokio::test]
async fn another_import_that_was_interrupted_is_finished_first() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = filled(false).await;
    exported(&source, dir.path(), b'a').await;
    exported(&source, other.path(), b'b').await;
    let target = ends(false);
    let run = async |left: &AtomicU64, enough: &tokio::sync::Notify| {
        import(&target, dir.path(), |_| step(left, enough)).await
    };
    assert!(!interrupted(20, run).await);
    let error = import(&target, other.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("the import of another export (aaaa"), "{error}");
}

#[tokio::test]
async fn a_damaged_segment_is_named_and_a_difference_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = filled(false).await;
    exported(&source, dir.path(), b'a').await;
    put(&source, Partition::own(Table::Objects, "\x01t\x01bmore"), vec![row("r", "v", 1)]).await;
    let Error::Differs(lines) = verify(&source, dir.path(), |_| ()).await.unwrap_err() else { panic!("it differs") };
    assert!(lines.len() == 1 && lines[0].starts_with("objects: exported "), "{lines:?}");
    let path = dir.path().join("segment-000002");
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = import(&ends(false), dir.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.ends_with("segment-000002 is damaged: its checksum is wrong"), "{error}");
}

#[tokio::test]
async fn another_servers_data_does_not_go_on_with_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let (source, how) = (filled(false).await, export_options(dir.path(), b'a'));
    let run =
        async |left: &AtomicU64, enough: &tokio::sync::Notify| export(&source, &how, |_| step(left, enough)).await;
    assert!(!interrupted(30, run).await);
    let error = export(&ends(false), &how, |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("holds an unfinished export of another server's data"), "{error}");
    let error = import(&ends(false), dir.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("was not finished"), "{error}");
}

#[tokio::test]
async fn rows_from_a_time_that_has_not_come_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = ends(false);
    let late = Row { stamp: NOW + 120_000_000, ..row("r", "v", 0) };
    put(&source, Partition::own(Table::Objects, "\x01t\x01bk"), vec![late]).await;
    exported(&source, dir.path(), b'a').await;
    let error = import(&ends(false), dir.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("120 s ahead of this machine's clock"), "{error}");
}

#[tokio::test]
async fn what_expired_meanwhile_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    exported(&filled(false).await, dir.path(), b'a').await;
    let clock = Arc::new(Hand(AtomicU64::new(10_000_000)));
    let memory = Arc::new(MemoryStore::new(clock));
    let target = Ends { store: memory.clone(), blobs: memory };
    import(&target, dir.path(), |_| ()).await.unwrap();
    assert_eq!(verify(&target, dir.path(), |_| ()).await.unwrap().of(Table::Objects).expiring, 0);
}

#[tokio::test]
async fn heads_come_with_their_shadows() {
    let head = Head::from(row("", "v", 1));
    assert_eq!(head.shadow, None);
    let partition = Partition::head(BucketId([3; 16]), b"k");
    let head = shadow::head_of(&partition, row("", ObjectHead::default().encode(), 1)).unwrap();
    assert_eq!(head.shadow.unwrap().name, "k");
    assert!(shadow::head_of(&partition, row("", "no head", 1)).is_err());
}

/// The embedded engine keeps blobs as rows and as files, and rows packed and wide.
#[tokio::test(flavor = "multi_thread")]
async fn through_the_embedded_engine_nothing_has_changed() {
    let (dir, back, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = filled(true).await;
    let out = exported(&source, dir.path(), b'a').await;
    let store = larder_store_local::LocalStore::open(larder_store_local::OpenOptions {
        dir: data.path().to_owned(),
        cache_bytes: 8 << 20,
        memtables_bytes: u64::MAX,
        durable: true,
        accept_damaged_journal: false,
        sizes: None,
        clock: Arc::new(Hand::default()),
    });
    let store = store.unwrap();
    let blobs =
        larder_store_local::blobs::LocalBlobs::open(data.path(), store.bulk_rows(), store.disk_space()).unwrap();
    let one = Ends { store: Arc::new(store), blobs: Arc::new(blobs) };
    import(&one, dir.path(), |_| ()).await.unwrap();
    same(&out.totals, &verify(&one, dir.path(), |_| ()).await.unwrap());
    same(&exported(&one, back.path(), b'b').await.totals, &out.totals);
}
