//! Expected bucket owners: a request for a bucket of another owner is refused before it has any effect.

use super::params;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};

/// The expected owner of the request's bucket.
pub(crate) const OF_BUCKET: &str = "x-amz-expected-bucket-owner";
/// The expected owner of the source bucket of a copy.
pub(crate) const OF_SOURCE: &str = "x-amz-source-expected-bucket-owner";

/// Refuses a bucket whose owner is not the canonical id in the header `name`.
///
/// # Errors
/// 403 `AccessDenied`, `NoSuchBucket`.
pub(crate) async fn check_expected(call: &S3Call, name: &str, bucket: &str) -> Result<(), S3Error> {
    if bucket.is_empty() || !call.headers.contains_key(name) {
        return Ok(());
    }
    let owner = call.objects.buckets.find(bucket).await?.owner.clone();
    if params::header(&call.headers, name) == Some(owner.as_str()) { Ok(()) } else { Err(Code::AccessDenied.into()) }
}
