use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_encryption::at_rest::{AtRestError, DataKeys, SealWish, SealedBlobs, SealedStore};
use larder_encryption::key_ring::{KeyRing, MemoryKeys};
use larder_encryption::{MasterKeyId, SecretKey};
use larder_rows::SEALED_VERSION;
use larder_rows::content::BlobId;
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, BlobOwner, Blobs, CallOptions, Change, ConsistencyLevel, Durability, Kind, Partition, ReadQuery, Row, Store,
    Table, Timestamp,
};
use larder_testkit::conformance::{ManualClock, blob_conformance, conformance_but_for_ties};
use tokio::time::Instant;

pub(super) const TEA: &[u8] = b"\x01tea that nobody may read";

fn random(bytes: &mut [u8]) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    for chunk in bytes.chunks_mut(8) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        chunk.copy_from_slice(&number[..chunk.len()]);
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn options() -> CallOptions {
    CallOptions::new(ConsistencyLevel::Quorum, soon(), Durability::Disk)
}

fn ring(keys: &[u8]) -> Arc<KeyRing> {
    let lines: Vec<String> = keys.iter().map(|key| STANDARD.encode([*key; 32])).collect();
    Arc::new(KeyRing::parse(&lines.join("\n"), Arc::new(MemoryKeys)).unwrap())
}

fn id(key: u8) -> MasterKeyId {
    SecretKey::new([key; 32]).master_id()
}

/// An engine in memory, and servers over it one after another.
pub(super) struct Disk {
    clock: Arc<ManualClock>,
    pub(super) engine: Arc<MemoryStore>,
}

/// One run of a server.
pub(super) struct Run {
    keys: Arc<DataKeys>,
    pub(super) store: Arc<dyn Store>,
    pub(super) blobs: Arc<dyn Blobs>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { engine: Arc::new(MemoryStore::new(clock.clone())), clock }
    }

    async fn start(&self, masters: &[u8], seals: bool) -> Result<Option<Run>, AtRestError> {
        self.start_over(self.engine.clone(), masters, seals).await
    }

    /// A server whose rows pass another store on their way to the engine.
    pub(super) async fn start_over(
        &self,
        rows: Arc<dyn Store>,
        masters: &[u8],
        seals: bool,
    ) -> Result<Option<Run>, AtRestError> {
        let wish = if seals { SealWish::Seal } else { SealWish::Nothing };
        let keys = DataKeys::open(rows.clone(), ring(masters), random, wish, soon()).await?;
        Ok(keys.map(|keys| Run {
            store: Arc::new(SealedStore::new(rows, keys.clone())),
            blobs: Arc::new(SealedBlobs::new(self.engine.clone(), keys.clone(), random)),
            keys,
        }))
    }

    pub(super) async fn run(&self, masters: &[u8], seals: bool) -> Run {
        self.start(masters, seals).await.unwrap().expect("sealed rows or a wish for them")
    }

    async fn stored(&self, name: &'static str) -> Bytes {
        value(&*self.engine, name).await
    }
}

fn partition() -> Partition {
    Partition::new(Table::Keys, "p")
}

pub(super) async fn put(store: &dyn Store, name: &'static str, value: &'static [u8]) {
    let row = Row { name: name.into(), value: Bytes::from_static(value), stamp: Timestamp(5), expires: None };
    store.apply(Batch::single(partition(), vec![Change::Put(row)]), &options()).await.unwrap();
}

async fn value(store: &dyn Store, name: &'static str) -> Bytes {
    let mut page = store.read(&partition(), &ReadQuery::one(name.into()), &options()).await.unwrap();
    page.rows.remove(0).value
}

