//! The rows of one index, or of the `$key` view, in order: the shards of all epochs of the bucket, merged page by page.
//!
//! ```text
//! epoch 0   shard 0  a·k3  c·k1 │ …                  ┐
//!           shard 1  a·k2  b·k7  d·k9 │ …            ├─> a·k2  a·k3  b·k7  b·k8     one hit of each (term, key), however many
//! epoch 1   shard 0  b·k8 ┊                          ┘                              rows it has
//!           …             ┊ read no further than the pages of the older epochs, and after them
//! ```
//! A put adds its rows in the newest epoch and removes those that it replaces in all, so it may move a hit from an older epoch
//! to a newer one, never back. A reader that has read a range of the older epoch before the same range of the newer one
//! therefore meets every hit that stands throughout.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use larder_core::node_context::NodeContext;
use larder_core::types::CatalogueCopy;
use larder_core::{Error, Result};
use larder_rows::limits::KEY_VIEW_SHARDS;
use larder_rows::{BucketEpochs, EpochShard, Timestamp};
use larder_store::{CallOptions, Partition, Range, ReadOrder, ReadQuery, Stopped};

use crate::rules::index::{IndexHit, IndexPosition, IndexQuery};

/// Shards that are read at a time, where a bucket has more than those of its first epoch.
const READS_AT_ONCE: usize = 16;
/// Least rows of a page of a shard, of many: each page is a request to the store.
const SHARD_PAGE_ROWS_MIN: usize = 64;
/// Bytes that a hit takes beside its term and its key.
const HIT_BYTES: usize = 256;

/// A merge under way.
pub(super) struct ShardMerge {
    context: Arc<NodeContext>,
    catalogue: Arc<CatalogueCopy>,
    query: Arc<IndexQuery>,
    shards: Vec<ShardCursor>,
    /// The number of the catalogue that the shards were taken from.
    number: Timestamp,
    epochs: BucketEpochs,
    /// The first row name of the merge, and the first beyond it; `None` is no end.
    first: Bytes,
    to: Option<Bytes>,
    /// The hit that was returned last.
    last: Option<IndexHit>,
}

/// Position of a merge in one shard: the hits of its last page, and where the next page begins.
struct ShardCursor {
    place: EpochShard,
    partition: Partition,
    hits: VecDeque<IndexHit>,
    next: Option<Bytes>,
}

impl ShardMerge {
    /// A merge of the rows of a query, after the hit `after`. Nothing is read yet.
    pub(super) fn new(
        context: Arc<NodeContext>,
        catalogue: Arc<CatalogueCopy>,
        query: Arc<IndexQuery>,
        after: Option<&IndexPosition>,
    ) -> Self {
        let (first, to) = query.scope.row_names();
        // A continuation is the client's: it never begins before the range.
        let first = after.map(|after| query.row_name_after(after)).max(Some(first)).unwrap_or_default();
        let current = catalogue.current();
        let (number, epochs) = (current.number(), current.epochs(&query.bucket));
        let (shards, last) = (Vec::new(), None);
        let mut merge = Self { context, catalogue, query, shards, number, epochs, first, to, last };
        merge.add_shards(epochs, 0);
        merge
    }

    /// Bytes that a merge of a bucket with these epochs holds, with pages of `limit` rows.
    pub(super) fn usual_bytes(limit: usize, epochs: BucketEpochs) -> usize {
        let shards = epochs.shards().count();
        shards * page_rows(limit, shards) * HIT_BYTES
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        let hits = self.shards.iter().flat_map(|shard| &shard.hits);
        hits.map(|hit| HIT_BYTES + hit.term.0.len() + hit.key.len()).sum()
    }

    /// The next hit. Pages of shards have `limit` rows, or fewer where there are many shards.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the catalogue cannot be checked, and the store's.
    pub(super) async fn next(&mut self, limit: usize, options: &CallOptions) -> Result<Option<IndexHit>> {
        loop {
            // Race: an epoch may open while pages are read, and hits move there; its shards are added before a hit that they
            // might precede is returned [invariant 135].
            while self.fill(limit, options).await? && self.follow_epochs().await? {}
            let shards = self.shards.iter_mut().filter(|shard| !shard.hits.is_empty());
            let Some(first) = shards.min_by(|a, b| a.hits[0].cmp(&b.hits[0])) else { return Ok(None) };
            let hit = first.hits.pop_front();
            // Siblings with one term have a row each, and a row that was written again may be in two epochs: it is one hit.
            if hit != self.last {
                self.last.clone_from(&hit);
                return Ok(hit);
            }
        }
    }

