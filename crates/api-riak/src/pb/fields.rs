//! Fields that several requests have: addresses, replica counts, deadlines.

use std::time::Duration;

use bytes::Bytes;
use larder_gateway::Error;
use larder_model::address::{Address, AddressError, BucketAddress, DEFAULT_TYPE};
use larder_model::props::Quorum;

/// The bucket type of a request: absent is `default`.
pub(super) fn type_of(bucket_type: Option<Bytes>) -> Bytes {
    bucket_type.unwrap_or(Bytes::from_static(DEFAULT_TYPE))
}

/// The address of a request, checked in Riak's order.
///
/// # Errors
/// A part is empty or too long.
pub(super) fn address(
    bucket: Option<Bytes>,
    key: Option<Bytes>,
    bucket_type: Option<Bytes>,
) -> Result<Address, AddressError> {
    let (bucket, key) = (bucket.unwrap_or_default(), key.unwrap_or_default());
    for (part, name) in [("bucket", &bucket), ("key", &key)] {
        if name.is_empty() {
            return Err(AddressError::Empty(part));
        }
    }
    Address::new(BucketAddress::new(type_of(bucket_type), bucket)?, key)
}

/// A replica count: the four greatest numbers below 2³² − 1 are words (reference §3).
pub(super) fn quorum(count: Option<u32>) -> Option<Quorum> {
    match count? {
        4_294_967_294 => Some(Quorum::One),
        4_294_967_293 => Some(Quorum::Quorum),
        4_294_967_292 => Some(Quorum::All),
        4_294_967_291 => None,
        count => Some(Quorum::Count(count)),
    }
}

/// The deadline of a request, in milliseconds.
///
/// # Errors
/// `TimedOut` for zero, as over HTTP.
pub(super) fn timeout(millis: Option<u32>) -> Result<Option<Duration>, Error> {
    match millis {
        Some(0) => Err(Error::TimedOut),
        millis => Ok(millis.map(|millis| Duration::from_millis(millis.into()))),
    }
}
