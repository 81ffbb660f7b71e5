//! Whose bucket a client expects to meet: a request for somebody else's is refused before it does anything.

use super::params;
use crate::call::Call;
use crate::errors::{Code, Fault};

/// Who the bucket of the request must belong to.
pub(crate) const OF_BUCKET: &str = "x-amz-expected-bucket-owner";
/// Who the bucket of a copy's source must belong to.
pub(crate) const OF_SOURCE: &str = "x-amz-source-expected-bucket-owner";

/// Refuses a bucket that is not of the owner, by canonical id, whom the header `name` expects.
///
/// # Errors
/// 403 `AccessDenied`, `NoSuchBucket`.
pub(crate) async fn expected(call: &Call, name: &str, bucket: &str) -> Result<(), Fault> {
    if bucket.is_empty() || !call.headers.contains_key(name) {
        return Ok(());
    }
    let owner = call.objects.bucket(bucket).await?.owner.clone();
    if params::header(&call.headers, name) == Some(owner.as_str()) { Ok(()) } else { Err(Code::AccessDenied.into()) }
}
