//! Compares the rows of all indexes and the entries of lists of keys with the objects, in both directions, and repairs them: `kv-admin
//! index check | repair`, and over replicas one gateway by itself.
//!
//! ```text
//! objects -> indexes   a term of a stored row without its index row    is missing
//! indexes -> objects   an index row whose object row or term is gone   is left over
//! objects -> lists     a stored row without its entry                  is unlisted         ([`super::list_check`])
//! lists -> objects     an entry whose object row is gone               is listed alone
//! ```
//! Writes go on beside it: a difference counts if a second look, in the other order, shows it again.

use larder_core::node_context::{PAGE_ROWS, internal_options};
use larder_core::{Error, Result};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{Batch, Change, Row};
use larder_store::{CallOptions, ConsistencyLevel, Partition, ReadQuery, Stopped, Table};
use tokio::time::{Instant, sleep};

use crate::Kv;
use crate::commit::index_shards;
use crate::known_buckets::key_shards;
use crate::rules::index::{IndexRowName, StoredTerm, indexed_terms};
use crate::rules::object_row::ObjectRow;
use crate::slots::is_settled;

/// Partitions that the check takes from the store at a time.
const PAGE_PARTITIONS: usize = 1000;

/// Counts of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// Keys whose objects were read.
    pub keys: u64,
    /// Terms of their rows.
    pub terms: u64,
    /// Rows of indexes that were read.
    pub index_rows: u64,
    /// Terms without an index row.
    pub missing: u64,
    /// Index rows without their object or term.
    pub left_over: u64,
    /// Entries of lists of keys that were read.
    pub entries: u64,
    /// Rows of objects whose key is in no list.
    pub unlisted: u64,
    /// Entries of lists without their object.
    pub listed_only: u64,
}

impl IndexCheck {
    /// All that differs.
    #[must_use]
    pub fn differences(&self) -> u64 {
        self.missing + self.left_over + self.unlisted + self.listed_only
    }
}

/// What a check does with what differs, and how fast it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckMode {
    /// It counts.
    Report,
    /// It repairs.
    Repair,
    /// It repairs, and rests nine times as long as it works.
    Background,
}

/// The tables of objects.
const OBJECTS: [Table; 2] = [Table::Objects, Table::Consistent];

/// A check under way.
pub(super) struct CheckRun<'a, P> {
    pub(super) kv: &'a Kv,
    mode: CheckMode,
    pub(super) counts: IndexCheck,
    /// Partitions of objects: all, as counted at the begin of a check that somebody watches, and those that were read.
    objects: (u64, u64),
    report: P,
}

impl Kv {
    /// Checks all indexes and lists. `report` gets the counts so far, and the done part of the whole, from 0 to 1; the check ends
    /// when it answers false.
    ///
    /// # Errors
    /// The store's, and damaged rows; repairs made before stay.
    pub async fn check_indexes(
        &self,
        mode: CheckMode,
        report: impl FnMut(&IndexCheck, f64) -> bool + Send,
    ) -> Result<IndexCheck> {
        let mut run = CheckRun { kv: self, mode, counts: IndexCheck::default(), objects: (0, 0), report };
        if mode != CheckMode::Background {
            for table in OBJECTS {
                run.count_objects(table).await?;
            }
        }
        // Objects first: what a write beside their check leaves over is found on the way back.
        for table in [OBJECTS[0], OBJECTS[1], Table::Index, Table::Keys] {
            if !run.check_table(table).await? {
                break;
            }
        }
        Ok(run.counts)
    }

    pub(super) async fn row_named(
        &self,
        partition: &Partition,
        name: &bytes::Bytes,
        options: &CallOptions,
    ) -> Result<Option<Row>> {
        Ok(self.context.ports.store.read(partition, &ReadQuery::one(name.clone()), options).await?.rows.pop())
    }
}

