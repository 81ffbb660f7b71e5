//! The entries of a bucket in key order: a merge of its shards, each read in pages.

use std::collections::VecDeque;

use bytes::Bytes;
use larder_rows::Row;
use larder_rows::codec::name_after;
use larder_rows::limits::{KEY_VIEW_SHARDS, LISTING_PAGE_ROWS, shard_page_rows};
use larder_store::{CallOptions, Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::super::Result;
use super::super::commit::HeadStore;
use crate::rules::BucketId;

/// Least rows per read of a shard: where most rows are skipped, and where none are, whatever the page size.
const ROWS_MIN: usize = 8;
const ROWS_LEAST: usize = 64;

/// Iterator over the entries of a bucket.
pub(crate) struct MergedEntries<'a> {
    heads: &'a HeadStore,
    options: CallOptions,
    end: Option<Bytes>,
    shards: Vec<EntryShardCursor>,
    /// Most rows per read of a shard.
    rows_max: usize,
}

struct EntryShardCursor {
    partition: Partition,
    rows: VecDeque<Row>,
    /// Start of the next read; `None` at the end.
    next: Option<Bytes>,
    /// Row limit of the next read.
    limit: usize,
    /// Rows of the last read that were returned, and that were skipped.
    taken: usize,
    skipped: usize,
}

impl<'a> MergedEntries<'a> {
    /// The entries in `range` (first key, end key exclusive) for a page of `max` lines.
    pub(crate) fn new(
        heads: &'a HeadStore,
        bucket: BucketId,
        range: Option<(Bytes, Option<Bytes>)>,
        max: usize,
    ) -> Self {
        let rows_max = shard_page_rows(max.min(LISTING_PAGE_ROWS)).max(ROWS_LEAST);
        let (begin, end) = range.map_or((None, None), |(begin, end)| (Some(begin), end));
        let shard = |shard| EntryShardCursor {
            partition: Partition::entries(bucket, shard),
            rows: VecDeque::new(),
            next: begin.clone(),
            limit: rows_max,
            taken: 0,
            skipped: 0,
        };
        let shards = (0..KEY_VIEW_SHARDS).map(shard).collect();
        Self { heads, options: heads.options(), end, shards, rows_max }
    }

    /// The entry of the next key.
    pub(crate) async fn next(&mut self) -> Result<Option<Row>> {
        // Yields to other requests: an engine may answer without ever waiting.
        tokio::task::consume_budget().await;
        for shard in &mut self.shards {
            while shard.rows.is_empty() && shard.next.is_some() {
                shard.fill(self.heads, self.end.as_ref(), self.rows_max, &self.options).await?;
            }
        }
        let live = self.shards.iter_mut().filter(|shard| !shard.rows.is_empty());
        let first = live.min_by(|a, b| a.name().cmp(&b.name()));
        Ok(first.and_then(|shard| {
            shard.taken += 1;
            shard.rows.pop_front()
        }))
    }

    /// Skips keys before `key`.
    pub(super) fn seek(&mut self, key: &Bytes) {
        for shard in &mut self.shards {
            while shard.name().is_some_and(|name| name < key) {
                shard.rows.pop_front();
                shard.skipped += 1;
            }
            // The next read begins at the key: keys below a common prefix are not read at all.
            if shard.rows.is_empty()
                && let Some(next) = &mut shard.next
                && *next < *key
            {
                next.clone_from(key);
            }
        }
    }
}

impl EntryShardCursor {
    fn name(&self) -> Option<&Bytes> {
        self.rows.front().map(|row| &row.name)
    }

    /// Reads the next page. Where most rows were skipped a seek is cheaper than reading them, so the read gets shorter.
    async fn fill(
        &mut self,
        heads: &HeadStore,
        end: Option<&Bytes>,
        rows_max: usize,
        options: &CallOptions,
    ) -> Result<()> {
        let Some(from) = self.next.take().filter(|from| end.is_none_or(|end| from < end)) else { return Ok(()) };
        self.limit = if self.skipped > self.taken {
            (self.limit / 2).max(ROWS_MIN)
        } else if self.taken > 0 {
            (self.limit * 2).min(rows_max)
        } else {
            self.limit
        };
        (self.taken, self.skipped) = (0, 0);
        let range = Range { from: Some(from), to: end.cloned() };
        let query = ReadQuery { range, limit: self.limit, order: ReadOrder::Forward };
        let page = heads.gateway.context().ports.store.read(&self.partition, &query, options).await?;
        self.next = page.rows.last().filter(|_| page.stopped == Stopped::Limit).map(|last| name_after(&last.name));
        self.rows = page.rows.into();
        Ok(())
    }
}
