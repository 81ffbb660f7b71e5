//! Exports and imports from store to store: whole, interrupted and damaged.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_s3_rules::{BucketId, ObjectHead};
use larder_store::derived_rows::DerivedRowStore;
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, BlobOwner, BlobReader, BlobWriter, Blobs, CallOptions, Change, Clock, ConsistencyLevel, Durability,
    HeadWrite, Kind, ListedBlob, Partition, ReadQuery, Row, Table, Timestamp,
};
use tokio::time::Instant;

use crate::{Error, ExportOptions, Exported, StorePair, Totals, derived, export, import, verify};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
const VERSIONS: usize = 60;

#[derive(Default)]
struct TransferClock(AtomicU64);

impl Clock for TransferClock {
    fn now(&self) -> Timestamp {
        NOW + self.0.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

fn options() -> CallOptions {
    CallOptions::new(ConsistencyLevel::Quorum, Instant::now() + Duration::from_secs(60), Durability::Disk)
}

/// The stores of one machine, or of many machines: those keep derived rows by protocol.
fn stores(many: bool) -> StorePair {
    let memory = Arc::new(MemoryStore::new(Arc::new(TransferClock::default())));
    if many {
        StorePair { store: Arc::new(DerivedRowStore::new(memory.clone())), blobs: memory }
    } else {
        StorePair { store: memory.clone(), blobs: memory }
    }
}

fn row(name: impl Into<Bytes>, value: impl Into<Bytes>, stamp: u64) -> Row {
    Row { name: name.into(), value: value.into(), stamp: NOW - stamp, expires: None }
}

async fn put(stores: &StorePair, partition: Partition, rows: Vec<Row>) {
    let batch = Batch::single(partition, rows.into_iter().map(Change::Put).collect());
    stores.store.apply(batch, &options()).await.unwrap();
}

async fn compare_and_set(stores: &StorePair, partition: Partition, head: Row, rows: Vec<Row>) {
    let head = derived::head_with_derived_row(&partition, head).unwrap();
    let rows = rows.into_iter().map(Change::Put).collect();
    stores.store.apply_if(&partition, None, head, rows, &options()).await.unwrap();
}

async fn blob(stores: &StorePair, id: u8, owner: Partition, length: usize) {
    let owner = BlobOwner { partition: owner, row: "r".into() };
    let mut writer = stores.blobs.create(BlobId([id; 24]), owner).await.unwrap();
    let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ id).collect();
    writer.write(bytes.into()).await.unwrap();
    writer.finish(Durability::Disk).await.unwrap();
}

/// Stores with data of each kind that is copied in its own way.
async fn filled(many: bool) -> StorePair {
    let stores = stores(many);
    for number in 0..300_u64 {
        let key = format!("\x01t\x01b{number}");
        let rows = (0..1 + number % 20).map(|slot| row(format!("slot {slot:02}"), vec![slot as u8; 700], slot + 1));
        put(&stores, Partition::new(Table::Objects, key), rows.collect()).await;
    }
    let listed = (0..3000).map(|key| row(format!("key {key:05}"), "\x01", 5)).collect();
    put(&stores, Partition::new(Table::Keys, "\x01t\x01b\0\0"), listed).await;
    let goes = Row { expires: Some(NOW + 3_000_000), ..row("tombstone", "x", 2) };
    put(&stores, Partition::new(Table::Objects, "\x01t\x01bgone"), vec![goes]).await;
    compare_and_set(&stores, Partition::new(Table::Consistent, "\x01c\x01bk"), row("any slot", "v", 9), Vec::new())
        .await;
    compare_and_set(
        &stores,
        Partition::users(),
        row("", "\x01", 100),
        vec![row("u1", "ann", 100), row("u2", "bob", 100)],
    )
    .await;
    for key in 0..40_u8 {
        // Most objects have one version; one has more than fit into a page.
        let count = if key == 7 { VERSIONS } else { usize::from(key % 3) };
        let versions = (0..count).map(|at| row(vec![at as u8; 16], vec![key; 9000], 50)).collect();
        let head = row("", ObjectHead::default().encode(), u64::from(key) + 10);
        compare_and_set(&stores, Partition::head(BucketId([3; 16]), &[key]), head, versions).await;
    }
    for (id, length) in [(1, 10), (2, 0), (3, 1024 * 1024), (4, 3 * 1024 * 1024 + 17), (5, 1024 * 1024 + 1)] {
        blob(&stores, id, Partition::new(Table::Objects, "\x01t\x01b1"), length).await;
    }
    stores
}

fn export_options(dir: &Path, id: u8) -> ExportOptions {
    ExportOptions { dir: dir.to_owned(), id: [id; 32], source: "a test".into(), segment_bytes: 200_000 }
}

async fn exported(stores: &StorePair, dir: &Path, id: u8) -> Exported {
    export(stores, &export_options(dir, id), |_| ()).await.unwrap()
}

async fn totals(stores: &StorePair) -> Totals {
    let dir = tempfile::tempdir().unwrap();
    let mut totals = exported(stores, dir.path(), b'z').await.totals;
    totals.partitions = 0;
    totals
}

#[track_caller]
fn same(source: &Totals, copy: &Totals) {
    assert_eq!(source.differences(copy), Vec::<String>::new());
    assert_eq!(source.rows(), copy.rows(), "expiring rows are copied too");
}

#[tokio::test]
async fn an_export_and_an_import_in_both_directions_change_no_row() {
    let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = filled(false).await;
    let out = exported(&source, dir.path(), b'a').await;
    assert!(out.segments > 5, "{}", out.segments);
    assert_eq!(out.totals.blobs.count, 5);
    let many = stores(true);
    let into = import(&many, dir.path(), |_| ()).await.unwrap();
    assert_eq!((into.totals, into.resumed), (out.totals.clone(), 0));
    same(&out.totals, &verify(&many, dir.path(), |_| ()).await.unwrap());

    same(&exported(&many, back.path(), b'b').await.totals, &out.totals);
    let target = stores(false);
    import(&target, back.path(), |_| ()).await.unwrap();
    same(&totals(&target).await, &totals(&source).await);
    let seen =
        target.store.read(&Partition::new(Table::Objects, "\x01t\x01bgone"), &ReadQuery::all(9), &options()).await;
    assert_eq!(seen.unwrap().rows[0].expires, Some(NOW + 3_000_000));
}

#[tokio::test]
async fn a_second_export_into_the_same_directory_is_refused() {
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
    let target = stores(false);
    import(&target, dir.path(), |_| ()).await.unwrap();
    let again = import(&target, dir.path(), |_| ()).await.unwrap();
    assert_eq!(again.resumed, again.segments);
    verify(&target, dir.path(), |_| ()).await.unwrap();
}

/// Runs `work` until it reports progress `steps` times; returns whether it finished.
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
async fn an_interrupted_transfer_resumes_to_the_same_totals() {
    let source = filled(false).await;
    let whole = totals(&source).await;
    for (round, steps) in [3_u64, 41, 90, 200].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut breaks = 0;
        for attempt in 0.. {
            let transfer_method = export_options(dir.path(), b'a' + round as u8);
            let run = async |left: &AtomicU64, enough: &tokio::sync::Notify| {
                export(&source, &transfer_method, |_| step(left, enough)).await
            };
            if interrupted(steps + attempt, run).await {
                break;
            }
            breaks += 1;
            fs::write(dir.path().join("segment-000099.part"), "left of a dead process").unwrap();
        }
        assert!(breaks > 0, "{steps}");
        let (target, mut breaks) = (stores(round % 2 == 0), 0);
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

/// Blobs of which one is late: its first write or end after so many calls of all has no answer.
struct LateBlobs {
    inner: Arc<dyn Blobs>,
    calls_left: Arc<AtomicU64>,
}

struct LateWriter {
    inner: Box<dyn BlobWriter>,
    calls_left: Arc<AtomicU64>,
}

impl LateWriter {
    fn call(&self) -> larder_store::Result<()> {
        match self.calls_left.fetch_sub(1, Ordering::Relaxed) {
            1 => Err(larder_store::Error::new(Kind::TimedOut, "no answer")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Blobs for LateBlobs {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> larder_store::Result<Box<dyn BlobWriter>> {
        let inner = self.inner.create(id, owner).await?;
        Ok(Box::new(LateWriter { inner, calls_left: Arc::clone(&self.calls_left) }))
    }

    async fn open(&self, id: BlobId) -> larder_store::Result<Box<dyn BlobReader>> {
        self.inner.open(id).await
    }

    async fn remove(&self, id: BlobId) -> larder_store::Result<()> {
        self.inner.remove(id).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> larder_store::Result<Vec<ListedBlob>> {
        self.inner.list(after, limit).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[async_trait]
impl BlobWriter for LateWriter {
    async fn write(&mut self, bytes: Bytes) -> larder_store::Result<()> {
        self.call()?;
        self.inner.write(bytes).await
    }

    async fn finish(self: Box<Self>, durability: Durability) -> larder_store::Result<Box<dyn Send + Sync>> {
        self.call()?;
        self.inner.finish(durability).await
    }
}

#[tokio::test]
async fn an_import_once_ended_at_one_late_answer_for_a_large_blob() {
    let source = filled(false).await;
    let dir = tempfile::tempdir().unwrap();
    exported(&source, dir.path(), b'a').await;
    for call in 1..=13 {
        let mut target = stores(false);
        let calls_left = Arc::new(AtomicU64::new(call));
        target.blobs = Arc::new(LateBlobs { inner: target.blobs, calls_left: Arc::clone(&calls_left) });
        import(&target, dir.path(), |_| ()).await.unwrap();
        assert!(calls_left.load(Ordering::Relaxed) > call, "call {call} was made");
        verify(&target, dir.path(), |_| ()).await.unwrap();
    }
}

#[tokio::test]
async fn an_import_into_a_store_with_data_is_refused_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    exported(&filled(false).await, dir.path(), b'a').await;
    let target = stores(false);
    put(&target, Partition::new(Table::Objects, "\x01t\x01bmine"), vec![row("r", "v", 1)]).await;
    let before = totals(&target).await;
    let error = import(&target, dir.path(), |_| ()).await.unwrap_err();
    assert_eq!(error.to_string(), "the target is not empty: it has objects");
    assert_eq!(totals(&target).await, before);
}

#[tokio::test]
async fn the_users_of_the_export_replace_the_targets_admin() {
    let dir = tempfile::tempdir().unwrap();
    let out = exported(&filled(false).await, dir.path(), b'a').await;
    let target = stores(true);
    let admin = ["a", "e admin", "k key", "u admin"].map(|name| Row { stamp: NOW + 5, ..row(name, "admin", 0) });
    compare_and_set(&target, Partition::users(), Row { stamp: NOW + 5, ..row("", "\x01", 0) }, admin.to_vec()).await;
    import(&target, dir.path(), |_| ()).await.unwrap();
    same(&out.totals, &verify(&target, dir.path(), |_| ()).await.unwrap());
    let users = target.store.read(&Partition::users(), &ReadQuery::all(99), &options()).await.unwrap();
    assert_eq!(users.rows.iter().map(|row| &row.name[..]).collect::<Vec<_>>(), [&b""[..], b"u1", b"u2"]);
}

#[tokio::test]
async fn an_interrupted_import_blocks_the_import_of_another_export() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = filled(false).await;
    exported(&source, dir.path(), b'a').await;
    exported(&source, other.path(), b'b').await;
    let target = stores(false);
    let run = async |left: &AtomicU64, enough: &tokio::sync::Notify| {
        import(&target, dir.path(), |_| step(left, enough)).await
    };
    assert!(!interrupted(20, run).await);
    let error = import(&target, other.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("the import of another export (aaaa"), "{error}");
}

#[tokio::test]
async fn a_damaged_segment_and_a_differing_table_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let source = filled(false).await;
    exported(&source, dir.path(), b'a').await;
    put(&source, Partition::new(Table::Objects, "\x01t\x01bmore"), vec![row("r", "v", 1)]).await;
    let Error::Differs(lines) = verify(&source, dir.path(), |_| ()).await.unwrap_err() else { panic!("it differs") };
    assert!(lines.len() == 1 && lines[0].starts_with("objects: exported "), "{lines:?}");
    let path = dir.path().join("segment-000002");
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = import(&stores(false), dir.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.ends_with("segment-000002 is damaged: its checksum is wrong"), "{error}");
}

#[tokio::test]
async fn an_export_does_not_resume_with_another_servers_data() {
    let dir = tempfile::tempdir().unwrap();
    let (source, transfer_method) = (filled(false).await, export_options(dir.path(), b'a'));
    let run = async |left: &AtomicU64, enough: &tokio::sync::Notify| {
        export(&source, &transfer_method, |_| step(left, enough)).await
    };
    assert!(!interrupted(30, run).await);
    let error = export(&stores(false), &transfer_method, |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("holds an unfinished export of another server's data"), "{error}");
    let error = import(&stores(false), dir.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("was not finished"), "{error}");
}

#[tokio::test]
async fn an_export_with_rows_from_the_future_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = stores(false);
    let late = Row { stamp: NOW + 120_000_000, ..row("r", "v", 0) };
    put(&source, Partition::new(Table::Objects, "\x01t\x01bk"), vec![late]).await;
    exported(&source, dir.path(), b'a').await;
    let error = import(&stores(false), dir.path(), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("120 s ahead of this machine's clock"), "{error}");
}

#[tokio::test]
async fn rows_that_expired_since_the_export_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    exported(&filled(false).await, dir.path(), b'a').await;
    let clock = Arc::new(TransferClock(AtomicU64::new(10_000_000)));
    let memory = Arc::new(MemoryStore::new(clock));
    let target = StorePair { store: memory.clone(), blobs: memory };
    import(&target, dir.path(), |_| ()).await.unwrap();
    assert_eq!(verify(&target, dir.path(), |_| ()).await.unwrap().table(Table::Objects).expiring, 0);
}

#[tokio::test]
async fn heads_get_their_derived_rows() {
    let head = HeadWrite::from(row("", "v", 1));
    assert_eq!(head.derived, None);
    let partition = Partition::head(BucketId([3; 16]), b"k");
    let head = derived::head_with_derived_row(&partition, row("", ObjectHead::default().encode(), 1)).unwrap();
    assert_eq!(head.derived.unwrap().name, "k");
    assert!(derived::head_with_derived_row(&partition, row("", "no head", 1)).is_err());
}

/// The embedded engine keeps blobs both as rows and as files, and rows both packed and wide.
#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_through_the_embedded_engine_changes_no_row() {
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
        clock: Arc::new(TransferClock::default()),
    });
    let store = store.unwrap();
    let blobs =
        larder_store_local::blobs::LocalBlobs::open(data.path(), store.bulk_rows(), store.disk_space()).unwrap();
    let target = StorePair { store: Arc::new(store), blobs: Arc::new(blobs) };
    import(&target, dir.path(), |_| ()).await.unwrap();
    same(&out.totals, &verify(&target, dir.path(), |_| ()).await.unwrap());
    same(&exported(&target, back.path(), b'b').await.totals, &out.totals);
}
