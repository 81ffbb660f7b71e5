//! `/riak-cs/ping`, `/riak-cs/stats`, `/riak-cs/info`.

use hyper::StatusCode;
use hyper::header::{ACCEPT, ETAG, HeaderValue};
use serde_json::{Map, Value as Json, json};

use super::admin_only;
use super::document::etag;
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};

/// Whether requests are served; needs no signature.
pub(crate) fn ping(call: &S3Call) -> S3Response {
    if !call.objects.gateway.is_ready() {
        return response::empty(StatusCode::SERVICE_UNAVAILABLE);
    }
    response::typed(StatusCode::OK, HeaderValue::from_static("text/html"), "OK")
}

/// The statistics, including those of Riak KV.
pub(crate) fn stats(call: &S3Call) -> Result<S3Response, S3Error> {
    admin_only(call)?;
    let stats = call.objects.gateway.stats().into_iter().map(|(name, value)| (name.to_owned(), value));
    let stats = Json::Object(stats.collect::<Map<_, _>>());
    let plain = call.headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/plain"));
    let (media, text) = if plain {
        (HeaderValue::from_static("text/plain"), format!("{stats:#}\n"))
    } else {
        (response::JSON, stats.to_string())
    };
    let tag = etag(text.as_bytes());
    let mut response = response::typed(StatusCode::OK, media, text);
    response::set(&mut response, ETAG, tag);
    Ok(response)
}

/// Version and uptime.
pub(crate) fn info(call: &S3Call) -> Result<S3Response, S3Error> {
    admin_only(call)?;
    let version = env!("CARGO_PKG_VERSION");
    let info = json!({
        "version": version,
        "system_version": format!("Larder {version}"),
        "uptime": format!("{} seconds", call.objects.gateway.core.monotonic().as_secs()),
        "storage_info": [],
    });
    Ok(response::json(StatusCode::OK, info.to_string()))
}
