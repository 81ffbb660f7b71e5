//! Listings of keys and buckets: pages of the gateway under one deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_kv::Gateway;
use larder_kv::views::Listing;
use larder_rows::address::BucketAddress;

/// The subject of a listing.
#[derive(Debug, Clone)]
pub(crate) enum ListingTarget {
    /// Keys of a bucket.
    Keys(BucketAddress),
    /// Buckets of a type.
    Buckets(Bytes),
}

/// A running listing.
pub(crate) struct Lister {
    gateway: Arc<Gateway>,
    pub(crate) target: ListingTarget,
    deadline: Option<Duration>,
}

impl Lister {
    /// A listing that must end within `timeout`.
    #[must_use]
    pub(crate) fn new(gateway: &Arc<Gateway>, target: ListingTarget, timeout: Option<Duration>) -> Self {
        let deadline = timeout.map(|timeout| gateway.context().monotonic().saturating_add(timeout));
        Self { gateway: Arc::clone(gateway), target, deadline }
    }

    /// The page after `after`.
    ///
    /// # Errors
    /// The deadline has passed, or an error of the gateway.
    pub(crate) async fn page(&self, after: Option<Bytes>) -> Result<Listing, Error> {
        // The deadline is of the whole listing: each page gets the rest of it.
        let timeout = self.deadline.map(|deadline| deadline.saturating_sub(self.gateway.context().monotonic()));
        if timeout == Some(Duration::ZERO) {
            return Err(Error::TimedOut);
        }
        match &self.target {
            ListingTarget::Keys(bucket) => self.gateway.kv.list_keys(bucket, after, timeout).await,
            ListingTarget::Buckets(bucket_type) => self.gateway.kv.list_buckets(bucket_type, after, timeout).await,
        }
    }
}