    /// Reads pages of the shards without hits, epoch by epoch; whether any was read. A shard of a newer epoch may wait: then
    /// an older one has hits that precede the rest of it.
    async fn fill(&mut self, limit: usize, options: &CallOptions) -> Result<bool> {
        let limit = page_rows(limit, self.shards.len());
        let mut has_read = false;
        for epoch in 0..self.epochs.counts().len() as u8 {
            let first = self.shards.partition_point(|shard| shard.place.epoch < epoch);
            let (older, newer) = self.shards.split_at_mut(first);
            let epoch_shards = newer.iter_mut().take_while(|shard| shard.place.epoch == epoch);
            let pages = epoch_shards.filter(|shard| shard.hits.is_empty() && shard.next.is_some()).map(|shard| {
                let end = end_of_page(shard.place, older, self.to.as_ref());
                PageRead { context: &self.context, query: &self.query, end, to: self.to.as_ref(), limit, shard }
            });
            let mut pages: Vec<PageRead<'_>> = pages.filter(PageRead::has_rows).collect();
            has_read |= !pages.is_empty();
            while pages.len() > usize::from(KEY_VIEW_SHARDS) {
                let mut reads = Vec::with_capacity(READS_AT_ONCE);
                for page in pages.drain(pages.len().saturating_sub(READS_AT_ONCE)..) {
                    reads.push(page.read(options));
                }
                try_join_all(reads).await?;
            }
            for page in pages {
                page.read(options).await?;
            }
        }
        Ok(has_read)
    }

    /// Adds the shards of epochs that were opened since; whether there are any.
    async fn follow_epochs(&mut self) -> Result<bool> {
        self.catalogue.await_fresh().await?;
        let current = self.catalogue.current();
        if current.number() == self.number {
            return Ok(false);
        }
        let (known, epochs) = (self.epochs.counts().len(), current.epochs(&self.query.bucket));
        self.number = current.number();
        if epochs.counts().len() <= known {
            return Ok(false);
        }
        self.add_shards(epochs, known);
        Ok(true)
    }

    /// Adds the shards of the epochs from this one on, at the present position.
    fn add_shards(&mut self, epochs: BucketEpochs, from: usize) {
        self.epochs = epochs;
        let copies = self.catalogue.copies(&self.query.bucket);
        let after = self.last.as_ref().map(|last| self.query.row_name_after(&IndexPosition::from_hit(last)));
        let next = after.unwrap_or_else(|| self.first.clone());
        // An empty range begins at its end, or beyond it.
        let next = Some(next).filter(|next| self.to.as_ref().is_none_or(|to| next < to));
        for place in epochs.shards().filter(|place| usize::from(place.epoch) >= from) {
            let EpochShard { epoch, shard, .. } = place;
            let bucket = &self.query.bucket;
            let partition = match self.query.scope.field() {
                Some(field) => Partition::index(bucket, field, epoch, shard, copies),
                None => Partition::keys(bucket, epoch, shard, copies),
            };
            self.shards.push(ShardCursor { place, partition, hits: VecDeque::new(), next: next.clone() });
        }
    }
}

/// Rows of a page of one shard among so many: together they have about as many as those of a bucket with one epoch, or the
/// fewest that are worth a read.
fn page_rows(limit: usize, shards: usize) -> usize {
    let share = usize::from(KEY_VIEW_SHARDS) * limit / shards.max(1);
    share.max(SHARD_PAGE_ROWS_MIN).min(limit)
}

/// Where a page of a shard ends at the latest: at the end of the range, and no later than the pages of older epochs.
fn end_of_page(place: EpochShard, older: &[ShardCursor], to: Option<&Bytes>) -> Option<Bytes> {
    // Race: a hit that moves here from an unread page of an older epoch, after this page was read, would be in neither
    // [invariant 134].
    let shared = older.iter().filter(|shard| shard.place.may_share_keys(place));
    shared.filter_map(|shard| shard.next.as_ref()).chain(to).min().cloned()
}

/// The read of one page of a shard.
struct PageRead<'a> {
    context: &'a NodeContext,
    query: &'a IndexQuery,
    end: Option<Bytes>,
    to: Option<&'a Bytes>,
    limit: usize,
    shard: &'a mut ShardCursor,
}

impl PageRead<'_> {
    /// Whether rows may be there before its end.
    fn has_rows(&self) -> bool {
        self.end.as_ref().is_none_or(|end| self.shard.next.as_ref().is_some_and(|next| next < end))
    }

    /// Reads until the shard has a hit, or is read up to the end.
    async fn read(self, options: &CallOptions) -> Result<()> {
        let Self { context, query, end, to, limit, shard } = self;
        while shard.hits.is_empty() {
            let Some(from) = shard.next.take() else { return Ok(()) };
            let range = Range { from: Some(from.clone()), to: end.clone() };
            let read = ReadQuery { range, limit, order: ReadOrder::Forward };
            let page = context.ports.store.read(&shard.partition, &read, options).await.inspect_err(|_| {
                // A page that failed is read again by the next call.
                shard.next = Some(from);
            })?;
            for row in &page.rows {
                let (hit, _) = query.hit(&row.name).map_err(|error| Error::Damaged(error.to_string()))?;
                if shard.hits.back() != Some(&hit) {
                    shard.hits.push_back(hit);
                }
            }
            shard.next = match page.stopped {
                // After the hit: a row of it that another epoch gets meanwhile would stand between the pages.
                Stopped::Limit => shard.hits.back().map(|hit| query.row_name_after(&IndexPosition::from_hit(hit))),
                Stopped::End => end.clone().filter(|end| Some(end) != to),
            };
            // Up to the pages of the older epochs: more may be here once they are read further.
            if page.stopped == Stopped::End {
                return Ok(());
            }
        }
        Ok(())
    }
}
