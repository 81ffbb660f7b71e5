//! The buckets of a type, and the old resource that shows properties and keys of a bucket at once.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;

use larder_gateway::Gateway;

use super::accept;
use super::call::Call;
use super::listing::{Lister, Mode, Of};
use super::params::timeout;
use super::props;
use super::reply::{Fault, Reply, json, page};

/// GET and HEAD of `/buckets`, `/types/T/buckets` and `/riak`.
///
/// # Errors
/// A bad `timeout`; what the gateway answers.
pub(super) async fn get(call: &Call<'_>, gateway: &Arc<Gateway>) -> Result<Reply, Fault> {
    let timeout = timeout(&call.query)?;
    if accept::media(call.headers, &["application/json"]).is_none() {
        return Ok(page(StatusCode::NOT_ACCEPTABLE));
    }
    let bucket_type = call.bucket_type();
    match Mode::asked(&call.query, "buckets") {
        Mode::None => match call.gateway.type_props(&bucket_type).await {
            Ok(_) => Ok(json(StatusCode::OK, r#"{"buckets":[]}"#)),
            Err(error) => props::unknown_is_a_page(error),
        },
        mode => Lister::new(gateway, Of::Buckets(bucket_type), timeout).reply(mode, Bytes::new()).await,
    }
}

/// GET and HEAD of `/riak/B`: properties unless `props=false`, keys if `keys` asks for them.
///
/// # Errors
/// A bad `timeout`; what the gateway answers.
pub(super) async fn get_old(call: &Call<'_>, gateway: &Arc<Gateway>) -> Result<Reply, Fault> {
    let (mode, with_props) = (Mode::asked(&call.query, "keys"), !call.query.is("props", "false"));
    if mode == Mode::None && !with_props {
        return Ok(page(StatusCode::NOT_FOUND));
    }
    let timeout = timeout(&call.query)?;
    if accept::media(call.headers, &["application/json"]).is_none() {
        return Ok(page(StatusCode::NOT_ACCEPTABLE));
    }
    let bucket = call.bucket()?;
    let shown = if with_props { props::object(&call.gateway.bucket_props(&bucket).await?) } else { "{}".into() };
    let head = match mode {
        Mode::None => return Ok(json(StatusCode::OK, shown)),
        Mode::Stream => shown,
        // The members without the braces around them.
        Mode::Whole => shown.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default().to_owned(),
    };
    Lister::new(gateway, Of::Keys(bucket), timeout).reply(mode, Bytes::from(head)).await
}
