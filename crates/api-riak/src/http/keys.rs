//! The keys of a bucket.

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

/// GET and HEAD of `/…/keys`: with `keys=true` or `keys=stream` the keys, else an empty object.
///
/// # Errors
/// A bad `timeout`; what the gateway answers.
pub(super) async fn get(call: &Call<'_>, gateway: &Arc<Gateway>) -> Result<Reply, Fault> {
    let timeout = timeout(&call.query)?;
    if accept::media(call.headers, &["application/json"]).is_none() {
        return Ok(page(StatusCode::NOT_ACCEPTABLE));
    }
    match Mode::asked(&call.query, "keys") {
        Mode::None => match call.gateway.type_props(&call.bucket_type()).await {
            Ok(_) => Ok(json(StatusCode::OK, "{}")),
            Err(error) => props::unknown_is_a_page(error),
        },
        mode => Lister::new(gateway, Of::Keys(call.bucket()?), timeout).reply(mode, Bytes::new()).await,
    }
}
