//! `/riak-cs/ping`, `/riak-cs/stats`, `/riak-cs/info`.

use hyper::StatusCode;
use hyper::header::{ACCEPT, ETAG, HeaderValue};
use serde_json::{Map, Value as Json, json};

use super::admin_only;
use super::document::etag;
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

/// Whether requests are served: told to everybody.
pub(super) fn ping(call: &Call) -> Reply {
    if !call.objects.gateway().is_ready() {
        return reply::empty(StatusCode::SERVICE_UNAVAILABLE);
    }
    reply::typed(StatusCode::OK, HeaderValue::from_static("text/html"), "OK")
}

/// The statistics, those of Riak KV among them.
pub(super) fn stats(call: &Call) -> Result<Reply, Fault> {
    admin_only(call)?;
    let stats = call.objects.gateway().stats().into_iter().map(|(name, value)| (name.to_owned(), value));
    let stats = Json::Object(stats.collect::<Map<_, _>>());
    let plain = call.headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/plain"));
    let (media, text) = if plain {
        (HeaderValue::from_static("text/plain"), format!("{stats:#}\n"))
    } else {
        (reply::JSON, stats.to_string())
    };
    let tag = etag(text.as_bytes());
    let mut reply = reply::typed(StatusCode::OK, media, text);
    reply::set(&mut reply, ETAG, tag);
    Ok(reply)
}

/// What runs here.
pub(super) fn info(call: &Call) -> Result<Reply, Fault> {
    admin_only(call)?;
    let version = env!("CARGO_PKG_VERSION");
    let info = json!({
        "version": version,
        "system_version": format!("Larder {version}"),
        "uptime": format!("{} seconds", call.objects.gateway().monotonic().as_secs()),
        "storage_info": [],
    });
    Ok(reply::json(StatusCode::OK, info.to_string()))
}
