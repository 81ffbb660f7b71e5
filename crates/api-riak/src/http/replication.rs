//! `GET /queuename/NAME`: a Riak fetches changes of this store, one element each time, while a move hands them back.

use hyper::StatusCode;
use hyper::header::HeaderValue;
use larder_core::Feature;

use super::call::RiakCall;
use super::errors::{self, RiakFault};
use super::path;
use super::reply::{RiakResponse, text, typed};
use super::routes::PathPart;

/// The media type of an element.
const ELEMENT: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// The form that a sink of Riak asks for unless it is told otherwise, and the form without the parameter.
const INTERNAL: &[u8] = b"internal";

/// The next element of a queue.
///
/// # Errors
/// [`Feature::Folds`] where there is no such queue, and the store's.
pub(super) async fn answer(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    // An element is handed out once, so a HEAD must not take it.
    if call.is_head() {
        return errors::answer(Feature::Folds);
    }
    let name = path::name(call.raw(PathPart::Any));
    let format = call.query.get("object_format").unwrap_or(INTERNAL);
    if format != INTERNAL {
        let characters: Vec<_> = format.iter().map(u8::to_string).collect();
        return Ok(text(StatusCode::BAD_REQUEST, format!("Format [{}] not defined", characters.join(","))));
    }
    match call.gateway.kv.next_in_queue(&name).await? {
        Some(element) => Ok(typed(StatusCode::OK, ELEMENT, element)),
        None => errors::answer(Feature::Folds),
    }
}
