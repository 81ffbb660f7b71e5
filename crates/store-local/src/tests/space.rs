//! A store and its blobs on a full disk.

use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Blobs, Kind, Purpose};
use larder_testkit::SplitMix64;
use lsm_tree::AbstractTree as _;

use super::*;
use crate::blobs::{BULK_MAX, LocalBlobs};
use crate::disk_space::testing::{FakeDisk, space_on};
use crate::flush::{flush, restore_directory};
use crate::output_sync::is_over_bound;
use crate::tree::EngineTree;
use crate::tree_id::TreeId;
use crate::tree_reclaim::ReclaimedPart;
use crate::trees::Trees;

const MIB: u64 = 1024 * 1024;

struct FullDiskFixture {
    dir: tempfile::TempDir,
    disk: Arc<FakeDisk>,
    clock: Arc<FrozenClock>,
    store: LocalStore,
    blobs: LocalBlobs,
}

fn fixture() -> FullDiskFixture {
    let dir = tempfile::tempdir().unwrap();
    let (disk, clock) = (FakeDisk::with_bytes(1024 * MIB), Arc::new(FrozenClock(AtomicU64::new(1_000_000))));
    let space = space_on(&disk, clock.clone());
    let options = OpenOptions { clock: clock.clone(), ..options(dir.path()) };
    let store = LocalStore::open_in(options, space.clone(), |journal| Box::new(journal)).unwrap();
    let blobs = LocalBlobs::open(dir.path(), store.bulk_rows(), space).unwrap();
    *disk.blobs.lock() = Some(dir.path().join("blobs"));
    FullDiskFixture { dir, disk, clock, store, blobs }
}

impl FullDiskFixture {
    fn floor(&self, purpose: Purpose) -> u64 {
        self.store.disk_space().stats().floors[purpose as usize]
    }

    /// Leaves `bytes` free above the floor of data.
    fn leave(&self, bytes: u64) {
        self.disk.set(self.floor(Purpose::Data) + bytes);
        self.clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    }

    /// Files below the folder of blobs, unfinished ones included.
    fn files(&self) -> usize {
        let folders = std::fs::read_dir(self.dir.path().join("blobs")).unwrap();
        folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
    }

    async fn assert_nothing_left(&self) {
        for _ in 0..500 {
            if self.files() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.files(), 0);
        assert!(self.blobs.list(None, 10).await.unwrap().is_empty());
        assert_eq!(self.store.disk_space().stats().held, 0);
    }

    async fn put_blob(&self, number: u8, announced: Option<u64>, bytes: u64) -> Result<()> {
        let partition = place(Table::Objects, 1);
        let owner = BlobOwner { partition, row: "row".into() };
        let mut writer = self.blobs.create(BlobId([number; 24]), owner).await?;
        if let Some(announced) = announced {
            writer.announce(announced).await?;
        }
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(100_000);
            writer.write(vec![7; piece as usize].into()).await?;
            left -= piece;
        }
        writer.finish(Durability::Disk).await.map(drop)
    }
}

fn kind<T>(answer: Result<T>) -> Kind {
    answer.err().expect("an error").kind
}

async fn remove(store: &LocalStore, key: u64) -> Result<()> {
    let gone = Change::Remove { name: "row".into(), stamp: Timestamp(2) };
    let table = if key.is_multiple_of(2) { Table::Objects } else { Table::Keys };
    store.apply(Batch::single(place(table, key), vec![gone]), &call(Durability::Disk).reclaiming()).await
}

#[tokio::test]
async fn deletes_go_on_when_puts_are_refused_and_puts_return_with_the_space() {
    let f = fixture();
    for key in 0..20 {
        put(&f.store, key, Durability::Disk).await.unwrap();
    }
    f.leave(0);
    let refused = put(&f.store, 100, Durability::Disk).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Full);
    assert!(refused.context.contains("are free"), "{refused}");
    for key in 0..20 {
        remove(&f.store, key).await.unwrap();
        assert!(!is_there(&f.store, key).await);
    }
    assert!(f.store.is_ready() && !is_there(&f.store, 100).await);
    f.leave(MIB);
    put(&f.store, 100, Durability::Disk).await.unwrap();
    assert!(is_there(&f.store, 100).await);
}

