//! The `$bucket` view: one row per bucket, written by each gateway with its first key. A bucket is listed while it has keys.

use std::time::Duration;

use bytes::Bytes;
use larder_core::metrics::KvOp;
use larder_core::{Error, Result};
use larder_rows::address::BucketAddress;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_rows::{BucketEpochs, BucketRow, Row};
use larder_store::{CallOptions, Partition, ReadQuery, Stopped};

use super::Listing;
use super::keys::ExistenceCheck;
use crate::Kv;

impl Kv {
    /// A page of the buckets of a type that hold a key, in order.
    ///
    /// # Errors
    /// [`Error::UnknownType`], and the store's.
    pub async fn list_buckets(
        &self,
        bucket_type: &Bytes,
        after: Option<Bytes>,
        timeout: Option<Duration>,
    ) -> Result<Listing> {
        let work = async {
            self.catalogue.for_type(bucket_type).await?;
            let options = self.listing_options(timeout);
            let query = ReadQuery::after(after.as_ref(), LISTING_PAGE_ROWS);
            let page = self
                .context
                .ports
                .store
                .read(&Partition::buckets(bucket_type, self.catalogue.copies_of_type(bucket_type)), &query, &options)
                .await?;
            // The next page begins after the last row, listed or not: a page of empty buckets is not the end.
            let last = page.rows.last().map(|row| row.name.clone());
            let mut names = Vec::with_capacity(page.rows.len());
            for row in page.rows {
                // An engine in this process never waits: without this many buckets would hold the thread.
                tokio::task::consume_budget().await;
                if self.has_key(bucket_type, &row, &options).await? {
                    names.push(row.name);
                }
            }
            Ok(Listing { names, next: last.filter(|_| page.stopped == Stopped::Limit) })
        };
        self.context.admit_and_measure(super::listing_op(KvOp::ListBuckets, after.as_ref()), work).await
    }

    /// The buckets whose indexes have more than one epoch, by name.
    ///
    /// # Errors
    /// [`Error::NotReady`] when the catalogue cannot be checked.
    pub async fn split_buckets(&self) -> Result<Vec<(BucketAddress, BucketEpochs)>> {
        let catalogue = self.catalogue.fresh().await?;
        Ok(catalogue.split_buckets().map(|(bucket, epochs)| (bucket.clone(), *epochs)).collect())
    }

    async fn has_key(&self, bucket_type: &Bytes, row: &Row, options: &CallOptions) -> Result<bool> {
        BucketRow::decode(row.value.clone()).map_err(|error| Error::Damaged(error.to_string()))?;
        let bucket = BucketAddress { bucket_type: bucket_type.clone(), bucket: row.name.clone() };
        let props = self.catalogue.current().effective(&bucket);
        if let Some(checked) = props.and_then(|props| ExistenceCheck::for_props(&props)) {
            return self.has_object(&bucket, checked, options).await;
        }
        let mut looked_at = 0;
        loop {
            self.catalogue.await_fresh().await?;
            let epochs = self.catalogue.epochs(&bucket);
            // The oldest first, and the new ones once more: a key that is written again meanwhile is in a newer one.
            for place in epochs.shards().filter(|place| usize::from(place.epoch) >= looked_at) {
                let partition = Partition::keys(&bucket, place.epoch, place.shard, self.catalogue.copies(&bucket));
                if !self.context.ports.store.read(&partition, &ReadQuery::all(1), options).await?.rows.is_empty() {
                    return Ok(true);
                }
            }
            if epochs.counts().len() == looked_at {
                return Ok(false);
            }
            looked_at = epochs.counts().len();
        }
    }

    async fn has_object(&self, bucket: &BucketAddress, checked: ExistenceCheck, options: &CallOptions) -> Result<bool> {
        let mut after = None;
        loop {
            let page = self.merge_shards(bucket, after, options).await?;
            // One by one: nearly always the first one exists.
            for name in page.names {
                if !self.filter_existing(bucket, vec![name], checked, options).await?.is_empty() {
                    return Ok(true);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(false),
            }
        }
    }
}