impl<P: FnMut(&IndexCheck, f64) -> bool + Send> CheckRun<'_, P> {
    async fn count_objects(&mut self, table: Table) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.kv.context.ports.store.partitions(table, after, PAGE_PARTITIONS, &quorum()).await?;
            self.objects.0 += page.partitions.len() as u64;
            (self.report)(&self.counts, 0.0);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The objects are one half of the work, the rows of indexes the other: there is about one for each term.
    fn report(&mut self) -> bool {
        let part = |done: u64, all: u64| if all == 0 { 1.0 } else { (done as f64 / all as f64).min(1.0) };
        let rows = part(self.counts.index_rows + self.counts.entries, self.counts.terms + self.counts.keys);
        let read = part(self.objects.1, self.objects.0);
        let done = if read < 1.0 { read / 2.0 } else { f64::midpoint(1.0, rows) };
        (self.report)(&self.counts, done)
    }

    /// Returns whether the check goes on.
    async fn check_table(&mut self, table: Table) -> Result<bool> {
        let mut after = None;
        loop {
            let store = &self.kv.context.ports.store;
            let page = store.partitions(table, after, PAGE_PARTITIONS, &quorum()).await?;
            for partition in page.partitions {
                match self.check_partition(table, partition).await {
                    // Damage costs what it hit: a check that nobody watches goes on with the rest.
                    Err(Error::Damaged(error)) if self.mode == CheckMode::Background => {
                        tracing::warn!(
                            error,
                            table = table.name(),
                            "check of a partition failed: what differs there stays"
                        );
                    }
                    checked => checked?,
                }
                if !self.report() {
                    return Ok(false);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(true),
            }
        }
    }

    async fn check_partition(&mut self, table: Table, partition: Partition) -> Result<()> {
        if matches!(table, Table::Index | Table::Keys) {
            return self.check_shard(&partition).await;
        }
        let begun = Instant::now();
        self.objects.1 += 1;
        self.check_object(partition).await?;
        self.rest(begun).await;
        Ok(())
    }

    /// Lets requests have the cluster for nine times as long as the work that `begun` then.
    async fn rest(&self, begun: Instant) {
        if self.mode == CheckMode::Background {
            sleep(begun.elapsed() * 9).await;
        }
    }

    /// Looks up the entry and the index row of each term of an object.
    async fn check_object(&mut self, partition: Partition) -> Result<()> {
        let Some(address) = partition.object_address() else { return Ok(()) };
        let partition = Partition { copies: self.kv.catalogue.copies(&address.bucket), ..partition };
        self.counts.keys += 1;
        for row in self.kv.context.read_rows(&partition, &quorum()).await? {
            let ObjectRow { tombstone, content, .. } = ObjectRow::decode(row.value.clone()).map_err(damaged)?;
            if !tombstone {
                self.check_entry(&address, &partition, &row).await?;
            }
            for (field, term) in indexed_terms(&content.terms) {
                self.counts.terms += 1;
                let name = IndexRowName { term, key: address.key.clone(), object_row: row.name.clone() }.encode();
                if self.is_indexed(&address, field, &name, &row).await? {
                    continue;
                }
                // Race: an overwrite in between removed both. One that comes after this look removes a row that is not yet there;
                // the way back over the indexes, which follows, finds it left over.
                if !self.stands(&partition, &row).await? {
                    continue;
                }
                self.counts.missing += 1;
                let added = Row { name, value: bytes::Bytes::new(), stamp: row.stamp, expires: row.expires };
                let epochs = self.kv.catalogue.epochs(&address.bucket);
                let shard = |epoch, shard| Partition::index(&address.bucket, field, epoch, shard, partition.copies);
                let added = key_shards(epochs, &address.key, vec![Change::Put(added)], false, shard);
                self.repair(Batch { partitions: added }).await?;
            }
        }
        Ok(())
    }

    /// Whether some epoch has the index row of a term.
    async fn is_indexed(
        &self,
        address: &Address,
        field: &bytes::Bytes,
        name: &bytes::Bytes,
        row: &Row,
    ) -> Result<bool> {
        self.kv.catalogue.await_fresh().await?;
        let epochs = self.kv.catalogue.epochs(&address.bucket);
        // The oldest first: a row that is written again meanwhile is in a newer one.
        for shard in index_shards(epochs, address, field, self.kv.catalogue.copies(&address.bucket)) {
            if self.kv.row_named(&shard, name, &quorum()).await?.is_some_and(|index_row| index_row.stamp >= row.stamp) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks up the object of each row of a shard: of an index, or of a list of keys.
    async fn check_shard(&mut self, partition: &Partition) -> Result<()> {
        let indexed = partition.index_bucket_and_field();
        let Some(bucket) = indexed.as_ref().map(|(bucket, _)| bucket.clone()).or_else(|| partition.listed_bucket())
        else {
            return Ok(());
        };
        let shard = Partition { copies: self.kv.catalogue.copies(&bucket), ..partition.clone() };
        let mut query = ReadQuery::all(PAGE_ROWS);
        loop {
            let page = self.kv.context.ports.store.read(&shard, &query, &quorum()).await?;
            for row in &page.rows {
                let begun = Instant::now();
                match &indexed {
                    Some((_, field)) => self.check_index_row(&shard, row, &bucket, field).await?,
                    None => self.check_listed(&shard, row, &bucket).await?,
                }
                self.rest(begun).await;
            }
            if !self.report() {
                return Ok(());
            }
            let Some(last) = page.rows.last().filter(|_| page.stopped == Stopped::Limit) else { return Ok(()) };
            query.continue_after(&last.name);
        }
    }

    async fn check_index_row(
        &mut self,
        shard: &Partition,
        row: &Row,
        bucket: &BucketAddress,
        field: &bytes::Bytes,
    ) -> Result<()> {
        self.counts.index_rows += 1;
        let name = IndexRowName::decode(&row.name).map_err(damaged)?;
        let address = Address { bucket: bucket.clone(), key: name.key.clone() };
        if self.is_left_over(shard, row, &address, &name, field).await? {
            self.counts.left_over += 1;
            self.repair(removal(shard, row)).await?;
        }
        Ok(())
    }

    async fn is_left_over(
        &self,
        shard: &Partition,
        row: &Row,
        address: &Address,
        name: &IndexRowName,
        field: &bytes::Bytes,
    ) -> Result<bool> {
        for consistent in [false, true] {
            let object = Partition::object(address, consistent, shard.copies);
            let stored = self.kv.row_named(&object, &name.object_row, &quorum()).await?;
            // The stamps may differ: a compare-and-set that failed wrote the index row of a standing term anew.
            if let Some(object_row) = stored {
                let content = ObjectRow::decode(object_row.value).map_err(damaged)?.content;
                let term: (&bytes::Bytes, StoredTerm) = (field, name.term.clone());
                if indexed_terms(&content.terms).contains(&term) {
                    return Ok(false);
                }
            }
        }
        // Race: an overwrite in between removed both, or the slot was used again.
        Ok(!self.may_precede_object(address, row) && self.stands(shard, row).await?)
    }

    /// Whether the object of a row of an index or a list may still come.
    pub(super) fn may_precede_object(&self, address: &Address, row: &Row) -> bool {
        let (now, catalogue) = (self.kv.context.now(), self.kv.catalogue.current());
        let precedes = catalogue.effective(&address.bucket).is_some_and(|props| props.consistent);
        // Race: such a row may precede its object's row on a replica, and that of a `consistent` type its head on every
        // engine, for a day at most; removed in between, an acknowledged object is not found [invariants 87, 124].
        !self.kv.slots.is_orphan(row.stamp, now) || precedes && !is_settled(row.stamp, now)
    }

    /// Whether a partition still has a row as it was read.
    pub(super) async fn stands(&self, partition: &Partition, row: &Row) -> Result<bool> {
        let again = self.kv.row_named(partition, &row.name, &quorum()).await?;
        Ok(again.is_some_and(|again| again.stamp == row.stamp))
    }

    pub(super) async fn repair(&self, batch: Batch) -> Result<()> {
        if self.mode != CheckMode::Report {
            self.kv.context.apply_at_quorum(batch).await?;
        }
        Ok(())
    }
}

/// The removal of a row as it was read.
pub(super) fn removal(partition: &Partition, row: &Row) -> Batch {
    Batch::single(partition.clone(), vec![Change::Remove { name: row.name.clone(), stamp: row.stamp }])
}

pub(super) fn quorum() -> CallOptions {
    internal_options(ConsistencyLevel::Quorum)
}

pub(super) fn damaged(error: larder_rows::codec::DecodeError) -> Error {
    Error::Damaged(error.to_string())
}