#[tokio::test]
async fn below_the_last_floor_all_writes_are_refused_and_reads_go_on() {
    let f = fixture();
    put(&f.store, 1, Durability::Disk).await.unwrap();
    f.disk.set(f.floor(Purpose::Reclaim));
    f.clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    assert_eq!(kind(remove(&f.store, 1).await), Kind::Full);
    assert!(is_there(&f.store, 1).await);
    let batches = f.store.stats().batches;
    assert_eq!(kind(put(&f.store, 3, Durability::Disk).await), Kind::Full);
    assert_eq!(f.store.stats().batches, batches, "a refused write is not even queued");
    f.store.apply(Batch::default(), &call(Durability::Disk)).await.expect("a sync barrier writes nothing");
}

#[tokio::test]
async fn the_sweep_removes_expired_rows_when_puts_are_refused() {
    let f = fixture();
    let expired = Row { expires: Some(Timestamp(1_500_000)), ..row(1) };
    f.store
        .apply(Batch::single(place(Table::Keys, 1), vec![Change::Put(expired)]), &call(Durability::Disk))
        .await
        .unwrap();
    f.leave(0);
    assert_eq!(kind(put(&f.store, 3, Durability::Disk).await), Kind::Full);
    let swept = f.store.sweep_expired(100).await.unwrap();
    assert_eq!((swept.seen, swept.removed), (1, 1));
}

#[tokio::test]
async fn a_body_refused_at_once_or_half_way_leaves_no_file() {
    let f = fixture();
    f.leave(4 * MIB);
    assert_eq!(kind(f.put_blob(1, Some(5 * MIB), 5 * MIB).await), Kind::Full);
    assert_eq!(f.files(), 0, "an announced body is refused before its first byte is written");
    assert_eq!(kind(f.put_blob(1, None, 20 * MIB).await), Kind::Full);
    f.assert_nothing_left().await;
    f.put_blob(1, None, 3 * MIB).await.unwrap();
}

#[tokio::test]
async fn a_bulk_row_is_refused_as_a_whole_and_leaves_nothing() {
    let f = fixture();
    f.leave(MIB);
    assert_eq!(kind(f.put_blob(1, Some(BULK_MAX as u64), BULK_MAX as u64).await), Kind::Full);
    f.assert_nothing_left().await;
    f.leave(3 * MIB);
    f.put_blob(1, Some(BULK_MAX as u64), BULK_MAX as u64).await.unwrap();
    f.leave(0);
    f.blobs.remove(BlobId([1; 24])).await.unwrap();
    f.assert_nothing_left().await;
}

#[tokio::test]
async fn a_body_with_a_reservation_is_refused_when_the_disk_fills_up() {
    let f = fixture();
    let owner = BlobOwner { partition: place(Table::Objects, 1), row: "row".into() };
    let mut writer = f.blobs.create(BlobId([1; 24]), owner).await.unwrap();
    writer.announce(100 * MIB).await.unwrap();
    writer.write(vec![1; 3 << 20].into()).await.unwrap();
    f.leave(0);
    assert_eq!(kind(writer.write(vec![1; 3 << 20].into()).await), Kind::Full);
    assert_eq!(kind(writer.write(vec![1; 1].into()).await), Kind::Full);
    drop(writer);
    f.assert_nothing_left().await;
    f.leave(100 * MIB);
    f.put_blob(1, None, 3 * MIB).await.unwrap();
}

#[tokio::test]
async fn concurrent_bodies_share_the_free_space() {
    let f = fixture();
    f.leave(25 * MIB);
    let owner = || BlobOwner { partition: place(Table::Objects, 1), row: "row".into() };
    let mut writers = Vec::new();
    for number in 0..4 {
        let mut writer = f.blobs.create(BlobId([number; 24]), owner()).await.unwrap();
        let announced = writer.announce(10 * MIB).await;
        assert_eq!(announced.is_ok(), number < 2, "body {number}");
        writers.push(writer);
    }
    assert_eq!(f.store.disk_space().stats().held, 20 * MIB);
    drop(writers);
    f.put_blob(9, Some(20 * MIB), 2 * MIB).await.unwrap();
    assert_eq!(f.store.disk_space().stats().held, 0, "announced bytes that were not sent are free again");
}

