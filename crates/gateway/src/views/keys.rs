//! The `$key` view: a row per (key, slot), written and removed with the object's own rows. A listing merges its shards.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use larder_model::address::{Address, BucketAddress};
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_model::rows::{BucketRow, Change, key_of_view_row, view_row_prefix};
use larder_store::{Level, Options, Partition, Range, ReadQuery, Stopped};
use tokio::time::Instant;

use super::Listing;
use crate::metrics::Op;
use crate::{Error, Gateway, Result};

/// Rows of one key that a deletion clears at most: one per slot, and slots are bounded by siblings.
const ROWS_OF_KEY_MAX: usize = 1000;

/// One shard of a listing in progress: the distinct keys of the page read last, and where it goes on.
struct Shard {
    partition: Partition,
    keys: VecDeque<Bytes>,
    next: Option<Bytes>,
}

impl Gateway {
    /// A page of the keys of a bucket, in order. A key is listed once, however many siblings it has; deleted keys are not.
    ///
    /// # Errors
    /// [`Error::UnknownType`], and what the store answers.
    pub async fn list_keys(
        &self,
        bucket: &BucketAddress,
        after: Option<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<Listing> {
        let work = async {
            let catalogue = self.knowing(&bucket.bucket_type).await?;
            let options = self.reading_for(timeout);
            let mut listing = self.merge_shards(bucket, after, &options).await?;
            if catalogue.effective(bucket).is_some_and(|props| props.consistent) {
                listing.names = self.only_existing(bucket, listing.names, &options).await?;
            }
            Ok(listing)
        };
        self.measured(Op::ListKeys, work).await
    }

    async fn merge_shards(&self, bucket: &BucketAddress, after: Option<Bytes>, options: &Options) -> Result<Listing> {
        let epochs = BucketRow::default();
        let start = after.map(|after| behind(&after));
        let mut shards = Vec::new();
        for (epoch, shard) in epochs.shards() {
            let partition = Partition::keys(bucket, epoch, shard);
            let mut shard = Shard { partition, keys: VecDeque::new(), next: Some(start.clone().unwrap_or_default()) };
            self.fill(&mut shard, options).await?;
            shards.push(shard);
        }
        let mut names: Vec<Bytes> = Vec::with_capacity(LISTING_PAGE_ROWS);
        while names.len() < LISTING_PAGE_ROWS {
            let first = shards.iter_mut().filter(|shard| !shard.keys.is_empty()).min_by_key(|one| one.keys[0].clone());
            let Some(shard) = first else {
                return Ok(Listing { names, next: None });
            };
            if let Some(key) = shard.keys.pop_front() {
                names.push(key);
            }
            self.fill(shard, options).await?;
        }
        let next = names.last().cloned();
        Ok(Listing { names, next })
    }

    /// Reads on until the shard has a key to offer or is at its end.
    async fn fill(&self, shard: &mut Shard, options: &Options) -> Result<()> {
        while shard.keys.is_empty() {
            let Some(from) = shard.next.take() else { return Ok(()) };
            let range = Range { from: Some(from), to: None };
            let query = ReadQuery { range, limit: LISTING_PAGE_ROWS, order: larder_store::Order::Forward };
            let page = self.ports.store.read(&shard.partition, &query, options).await?;
            for row in &page.rows {
                let key = key_of_view_row(&row.name).map_err(|error| Error::Damaged(error.to_string()))?;
                if shard.keys.back() != Some(&key) {
                    shard.keys.push_back(key);
                }
            }
            if page.stopped == Stopped::Limit {
                shard.next = shard.keys.back().map(|key| behind(key));
            }
        }
        Ok(())
    }

    /// The shard of the `$key` view that an object's rows are in.
    pub(crate) fn key_view(&self, address: &Address) -> Partition {
        let (epoch, shard) = BucketRow::default().shard_of(&address.key);
        Partition::keys(&address.bucket, epoch, shard)
    }

    /// Removals of all rows of a key that are not newer than `stamp`: for deletions that name no slots.
    pub(crate) async fn forget_key(&self, address: &Address, stamp: u64, options: &Options) -> Result<Vec<Change>> {
        let query = ReadQuery::prefix(view_row_prefix(&address.key), ROWS_OF_KEY_MAX);
        let page = self.ports.store.read(&self.key_view(address), &query, options).await?;
        Ok(page.rows.into_iter().map(|row| Change::Remove { name: row.name, stamp }).collect())
    }

    /// Options of a listing's reads.
    pub(crate) fn reading_for(&self, timeout: Option<Duration>) -> Options {
        let deadline = Instant::now() + timeout.unwrap_or(self.config.timeout);
        Options { deadline, ..self.own(Level::Quorum) }
    }
}

/// The first row name behind all rows of `key`.
fn behind(key: &[u8]) -> Bytes {
    let mut name = view_row_prefix(key).to_vec();
    // The prefix ends in 00 01: no row of the key sorts behind 00 02.
    if let Some(last) = name.last_mut() {
        *last += 1;
    }
    name.into()
}
