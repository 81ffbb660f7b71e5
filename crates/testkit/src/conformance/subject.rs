//! The engine under test, with partitions that no other check uses.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{
    Batch, BlobOwner, Blobs, CallOptions, CasResult, Change, Clock, ConsistencyLevel, Durability, HeadWrite,
    ListedBlob, Partition, PartitionPage, Range, ReadOrder, ReadQuery, Result, Row, RowPage, Store, Table, Timestamp,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ManualClock;

/// A plain table of either layout: packed, wide.
pub(super) const PLAIN: [Table; 2] = [Table::Objects, Table::Keys];
/// A guarded table of either layout: packed, wide.
pub(super) const GUARDED: [Table; 2] = [Table::Consistent, Table::Catalogue];

/// A prefix of names that no other check and no other run uses.
#[derive(Clone)]
pub(super) struct CheckScope(String);

/// A store, its clock and a scope.
#[derive(Clone)]
pub(super) struct StoreSubject {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<ManualClock>,
    scope: CheckScope,
}

/// Blobs and a scope.
#[derive(Clone)]
pub(super) struct BlobSubject {
    pub(super) blobs: Arc<dyn Blobs>,
    scope: CheckScope,
}

impl CheckScope {
    /// The scope of a run. It differs from runs of other processes on the same store.
    pub(super) fn new() -> Self {
        Self(format!("{:016x}", RandomState::new().hash_one("run")))
    }

    /// The scope of a check.
    pub(super) fn for_check(&self, check: &str) -> Self {
        Self(format!("{}/{check}", self.0))
    }
}

impl StoreSubject {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<ManualClock>, scope: CheckScope) -> Self {
        Self { store, clock, scope }
    }

    /// The partition of this check; the keys of [`Self::other`] begin with its key.
    pub(super) fn partition(&self, table: Table) -> Partition {
        Partition::new(table, self.scope.0.clone())
    }

    /// One of many partitions of this check.
    pub(super) fn other(&self, table: Table, which: impl AsRef<[u8]>) -> Partition {
        let key = [self.scope.0.as_bytes(), b"/", which.as_ref()].concat();
        Partition::new(table, key)
    }

    /// Changes a partition; panics if the store refuses.
    pub(super) async fn change(&self, partition: &Partition, changes: Vec<Change>) {
        self.apply(Batch::single(partition.clone(), changes)).await.expect("the changes are taken");
    }

    /// Applies a batch that the store may refuse.
    pub(super) async fn apply(&self, batch: Batch) -> Result<()> {
        self.store.apply(batch, &options()).await
    }

    /// Compare-and-sets a head.
    pub(super) async fn compare_and_set(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: impl Into<HeadWrite>,
        changes: Vec<Change>,
    ) -> CasResult {
        let cas = self.store.apply_if(partition, expected, head.into(), changes, &options()).await;
        cas.expect("a compare-and-set is answered")
    }

    /// Reads one page.
    pub(super) async fn page(&self, partition: &Partition, query: &ReadQuery) -> RowPage {
        self.store.read(partition, query, &options()).await.expect("a read is answered")
    }

    /// Reads all rows of a small partition.
    pub(super) async fn rows(&self, partition: &Partition) -> Vec<Row> {
        self.page(partition, &ReadQuery::all(10_000)).await.rows
    }

    /// Names of all rows of a small partition.
    pub(super) async fn names(&self, partition: &Partition) -> Vec<Bytes> {
        self.rows(partition).await.into_iter().map(|row| row.name).collect()
    }

    /// Lists one page of the partitions of a table.
    pub(super) async fn keys(&self, table: Table, after: Option<Bytes>, limit: usize) -> PartitionPage {
        self.store.partitions(table, after, limit, &options()).await.expect("a listing is answered")
    }

    /// Lists all keys of a table that belong to this check, in pages of `limit`.
    pub(super) async fn own_keys(&self, table: Table, limit: usize) -> Vec<Bytes> {
        let (mut keys, mut after, mut cursors) = (Vec::new(), None, BTreeSet::new());
        loop {
            let page = self.keys(table, after, limit).await;
            assert!(page.partitions.len() <= limit, "{} partitions in a page of {limit}", page.partitions.len());
            keys.extend(page.partitions.into_iter().map(|partition| partition.key));
            after = page.next;
            if after.is_none() {
                break;
            }
            assert!(cursors.insert(after.clone()), "the listing of {table:?} repeats a cursor");
        }
        keys.retain(|key| key.starts_with(self.scope.0.as_bytes()));
        keys
    }

    /// The expiry of a row that expires in `seconds`.
    pub(super) fn in_seconds(&self, seconds: u64) -> Option<Timestamp> {
        Some(self.clock.now() + seconds * 1_000_000)
    }

    /// Advances the clock.
    pub(super) fn wait_seconds(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

impl BlobSubject {
    pub(super) fn new(blobs: Arc<dyn Blobs>, scope: CheckScope) -> Self {
        Self { blobs, scope }
    }

    /// One of many owners of this check.
    pub(super) fn owner(&self, which: u8) -> BlobOwner {
        let partition = Partition::new(Table::Objects, self.scope.0.clone());
        BlobOwner { partition, row: vec![which].into() }
    }

    /// The blob of an owner, as a listing shows it.
    pub(super) fn blob(&self, which: u8, leased: bool) -> ListedBlob {
        ListedBlob { id: self.id(which), owner: self.owner(which), leased }
    }

    /// The id of the blob of an owner.
    pub(super) fn id(&self, which: u8) -> BlobId {
        BlobId::for_row(self.scope.0.as_bytes(), &[which], Timestamp(1))
    }

    /// Writes a blob in pieces; answers its lease.
    pub(super) async fn write(&self, which: u8, pieces: &[&[u8]]) -> Box<dyn Send + Sync> {
        let mut writer = self.blobs.create(self.id(which), self.owner(which)).await.expect("a blob begins");
        for piece in pieces {
            writer.write(Bytes::copy_from_slice(piece)).await.expect("a piece is taken");
        }
        writer.finish(Durability::Buffered).await.expect("a blob is finished")
    }

    /// Lists the blobs of this check, in pages of `limit`.
    pub(super) async fn listed(&self, limit: usize) -> Vec<ListedBlob> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.blobs.list(after, limit).await.expect("a listing is answered");
            assert!(page.len() <= limit, "a page of {} blobs, {limit} were asked for", page.len());
            assert!(page.iter().all(|blob| Some(blob.id) > after), "the listing is not ascending");
            after = page.last().map(|blob| blob.id);
            all.extend(page);
            if after.is_none() {
                break;
            }
        }
        let own: Vec<BlobId> = (0..=u8::MAX).map(|which| self.id(which)).collect();
        all.retain(|blob| own.contains(&blob.id));
        all
    }
}

