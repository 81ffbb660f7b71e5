//! Links between the pages of keys and objects, and the address that a link names.

use std::time::Duration;

use larder_core::Error;
use larder_rows::address::{Address, BucketAddress};

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::href::Href;

/// How long a page of keys may take.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The pages above a bucket, and with it those above a key.
pub(super) fn above(bucket: &BucketAddress, with_bucket: bool) -> Vec<(Href, String)> {
    let (bucket_type, name) = (&bucket.bucket_type, &bucket.bucket);
    let mut steps = vec![(Href::to("/keys"), "Keys".to_owned()), (to_buckets(bucket_type), shown(bucket_type))];
    if with_bucket {
        steps.push((to_keys(bucket_type, name), shown(name)));
    }
    steps
}

pub(super) fn to_buckets(bucket_type: &[u8]) -> Href {
    Href::to("/keys").with("type", bucket_type)
}

pub(super) fn to_keys(bucket_type: &[u8], bucket: &[u8]) -> Href {
    to_buckets(bucket_type).with("bucket", bucket)
}

/// The page of a key.
pub(super) fn to_object(bucket: &BucketAddress, key: &[u8]) -> Href {
    object_path("/object", bucket, key)
}

/// A path about a key.
pub(super) fn object_path(path: &'static str, bucket: &BucketAddress, key: &[u8]) -> Href {
    Href::to(path).with("type", &bucket.bucket_type).with("bucket", &bucket.bucket).with("key", key)
}

/// The address in the link of a page or a change.
pub(super) fn object_address(call: &ConsoleCall<'_>) -> Result<Address, ConsoleFault> {
    let query = &call.query;
    let bucket = BucketAddress::new(query.bytes("type"), query.bytes("bucket")).map_err(Error::from)?;
    Ok(Address::new(bucket, query.bytes("key")).map_err(Error::from)?)
}
