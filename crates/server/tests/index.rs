//! Secondary indexes over the embedded engine: random schedules with restarts, against a scan of all objects; and the repair.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test in real time")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::{Config, DeleteMode, Error, GatewayPorts, IndexSplitting};
use larder_kv::Gateway;
use larder_kv::rules::causality::SHARED_SLOT;
use larder_kv::rules::index::{IndexRowName, StoredTerm};
use larder_kv::rules::object_row::view_row_name;
use larder_kv::views::{CheckMode, IndexCheck};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{ActorId, Batch, Change, Row, Timestamp};
use larder_store::memory::MemoryStore;
use larder_store::{CallOptions, ConsistencyLevel, Durability, Partition, ReadQuery, Store as _, SystemClock, Table};
use larder_store_local::{LocalStore, OpenOptions};
use larder_testkit::case_seeds;
use tokio::time::Instant;

use crate::walk::{IndexWalk, TYPES};

const STEPS: usize = 12;

/// One run of a server without listeners.
struct IndexServerRun {
    gateway: Arc<Gateway>,
    store: LocalStore,
    blobs: Arc<MemoryStore>,
    shard_rows: u64,
}

impl IndexServerRun {
    /// Indexes are split above `shard_rows` rows of a shard; 0: never.
    async fn start(dir: &Path, actor: u64, blobs: Option<Arc<MemoryStore>>, shard_rows: u64) -> Self {
        let clock = Arc::new(SystemClock::default());
        let options = OpenOptions {
            dir: dir.to_owned(),
            cache_bytes: 16 << 20,
            memtables_bytes: 16 << 20,
            durable: false,
            accept_damaged_journal: false,
            sizes: None,
            clock: clock.clone(),
        };
        let store = LocalStore::open(options).unwrap();
        let blobs = blobs.unwrap_or_else(|| Arc::new(MemoryStore::new(clock.clone())));
        let ports = GatewayPorts {
            store: Arc::new(store.clone()),
            blobs: blobs.clone(),
            clock,
            actor: ActorId(actor),
            random: |bytes| bytes.fill(7),
            engine: Arc::new("local"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let delete_mode = DeleteMode::After(Duration::from_millis(20));
        let index_splitting = IndexSplitting { shard_rows: Some(shard_rows), ..IndexSplitting::default() };
        let config = Config { durable: false, delete_mode, index_splitting, ..Config::default() };
        let gateway = Gateway::start(ports, config).await.unwrap();
        Self { gateway, store, blobs, shard_rows }
    }

    /// One with objects of every type, and the walk that wrote them.
    async fn filled(dir: &Path) -> (Self, IndexWalk) {
        let run = Self::start(dir, 1, None, 0).await;
        run.add_types().await;
        let mut walk = IndexWalk::new(1, "b");
        for _ in 0..40 {
            walk.step(&run.gateway).await;
        }
        (run, walk)
    }

    async fn restart(self, dir: &Path, actor: u64) -> Self {
        let Self { gateway, store, blobs, shard_rows } = self;
        gateway.abandon();
        store.close().await.unwrap();
        // The last handles release the lock of the directory.
        drop((gateway, store));
        Self::start(dir, actor, Some(blobs), shard_rows).await
    }

    /// Gives each row of a table another name; returns their number.
    async fn rename_rows(&self, table: Table) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        let options = CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Buffered);
        let mut renamed = 0;
        for partition in self.store.partitions(table, None, 1000, &options).await.unwrap().partitions {
            for row in self.store.read(&partition, &ReadQuery::all(1000), &options).await.unwrap().rows {
                let gone = Change::Remove { name: row.name.clone(), stamp: row.stamp };
                let strange = Row { name: [b"x", &row.name[..]].concat().into(), stamp: Timestamp(1), ..row };
                let changes = vec![gone, Change::Put(strange)];
                self.store.apply(Batch::single(partition.clone(), changes), &options).await.unwrap();
                renamed += 1;
            }
        }
        renamed
    }

