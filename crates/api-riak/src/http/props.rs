//! The properties of a bucket.

use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use serde_json::{Map, Value as Json};

use larder_gateway::{Error, Gateway};
use larder_http_edge::ArrivingBody;
use larder_model::address::BucketAddress;
use larder_model::props::display::{self, List};
use larder_model::props::set::props_of;

use super::accept;
use super::body::collect;
use super::call::Call;
use super::reply::{Fault, JSON, Reply, done, json, not_found_page, page};

/// Longest body of properties.
const PROPS_BYTES_MAX: u64 = 1024 * 1024;

/// GET, HEAD, PUT and DELETE of `/…/props`, and of the old `/riak/B`.
///
/// # Errors
/// The body, or the gateway, refuses.
pub(super) async fn answer(call: &Call<'_>, body: ArrivingBody<'_>) -> Result<Reply, Fault> {
    let bucket = call.bucket()?;
    match *call.method {
        Method::PUT => put(call, &bucket, body).await,
        Method::DELETE => match call.gateway.reset_bucket_props(&bucket).await {
            Ok(()) => Ok(done(JSON)),
            Err(error) => unknown_is_a_page(error),
        },
        _ => get(call.gateway, call.headers, &bucket).await,
    }
}

async fn get(gateway: &Gateway, headers: &HeaderMap, bucket: &BucketAddress) -> Result<Reply, Fault> {
    if accept::media(headers, &["application/json"]).is_none() {
        return Ok(page(StatusCode::NOT_ACCEPTABLE));
    }
    match gateway.bucket_props(bucket).await {
        Ok(list) => Ok(json(StatusCode::OK, object(&list))),
        Err(error) => unknown_is_a_page(error),
    }
}

async fn put(call: &Call<'_>, bucket: &BucketAddress, body: ArrivingBody<'_>) -> Result<Reply, Fault> {
    let props = asked(call.headers, body, "bucket").await?;
    match call.gateway.set_bucket_props(bucket, &props).await {
        Ok(()) => Ok(done(JSON)),
        Err(Error::UnknownType(_)) => Ok(json(StatusCode::BAD_REQUEST, r#""no_type""#)),
        Err(error) => Err(error.into()),
    }
}

/// The properties that a body asks for: first it has to be an object of them, then of the right media type, as Riak checks.
///
/// # Errors
/// 400 with the form that `what` has to have; 415.
pub(super) async fn asked(headers: &HeaderMap, body: ArrivingBody<'_>, what: &str) -> Result<Map<String, Json>, Fault> {
    let body = collect(body, PROPS_BYTES_MAX).await?;
    let props = props_of(&body).map_err(|_| {
        Fault::bad(format!("{what} PUT must be a JSON object of the form:\n{{\"props\":{{...bucket properties...}}}}"))
    })?;
    if is_json(headers) { Ok(props) } else { Err(Fault::page(StatusCode::UNSUPPORTED_MEDIA_TYPE).after_checks()) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let media = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Properties as `{"props":{…}}`, in their order.
#[must_use]
pub(super) fn object(list: &List) -> String {
    let props = Json::Object(display::to_json(list));
    format!("{{\"props\":{props}}}")
}

/// An unknown type is the page of a 404 here; other errors stay what they are.
///
/// # Errors
/// Every other one.
pub(super) fn unknown_is_a_page(error: Error) -> Result<Reply, Fault> {
    match error {
        Error::UnknownType(_) => Ok(not_found_page()),
        other => Err(other.into()),
    }
}