/// Waits for all tasks; a panic in one panics here.
pub(super) async fn join_all(mut tasks: JoinSet<()>) {
    while let Some(task) = tasks.join_next().await {
        if let Err(broken) = task {
            std::panic::resume_unwind(broken.into_panic());
        }
    }
}

/// Options with a quorum, a near deadline and no sync.
pub(super) fn options() -> CallOptions {
    let deadline = Instant::now() + Duration::from_secs(60);
    CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Buffered)
}

/// A row without expiry.
pub(super) fn row(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>, stamp: Timestamp) -> Row {
    let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    Row { name: copy(name.as_ref()), value: copy(value.as_ref()), stamp, expires: None }
}

/// A change that writes a row without expiry.
pub(super) fn put(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>, stamp: Timestamp) -> Change {
    Change::Put(row(name, value, stamp))
}

/// A change that writes a row that expires.
pub(super) fn put_until(
    name: impl AsRef<[u8]>,
    value: impl AsRef<[u8]>,
    stamp: Timestamp,
    expires: Option<Timestamp>,
) -> Change {
    Change::Put(Row { expires, ..row(name, value, stamp) })
}

/// A change that removes a row.
pub(super) fn remove(name: impl AsRef<[u8]>, stamp: Timestamp) -> Change {
    Change::Remove { name: Bytes::copy_from_slice(name.as_ref()), stamp }
}

/// A query of a closed range.
pub(super) fn range(from: &'static str, to: &'static str, limit: usize, order: ReadOrder) -> ReadQuery {
    ReadQuery { range: Range { from: Some(from.into()), to: Some(to.into()) }, limit, order }
}