#[tokio::test]
async fn a_store_on_a_full_disk_starts() {
    let f = fixture();
    put(&f.store, 1, Durability::Disk).await.unwrap();
    f.put_blob(1, None, 2 * MIB).await.unwrap();
    let FullDiskFixture { dir, store, blobs, .. } = f;
    drop((store, blobs));
    let shards = || {
        let folders = std::fs::read_dir(dir.path().join("blobs")).unwrap();
        let times = folders.map(|folder| folder.unwrap().metadata().unwrap().modified().unwrap());
        times.max().unwrap()
    };
    let before = shards();
    let (disk, clock) = (FakeDisk::with_bytes(1024 * MIB), Arc::new(FrozenClock(AtomicU64::new(1_000_000))));
    disk.set(0);
    let space = space_on(&disk, clock);
    let store = LocalStore::open_in(options(dir.path()), space.clone(), |journal| Box::new(journal)).unwrap();
    let blobs = LocalBlobs::open(dir.path(), store.bulk_rows(), space).unwrap();
    assert!(is_there(&store, 1).await);
    assert_eq!(blobs.open(BlobId([1; 24])).await.unwrap().length(), 2 * MIB);
    assert_eq!(shards(), before, "an existing folder is not written to");
    assert_eq!(kind(put(&store, 3, Durability::Disk).await), Kind::Full);
    disk.set(512 * MIB);
    put(&store, 3, Durability::Disk).await.unwrap();
}

#[test]
fn a_merge_that_would_take_the_last_bytes_ends_before_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trees = Trees::open(dir.path(), 0, 1 << 20).unwrap();
    let tree = trees.tree(TreeId::Packed);
    for round in 0..3_u8 {
        let seqno = trees.next_seqno();
        for key in 0..50_u8 {
            tree.insert(&vec![1, key].into(), Some(&vec![round; 2000].into()), seqno);
        }
        tree.rotate();
        flush(tree, &tree.next_sealed().unwrap(), 1, 0).unwrap();
        tree.drop_flushed();
    }
    trees.publish_tables();
    let files = |tree: &EngineTree| std::fs::read_dir(tree.dir.join("tables")).unwrap().count();
    let before = (tree.version(), files(tree));
    // Two of three versions of each key are dead: 100 KB stay.
    let watermark = trees.snapshots.watermark();
    let merge = |room| tree.reclaim(ReclaimedPart::Whole, room, watermark);
    assert!(is_over_bound(&merge(90_000).expect_err("it writes more than the bound")));
    restore_directory(tree).unwrap();
    assert_eq!((tree.version(), files(tree)), before, "its files are gone");
    merge(200_000).unwrap();
    assert_eq!(tree.lsm.current_version().iter_tables().count(), 1);
    for key in 0..50_u8 {
        assert_eq!(trees.get(TreeId::Packed, &[1, key]).unwrap(), Some(vec![2; 2000].into()));
    }
}