pub(super) async fn write_blob(blobs: &dyn Blobs, blob: u8, body: &[u8]) {
    let owner = BlobOwner { partition: partition(), row: "r".into() };
    let mut writer = blobs.create(BlobId([blob; 24]), owner).await.unwrap();
    writer.announce(body.len() as u64).await.unwrap();
    for piece in body.chunks(50_000) {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    drop(writer.finish(Durability::Disk).await.unwrap());
}

pub(super) async fn read_blob(blobs: &dyn Blobs, blob: u8) -> Result<Vec<u8>, Kind> {
    let mut reader = blobs.open(BlobId([blob; 24])).await.map_err(|error| error.kind)?;
    let mut body = Vec::new();
    while (body.len() as u64) < reader.length() {
        body.extend_from_slice(&reader.read(body.len() as u64, 70_000).await.map_err(|error| error.kind)?);
    }
    Ok(body)
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_store_keeps_the_promises_of_an_engine() {
    let disk = Disk::new();
    let run = disk.run(&[1], true).await;
    conformance_but_for_ties(run.store, disk.clock.clone()).await;
    blob_conformance(run.blobs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_seals_nothing_new_keeps_the_promises_too() {
    let disk = Disk::new();
    put(&*disk.run(&[1], true).await.store, "sealed", TEA).await;
    let run = disk.run(&[1], false).await;
    larder_testkit::conformance::conformance(run.store, disk.clock.clone()).await;
    blob_conformance(run.blobs).await;
}

#[tokio::test]
async fn an_engine_sees_no_clear_value_and_no_clear_body() {
    let disk = Disk::new();
    let run = disk.run(&[1], true).await;
    put(&*run.store, "a", TEA).await;
    let stored = disk.stored("a").await;
    assert!(stored[0] == SEALED_VERSION && !holds(&stored, b"tea"), "{stored:?}");
    assert_eq!(value(&*run.store, "a").await, TEA);
    let body = TEA.repeat(10_000);
    write_blob(&*run.blobs, 1, &body).await;
    let stored = read_blob(&*disk.engine, 1).await.unwrap();
    assert!(!holds(&stored, b"tea"));
    assert_eq!(read_blob(&*run.blobs, 1).await, Ok(body));
}

#[tokio::test]
async fn clear_and_sealed_values_lie_beside_each_other() {
    let disk = Disk::new();
    assert!(disk.start(&[1], false).await.unwrap().is_none(), "a store without data keys needs no ring");
    put(&*disk.engine, "old", TEA).await;
    let looks_sealed = [&b"larder\xe5\x01"[..], &[7; 100]].concat();
    write_blob(&*disk.engine, 1, &looks_sealed).await;
    let sealing = disk.run(&[1], true).await;
    put(&*sealing.store, "new", TEA).await;
    write_blob(&*sealing.blobs, 2, TEA).await;
    for run in [disk.run(&[1], true).await, disk.run(&[1], false).await] {
        assert_eq!((value(&*run.store, "old").await, value(&*run.store, "new").await), (TEA.into(), TEA.into()));
        assert_eq!(read_blob(&*run.blobs, 1).await, Ok(looks_sealed.clone()));
        assert_eq!(read_blob(&*run.blobs, 2).await, Ok(TEA.to_vec()));
    }
    let clear = disk.run(&[1], false).await;
    put(&*clear.store, "clear again", TEA).await;
    assert_eq!(disk.stored("clear again").await, TEA);
}

#[tokio::test]
async fn a_start_without_a_master_key_names_it() {
    let disk = Disk::new();
    put(&*disk.run(&[1], true).await.store, "a", TEA).await;
    for (masters, seals) in [(&[2][..], true), (&[2], false), (&[], false)] {
        let refused = disk.start(masters, seals).await.err().unwrap();
        assert!(refused.to_string().contains(&id(1).to_string()), "{refused}");
    }
    assert_eq!(value(&*disk.run(&[1, 2], true).await.store, "a").await, TEA);
}

#[tokio::test]
async fn a_gateway_opens_what_another_sealed_after_its_start() {
    let disk = Disk::new();
    let (first, second) = (disk.run(&[1], true).await, disk.run(&[1], true).await);
    put(&*second.store, "a", TEA).await;
    write_blob(&*second.blobs, 1, TEA).await;
    assert!(first.store.try_read_row(&partition(), &"a".into()).is_none(), "it waits for the key");
    assert_eq!(value(&*first.store, "a").await, TEA);
    assert_eq!(read_blob(&*first.blobs, 1).await, Ok(TEA.to_vec()));
}

/// Gateways get keys one after another: one that does not know the newest reads on what the others seal with older ones.
#[tokio::test]
async fn a_data_key_under_an_unknown_master_key_costs_its_own_rows_alone() {
    let disk = Disk::new();
    let (first, second) = (disk.run(&[1], true).await, disk.run(&[1, 2], true).await);
    let third = disk.run(&[1], true).await;
    put(&*second.store, "newer", TEA).await;
    put(&*third.store, "a", TEA).await;
    assert_eq!(value(&*first.store, "a").await, TEA);
    let refused = first.store.read(&partition(), &ReadQuery::one("newer".into()), &options()).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Damaged, "{refused}");
}

#[tokio::test]
async fn after_a_rotation_an_old_master_key_is_not_needed() {
    let disk = Disk::new();
    put(&*disk.run(&[1], true).await.store, "a", TEA).await;
    let run = disk.run(&[1, 2], true).await;
    put(&*run.store, "b", TEA).await;
    assert_eq!(run.keys.status().wrapped_by.len(), 2);
    assert_eq!(run.keys.rewrap(soon()).await.unwrap(), 1);
    assert_eq!(run.keys.status().wrapped_by, [(id(2), 2)]);
    assert_eq!(run.keys.rewrap(soon()).await.unwrap(), 0);
    put(&*run.store, "c", TEA).await;
    let later = disk.run(&[2], true).await;
    for name in ["a", "b", "c"] {
        assert_eq!(value(&*later.store, name).await, TEA, "{name}");
    }
}

#[tokio::test]
async fn a_value_in_another_row_and_a_damaged_body_are_damage() {
    let disk = Disk::new();
    let run = disk.run(&[1], true).await;
    put(&*run.store, "a", TEA).await;
    let moved = Row { name: "b".into(), value: disk.stored("a").await, stamp: Timestamp(5), expires: None };
    disk.engine.apply(Batch::single(partition(), vec![Change::Put(moved)]), &options()).await.unwrap();
    let refused = run.store.read(&partition(), &ReadQuery::one("b".into()), &options()).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Damaged, "{refused}");
    write_blob(&*run.blobs, 1, &[7; 200_000]).await;
    let mut stored = read_blob(&*disk.engine, 1).await.unwrap();
    stored[100_000] ^= 1;
    write_blob(&*disk.engine, 1, &stored).await;
    assert_eq!(read_blob(&*run.blobs, 1).await, Err(Kind::Damaged));
    // Under another id.
    stored[100_000] ^= 1;
    write_blob(&*disk.engine, 2, &stored).await;
    assert_eq!(read_blob(&*run.blobs, 2).await, Ok(stored), "its check is wrong: a clear body, as far as one can tell");
}

/// Two runs must not count with one key: equal numbers would show what two values have in common.
#[tokio::test]
async fn each_run_has_a_data_key_of_its_own() {
    let disk = Disk::new();
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        put(&*disk.run(&[1], true).await.store, name, TEA).await;
        ids.push(disk.stored(name).await.slice(2..10));
    }
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
}
