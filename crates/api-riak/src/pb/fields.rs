//! Fields that several requests have: addresses, replica counts, deadlines.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_core::Error;
use larder_core::rules::props::Quorum;
use larder_core::rules::props::value::Value;
use larder_kv::Gateway;
use larder_rows::address::{Address, AddressError, BucketAddress, DEFAULT_TYPE};

use super::fault::PbFault;

/// The bucket type of a request: absent is `default`.
pub(super) fn type_name(bucket_type: Option<Bytes>) -> Bytes {
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
    Address::new(BucketAddress::new(type_name(bucket_type), bucket)?, key)
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

/// The copies of a bucket's objects.
///
/// # Errors
/// The type is unknown, or another error of the gateway.
pub(super) async fn default_n_val(gateway: &Arc<Gateway>, bucket: &BucketAddress) -> Result<u32, Error> {
    let props = gateway.types().bucket_props(bucket).await?;
    let n_val = props.iter().find_map(|(name, value)| match value {
        Value::Int(n_val) if *name == "n_val" => u32::try_from(*n_val).ok(),
        _ => None,
    });
    Ok(n_val.unwrap_or_default())
}

/// Checks the `n_val` of a request: that of its bucket is the only one that objects have.
///
/// # Errors
/// It is another one, or as [`default_n_val`].
pub(super) async fn check_n_val(gateway: &Arc<Gateway>, bucket: &BucketAddress, requested: u32) -> Result<(), PbFault> {
    let n_val = default_n_val(gateway, bucket).await?;
    if requested > n_val {
        return Err(PbFault::Text(format!("{{n_val_violation,{requested}}}")));
    }
    if requested < n_val {
        return Err(PbFault::Text(format!(
            "n_val={requested} is not available: every object has the n_val {n_val} of its bucket"
        )));
    }
    Ok(())
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