#[tokio::test]
async fn most_values_deleted_on_a_full_disk_once_never_gave_their_space_back() {
    const VALUES: u64 = 2000;
    let dir = tempfile::tempdir().unwrap();
    let (disk, clock) = (FakeDisk::with_bytes(16 * MIB), Arc::new(FrozenClock(AtomicU64::new(1_000_000))));
    // Few and large memtables: level 0 never has the four runs that are merged in any case.
    let sizes = Some(EngineSizes { table: 64 * 1024, ..EngineSizes::from_memtable(MIB) });
    let options = OpenOptions { clock: clock.clone(), sizes, ..options(dir.path()) };
    let store = LocalStore::open_in(options, space_on(&disk, clock.clone()), |journal| Box::new(journal)).unwrap();
    let mut random = SplitMix64::new(7);
    for key in 0..VALUES {
        let value = Row { value: random.bytes(4000).into(), ..row(1) };
        let batch = Batch::single(place(Table::Objects, 2 * key), vec![Change::Put(value)]);
        store.apply(batch, &call(Durability::Buffered)).await.unwrap();
    }
    let wait_for = async |done: &dyn Fn() -> bool| {
        for _ in 0..400 {
            clock.0.fetch_add(500_000, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(25)).await;
            if done() {
                return true;
            }
        }
        false
    };
    let tree = store.trees().tree(TreeId::Packed);
    assert!(wait_for(&|| tree.unflushed_bytes() < 4096).await);
    tree.reclaim(ReclaimedPart::Whole, u64::MAX, store.trees().snapshots.watermark()).unwrap();
    let full = tree.disk_bytes();
    // Other programs take what comes back, so a merge of all that lives never has room.
    disk.set(store.disk_space().stats().floors[Purpose::Data as usize] / 2);
    clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    assert_eq!(kind(put(&store, 2 * VALUES, Durability::Disk).await), Kind::Full);
    for key in (0..VALUES).filter(|key| key % 4 > 0) {
        remove(&store, 2 * key).await.unwrap();
    }
    let is_back = wait_for(&|| tree.disk_bytes() < full * 3 / 10).await;
    assert!(is_back, "{} of {full} bytes are still used", tree.disk_bytes());
}

/// A key for each number, in no order: tables whose keys do not meet would go to the lowest level as they are.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
}

/// A store on a disk of 64 MiB, whose upper levels have some tables that a short disk would merge, and its number of keys.
async fn with_upper_levels(dir: &std::path::Path) -> (LocalStore, Arc<FakeDisk>, Arc<FrozenClock>, u64) {
    let (disk, clock) = (FakeDisk::with_bytes(64 * MIB), Arc::new(FrozenClock(AtomicU64::new(1_000_000))));
    let space = space_on(&disk, clock.clone());
    let options =
        OpenOptions { clock: clock.clone(), sizes: Some(EngineSizes::from_memtable(256 * 1024)), ..options(dir) };
    let store = LocalStore::open_in(options, space, |journal| Box::new(journal)).unwrap();
    let trees = store.trees().clone();
    let unsunk = || trees.all().iter().map(EngineTree::unsunk_bytes).sum::<u64>();
    for keys in 1..200_000 {
        put(&store, scattered(keys), Durability::Buffered).await.unwrap();
        if unsunk() >= 64 * 1024 {
            // It counts once the threads rest, which may merge it yet.
            tokio::time::sleep(Duration::from_millis(200)).await;
            if unsunk() >= 64 * 1024 {
                return (store, disk, clock, keys);
            }
        }
    }
    panic!("flushed tables stay in the upper levels while there is room");
}

#[tokio::test]
async fn a_put_waits_on_a_disk_that_gets_full_until_the_upper_levels_have_sunk() {
    let dir = tempfile::tempdir().unwrap();
    let (store, disk, clock, keys) = with_upper_levels(dir.path()).await;
    disk.set(store.disk_space().stats().floors[Purpose::Data as usize] + 64 * 1024);
    clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    let unsunk = || store.trees().all().iter().map(EngineTree::unsunk_bytes).collect::<Vec<_>>();
    let before = unsunk();
    put(&store, 0, Durability::Disk).await.unwrap();
    // Memtables may be flushed just after the answer: a tree has other tables then.
    let merged = before.iter().zip(unsunk()).all(|(before, after)| *before == 0 || *before != after);
    assert!(merged, "the put was answered before the merges: {before:?} bytes");
    for key in 0..=keys {
        assert!(is_there(&store, scattered(key)).await, "key {key}");
    }
}

#[tokio::test]
async fn puts_once_waited_for_merges_of_a_damaged_tree_that_never_came() {
    let dir = tempfile::tempdir().unwrap();
    let (store, disk, clock, _) = with_upper_levels(dir.path()).await;
    disk.set(store.disk_space().stats().floors[Purpose::Data as usize] + 64 * 1024);
    clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    TreeId::ALL.into_iter().for_each(|tree_id| store.fail_compaction(tree_id));
    assert!(!store.disk_space().must_wait(Purpose::Data, 100));
}
