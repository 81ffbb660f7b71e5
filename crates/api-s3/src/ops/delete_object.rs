//! `DELETE /key`: deletes an object, or one version permanently.

use hyper::header::{HeaderName, HeaderValue, IF_MATCH};
use hyper::{HeaderMap, StatusCode};

use super::{conditions, object_headers, params};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};

/// Set if a delete marker was created or deleted.
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
/// Unsupported conditions. Refusing the request is safer than deleting without the check.
const UNSUPPORTED_CONDITIONS: &[&str] = &["x-amz-if-match-size", "x-amz-if-match-last-modified-time"];

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    refuse_unsupported(&call.headers)?;
    let version = params::version(&call.query);
    let if_match = conditions::etags(&call.headers, IF_MATCH);
    let deleted = call.objects.delete(&call.caller, &call.bucket, &call.key, &version, if_match).await?;
    let mut response = response::empty(StatusCode::NO_CONTENT);
    object_headers::write_version(&mut response, deleted.version_id.as_deref());
    if deleted.marker {
        response.headers_mut().insert(DELETE_MARKER, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn refuse_unsupported(headers: &HeaderMap) -> Result<(), S3Error> {
    match UNSUPPORTED_CONDITIONS.iter().find(|name| headers.contains_key(**name)) {
        Some(name) => Err(S3Error::header_not_offered(name)),
        None => Ok(()),
    }
}
