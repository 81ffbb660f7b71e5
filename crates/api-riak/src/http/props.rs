//! The properties of a bucket.

use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use larder_core::Error;
use larder_core::rules::props::display::{self, PropList};
use larder_core::rules::props::effective::body_props;
use larder_kv::Gateway;
use larder_net::ArrivingBody;
use larder_rows::address::BucketAddress;
use serde_json::{Map, Value as Json};

use super::accept;
use super::body::collect;
use super::call::RiakCall;
use super::errors::RiakFault;
use super::reply::{JSON, RiakResponse, done, json, not_found_page};
use super::write_headers::check_props_write;

/// Longest body of properties.
const PROPS_BYTES_MAX: u64 = 1024 * 1024;

/// GET, HEAD, PUT and DELETE of `/…/props`, and of the old `/riak/B`.
///
/// # Errors
/// A condition of a write, an invalid header or body, or an error of the gateway.
pub(super) async fn answer(call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    let bucket = call.bucket()?;
    if matches!(*call.method, Method::PUT | Method::DELETE) {
        check_props_write(call.headers)?;
    }
    match *call.method {
        Method::PUT => put(call, &bucket, body).await,
        Method::DELETE => match call.gateway.types().reset_bucket_props(&bucket).await {
            Ok(()) => Ok(done(JSON)),
            Err(error) => unknown_type_page(error),
        },
        _ => get(call.gateway, call.headers, &bucket).await,
    }
}

async fn get(gateway: &Gateway, headers: &HeaderMap, bucket: &BucketAddress) -> Result<RiakResponse, RiakFault> {
    accept::require(headers, &["application/json"])?;
    match gateway.types().bucket_props(bucket).await {
        Ok(list) => Ok(json(StatusCode::OK, object(&list))),
        Err(error) => unknown_type_page(error),
    }
}

async fn put(call: &RiakCall<'_>, bucket: &BucketAddress, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    let props = read_props(call.headers, body, "bucket").await?;
    match call.gateway.types().set_bucket_props(bucket, &props).await {
        Ok(()) => Ok(done(JSON)),
        Err(Error::UnknownType(_)) => Ok(json(StatusCode::BAD_REQUEST, r#""no_type""#)),
        Err(error) => Err(error.into()),
    }
}

/// The properties in a body. As in Riak, the form of the body is checked before its media type.
///
/// # Errors
/// 400 with the form that a PUT of `what` needs; 415.
pub(super) async fn read_props(
    headers: &HeaderMap,
    body: ArrivingBody<'_>,
    what: &str,
) -> Result<Map<String, Json>, RiakFault> {
    let body = collect(body, PROPS_BYTES_MAX).await?;
    let props = body_props(&body).map_err(|_| {
        RiakFault::bad(format!(
            "{what} PUT must be a JSON object of the form:\n{{\"props\":{{...bucket properties...}}}}"
        ))
    })?;
    if is_json(headers) { Ok(props) } else { Err(RiakFault::page(StatusCode::UNSUPPORTED_MEDIA_TYPE).after_checks()) }
}

/// Whether the request's document is JSON, by its media type.
#[must_use]
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let media = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Properties as `{"props":{…}}`, in their order.
#[must_use]
pub(super) fn object(list: &PropList) -> String {
    let props = Json::Object(display::to_json(list));
    format!("{{\"props\":{props}}}")
}

/// The 404 page for an unknown type.
///
/// # Errors
/// Every other error.
pub(super) fn unknown_type_page(error: Error) -> Result<RiakResponse, RiakFault> {
    match error {
        Error::UnknownType(_) => Ok(not_found_page()),
        other => Err(other.into()),
    }
}

/// GET, HEAD and PUT of `/types/T/props`.
///
/// # Errors
/// A condition of a write, an invalid header or body, or an error of the gateway.
pub(super) async fn answer_for_type(call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    let name = call.bucket_type();
    if *call.method == Method::PUT {
        check_props_write(call.headers)?;
        let props = read_props(call.headers, body, "bucket type").await?;
        call.gateway.types().update(&name, &props).await?;
        return Ok(done(JSON));
    }
    accept::require(call.headers, &["application/json"])?;
    match call.gateway.types().props(&name).await {
        Ok(list) => Ok(json(StatusCode::OK, object(&list))),
        Err(error) => unknown_type_page(error),
    }
}
