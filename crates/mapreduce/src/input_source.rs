//! The inputs of a job, in pages.

use std::time::Duration;
use std::vec::IntoIter;

use bytes::Bytes;
use larder_core::Error;
use larder_kv::Kv;
use larder_kv::rules::index::{IndexHit, IndexQuery};
use larder_kv::views::{IndexPage, IndexReader};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::limits::LISTING_PAGE_ROWS;
use tokio::time::Instant;

use super::object_reader::should_repeat;
use crate::rules::inputs::{IndexInputs, JobInputs};
use crate::rules::key_filter::KeyFilter;
use crate::rules::{JobInput, JobValue};

/// Keys that a filter looks at before other tasks of the thread have their turn.
const FILTERED_AT_ONCE: usize = 16;

/// The inputs that are left.
pub(super) enum InputSource {
    /// Keys of the document, and the bytes of memory of all of them: their list goes as a whole.
    Listed(IntoIter<JobInput>, usize),
    /// Keys of a bucket.
    Bucket(KeyPages),
    /// Keys of an index query.
    Index(Box<IndexReader>),
    /// None.
    Ended,
}

/// The pages of a bucket's keys.
pub(super) struct KeyPages {
    bucket: BucketAddress,
    after: Option<Bytes>,
    filter: Option<KeyFilter>,
}

impl InputSource {
    /// The source of these inputs.
    ///
    /// # Errors
    /// They are of an index that cannot be queried.
    pub(super) fn open(kv: &Kv, inputs: JobInputs, timeout: Duration) -> Result<Self, Error> {
        let pages = |bucket, filter| Self::Bucket(KeyPages { bucket, after: None, filter });
        Ok(match inputs {
            JobInputs::Keys(keys) => {
                let bytes = keys.iter().map(JobInput::bytes).sum();
                Self::Listed(keys.into_iter(), bytes)
            }
            JobInputs::Bucket(bucket) => pages(bucket, None),
            JobInputs::Filtered(bucket, filter) => pages(bucket, Some(filter)),
            JobInputs::Index(IndexInputs { bucket, field, start, end }) => {
                let query = IndexQuery::range(bucket, &field, &start, &end);
                // The terms were checked when the document was read.
                let query = query.map_err(|error| Error::Internal(error.erlang()))?;
                Self::Index(kv.query_index(query, None, Some(timeout)).into())
            }
        })
    }

    /// Bytes of memory that it takes besides a page.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Listed(_, bytes) => *bytes,
            Self::Bucket(_) | Self::Index(_) | Self::Ended => 0,
        }
    }

    /// The next page, perhaps empty; `None` at the end.
    ///
    /// # Errors
    /// The gateway's.
    pub(super) async fn next_page(&mut self, kv: &Kv, deadline: Instant) -> Result<Option<Vec<JobValue>>, Error> {
        match self {
            Self::Ended => Ok(None),
            Self::Listed(keys, _) => {
                let page: Vec<JobValue> = keys.take(LISTING_PAGE_ROWS).map(JobValue::Key).collect();
                if keys.len() == 0 {
                    *self = Self::Ended;
                }
                Ok(Some(page))
            }
            Self::Index(reader) => {
                let mut page = reader.next(LISTING_PAGE_ROWS).await;
                while should_repeat(&page).await {
                    page = reader.next(LISTING_PAGE_ROWS).await;
                }
                let IndexPage { hits, is_last } = page?;
                let bucket = reader.query().bucket.clone();
                let value = |hit: IndexHit| {
                    JobValue::Key(JobInput::from_address(Address { bucket: bucket.clone(), key: hit.key }))
                };
                let page = hits.into_iter().map(value).collect();
                if is_last {
                    *self = Self::Ended;
                }
                Ok(Some(page))
            }
            Self::Bucket(pages) => {
                let (page, has_more) = pages.next(kv, deadline).await?;
                if !has_more {
                    *self = Self::Ended;
                }
                Ok(Some(page))
            }
        }
    }
}

impl KeyPages {
    /// The next page, and whether more follow.
    async fn next(&mut self, kv: &Kv, deadline: Instant) -> Result<(Vec<JobValue>, bool), Error> {
        let timeout = || Some(deadline.saturating_duration_since(Instant::now()));
        let mut listing = kv.list_keys(&self.bucket, self.after.clone(), timeout()).await;
        while should_repeat(&listing).await {
            listing = kv.list_keys(&self.bucket, self.after.clone(), timeout()).await;
        }
        let listing = listing?;
        let has_more = listing.next.is_some();
        self.after = listing.next;
        let value = |key| JobValue::Key(JobInput::from_address(Address { bucket: self.bucket.clone(), key }));
        let Some(filter) = &self.filter else { return Ok((listing.names.into_iter().map(value).collect(), has_more)) };
        let mut page = Vec::new();
        for (at, key) in listing.names.into_iter().enumerate() {
            // A filter waits for nothing: without this a thousand steps a key would hold the thread beyond the deadline.
            if at % FILTERED_AT_ONCE == 0 {
                tokio::task::yield_now().await;
                if Instant::now() >= deadline {
                    return Err(Error::TimedOut);
                }
            }
            if filter.passes(&key) {
                page.push(value(key));
            }
        }
        Ok((page, has_more))
    }
}