    async fn add_types(&self) {
        for (name, props) in TYPES {
            let props: serde_json::Value = serde_json::from_str(props).unwrap();
            self.gateway.types().create(&name.into(), props.as_object().unwrap()).await.unwrap();
            self.gateway.types().activate(&name.into()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn random_schedules_with_restarts_leave_indexes_that_show_the_terms_of_the_objects() {
    let dir = tempfile::tempdir().unwrap();
    // Many buckets are split in the midst of their schedules.
    let mut run = IndexServerRun::start(dir.path(), 1, None, 2).await;
    run.add_types().await;
    for seed in case_seeds(330, 100_000) {
        let mut walk = IndexWalk::new(seed, &format!("b{seed}"));
        for _ in 0..STEPS {
            walk.step(&run.gateway).await;
            if walk.dice.below(400) == 0 {
                run = run.restart(dir.path(), seed + 2).await;
            }
        }
        if let Err(wrong) = walk.check(&run.gateway).await {
            panic!("seed {seed}: {wrong}");
        }
    }
    let run = run.restart(dir.path(), u64::MAX).await;
    // Blind writes of buckets without slots leave rows that no query shows.
    let repaired = run.gateway.kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
    assert_eq!(repaired.missing, 0, "{repaired:?}");
    let checked = run.gateway.kv.check_indexes(CheckMode::Report, |_, _| true).await.unwrap();
    assert_eq!(checked.differences(), 0, "{checked:?}");
    let split = run.gateway.kv.split_buckets().await.unwrap();
    assert!(!split.is_empty(), "nothing was split");
    // Failed compare-and-sets leave rows that a repair takes a day later.
    assert!(checked.terms > 100 && checked.terms <= checked.index_rows, "{checked:?}");
}

#[tokio::test]
async fn a_repair_adds_missing_rows_and_removes_those_left_over() {
    let dir = tempfile::tempdir().unwrap();
    let (run, mut walk) = IndexServerRun::filled(dir.path()).await;
    walk.check(&run.gateway).await.unwrap();
    let kv = &run.gateway.kv;
    let sound = kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
    let removed = run.rename_rows(Table::Index).await;
    assert!(removed > 0, "{sound:?}");
    let mut shown = Vec::new();
    let show = |_: &IndexCheck, done| {
        shown.push(done);
        true
    };
    let broken = kv.check_indexes(CheckMode::Report, show).await.unwrap();
    assert!(shown.is_sorted() && shown.iter().any(|done| (0.1..0.9).contains(done)), "{shown:?}");
    assert_eq!((broken.missing, broken.left_over), (removed, removed), "{broken:?}");
    let repaired = kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
    assert_eq!((repaired.missing, repaired.left_over), (removed, removed), "{repaired:?}");
    let again: IndexCheck = kv.check_indexes(CheckMode::Report, |_, _| true).await.unwrap();
    assert_eq!((again.missing, again.left_over, again.index_rows), (0, 0, removed), "{again:?}");
    walk.check(&run.gateway).await.unwrap();
}

#[tokio::test]
async fn a_repair_lists_keys_that_no_list_shows_and_no_key_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (run, mut walk) = IndexServerRun::filled(dir.path()).await;
    let kv = &run.gateway.kv;
    let sound = kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
    let removed = run.rename_rows(Table::Keys).await;
    assert!(removed > 0, "{sound:?}");
    let broken = kv.check_indexes(CheckMode::Report, |_, _| true).await.unwrap();
    assert_eq!((broken.unlisted, broken.listed_only), (removed, removed), "{broken:?}");
    let ended = kv.check_indexes(CheckMode::Repair, |_, _| false).await.unwrap();
    assert!(ended.differences() < 2 * removed, "it goes on after its caller has had enough: {ended:?}");
    kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
    let again = kv.check_indexes(CheckMode::Report, |_, _| true).await.unwrap();
    assert_eq!((again.differences(), again.entries), (0, removed), "{again:?}");
    walk.check(&run.gateway).await.unwrap();
}

/// The options of a write that a test makes by itself.
fn options() -> CallOptions {
    CallOptions::new(ConsistencyLevel::Quorum, Instant::now() + Duration::from_secs(60), Durability::Buffered)
}

/// The same of its entry in the list of keys [invariant 124].
#[tokio::test]
async fn a_repair_once_took_a_consistent_key_from_its_list_before_its_head_came() {
    let dir = tempfile::tempdir().unwrap();
    let run = IndexServerRun::start(dir.path(), 1, None, 0).await;
    run.add_types().await;
    let bucket = BucketAddress::new("strong".into(), "b".into()).unwrap();
    let partition = Partition::keys(&bucket, 0, 0, Partition::DEFAULT_COPIES);
    let name = view_row_name(b"k", &SHARED_SLOT.row_name());
    let options = options();
    for (stamp, listed_only) in [(run.gateway.context().now(), 0), (Timestamp(1), 1)] {
        let row = Row { name: name.clone(), value: Bytes::new(), stamp, expires: None };
        run.store.apply(Batch::single(partition.clone(), vec![Change::Put(row)]), &options).await.unwrap();
        let repaired = run.gateway.kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
        assert_eq!(repaired.listed_only, listed_only, "{repaired:?}");
        let gone = Change::Remove { name: name.clone(), stamp };
        run.store.apply(Batch::single(partition.clone(), vec![gone]), &options).await.unwrap();
    }
}

/// A row of one object that cannot be read ends a repair that somebody watches; the one that no one does mends the rest.
#[tokio::test]
async fn a_damaged_object_once_ended_every_check_that_a_gateway_made_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (run, mut walk) = IndexServerRun::filled(dir.path()).await;
    let bucket = BucketAddress::new("sib".into(), "a".into()).unwrap();
    let damaged = Partition::object(&Address { bucket, key: "k".into() }, false, Partition::DEFAULT_COPIES);
    let row = Row { name: SHARED_SLOT.row_name(), value: "?".into(), stamp: Timestamp(9), expires: None };
    let options = options();
    run.store.apply(Batch::single(damaged, vec![Change::Put(row)]), &options).await.unwrap();
    assert!(run.rename_rows(Table::Keys).await > 0);
    let kv = &run.gateway.kv;
    assert!(matches!(kv.check_indexes(CheckMode::Repair, |_, _| true).await, Err(Error::Damaged(_))));
    kv.check_indexes(CheckMode::Background, |_, _| true).await.unwrap();
    let again = kv.check_indexes(CheckMode::Background, |_, _| true).await.unwrap();
    assert_eq!(again.differences(), 0, "{again:?}");
    walk.check(&run.gateway).await.unwrap();
}

/// A put of a `consistent` type writes its index rows before its head; a repair in between must leave them [invariant 124].
#[tokio::test]
async fn a_repair_leaves_the_rows_of_a_put_whose_head_is_still_to_come() {
    let dir = tempfile::tempdir().unwrap();
    let run = IndexServerRun::start(dir.path(), 1, None, 0).await;
    run.add_types().await;
    let bucket = BucketAddress::new("strong".into(), "b".into()).unwrap();
    let partition = Partition::index(&bucket, b"t_bin", 0, 0, Partition::DEFAULT_COPIES);
    let term = StoredTerm("a".into());
    let name = IndexRowName { term, key: "k".into(), object_row: SHARED_SLOT.row_name() }.encode();
    let options = options();
    for (stamp, left_over) in [(run.gateway.context().now(), 0), (Timestamp(1), 1)] {
        let row = Row { name: name.clone(), value: Bytes::new(), stamp, expires: None };
        run.store.apply(Batch::single(partition.clone(), vec![Change::Put(row)]), &options).await.unwrap();
        let repaired = run.gateway.kv.check_indexes(CheckMode::Repair, |_, _| true).await.unwrap();
        assert_eq!(repaired.left_over, left_over, "{repaired:?}");
        let rows = run.store.read(&partition, &ReadQuery::all(10), &options).await.unwrap().rows;
        assert_eq!(rows.len(), usize::from(left_over == 0));
        let gone = Change::Remove { name: name.clone(), stamp };
        run.store.apply(Batch::single(partition.clone(), vec![gone]), &options).await.unwrap();
    }
}
