//! The `$bucket` view: one row per bucket, written by each gateway with its first key. A bucket is listed while it has keys.

use larder_model::Timestamp;
use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use larder_model::address::BucketAddress;
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_model::rows::{BucketRow, Change, Row};
use larder_store::{CallOptions, Partition, ReadQuery, Stopped};
use parking_lot::RwLock;

use super::Listing;
use super::keys::ExistenceCheck;
use crate::kv::Kv;
use crate::metrics::KvOp;
use crate::{Error, Result};

/// Most bytes of remembered bucket names; above it all are forgotten.
const KNOWN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a remembered bucket beside its names.
const KNOWN_OVERHEAD_BYTES: usize = 128;
/// Every gateway writes the same row with the format's stamp, so that a later epoch always wins.
const ROW_STAMP: Timestamp = Timestamp(1);

/// Buckets whose row this gateway has written: a cache that only saves writes.
#[derive(Debug, Default)]
pub(crate) struct KnownBuckets {
    known: RwLock<RememberedBuckets>,
}

#[derive(Debug, Default)]
struct RememberedBuckets {
    buckets: HashSet<BucketAddress>,
    bytes: usize,
}

impl KnownBuckets {
    /// The change that lists the bucket, unless its row is known to exist.
    pub(crate) fn bucket_row_change(&self, bucket: &BucketAddress) -> Option<Change> {
        if self.known.read().buckets.contains(bucket) {
            return None;
        }
        let value = BucketRow::default().encode();
        Some(Change::Put(Row { name: bucket.bucket.clone(), value, stamp: ROW_STAMP, expires: None }))
    }

    /// Notes that the row exists.
    pub(crate) fn note_written(&self, bucket: &BucketAddress) {
        let mut known = self.known.write();
        if known.bytes >= KNOWN_BYTES_MAX {
            *known = RememberedBuckets::default();
        }
        if known.buckets.insert(bucket.clone()) {
            known.bytes += bucket.bucket_type.len() + bucket.bucket.len() + KNOWN_OVERHEAD_BYTES;
        }
    }
}

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
                .core
                .ports
                .store
                .read(&Partition::buckets(bucket_type, self.catalogue.copies_of_type(bucket_type)), &query, &options)
                .await?;
            let last = page.rows.last().map(|row| row.name.clone());
            let mut names = Vec::with_capacity(page.rows.len());
            for row in page.rows {
                if self.has_key(bucket_type, &row, &options).await? {
                    names.push(row.name);
                }
            }
            Ok(Listing { names, next: last.filter(|_| page.stopped == Stopped::Limit) })
        };
        self.core.measure(super::listing_op(KvOp::ListBuckets, after.as_ref()), work).await
    }

    async fn has_key(&self, bucket_type: &Bytes, row: &Row, options: &CallOptions) -> Result<bool> {
        let epochs = BucketRow::decode(row.value.clone()).map_err(|error| Error::Damaged(error.to_string()))?;
        let bucket = BucketAddress { bucket_type: bucket_type.clone(), bucket: row.name.clone() };
        let props = self.catalogue.current().effective(&bucket);
        if let Some(checked) = props.and_then(|props| ExistenceCheck::of(&props)) {
            return self.has_object(&bucket, checked, options).await;
        }
        for (epoch, shard) in epochs.shards() {
            let partition = Partition::keys(&bucket, epoch, shard, self.catalogue.copies(&bucket));
            if !self.core.ports.store.read(&partition, &ReadQuery::all(1), options).await?.rows.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn has_object(&self, bucket: &BucketAddress, checked: ExistenceCheck, options: &CallOptions) -> Result<bool> {
        let mut after = None;
        loop {
            let page = self.merge_shards(bucket, after, options).await?;
            if !self.filter_existing(bucket, page.names, checked, options).await?.is_empty() {
                return Ok(true);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(false),
            }
        }
    }
}
