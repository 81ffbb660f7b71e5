//! `DELETE /key`: an object, or one version of it for ever.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use super::{conditions, describe, params};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

/// Says that a delete marker was met, written or removed.
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
/// Conditions that are not checked here: deleting in spite of them would be worse than refusing.
const NOT_BUILT: &[&str] = &["x-amz-if-match-size", "x-amz-if-match-last-modified-time"];

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    refuse_unbuilt(&call.headers)?;
    let version = params::version(&call.query);
    let if_match = conditions::etags(&call.headers, "if-match");
    let deleted = call.objects.delete(&call.caller, &call.bucket, &call.key, &version, if_match).await?;
    let mut reply = reply::empty(StatusCode::NO_CONTENT);
    describe::version(&mut reply, deleted.version_id.as_deref());
    if deleted.marker {
        reply.headers_mut().insert(DELETE_MARKER, HeaderValue::from_static("true"));
    }
    Ok(reply)
}

fn refuse_unbuilt(headers: &HeaderMap) -> Result<(), Fault> {
    match NOT_BUILT.iter().find(|name| headers.contains_key(**name)) {
        Some(name) => Err(Fault::header_not_offered(name)),
        None => Ok(()),
    }
}
