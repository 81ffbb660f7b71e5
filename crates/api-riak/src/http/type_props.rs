//! The properties of a bucket type. Types are created and activated by `kv-admin` alone.

use hyper::{Method, StatusCode};
use larder_net::ArrivingBody;

use super::accept;
use super::call::RiakCall;
use super::errors::RiakFault;
use super::props::{object, read_props, unknown_type_page};
use super::reply::{JSON, RiakResponse, done, json};

/// GET, HEAD and PUT of `/types/T/props`.
///
/// # Errors
/// An invalid body, or an error of the gateway.
pub(super) async fn answer(call: &RiakCall<'_>, body: ArrivingBody<'_>) -> Result<RiakResponse, RiakFault> {
    let name = call.bucket_type();
    if *call.method == Method::PUT {
        let props = read_props(call.headers, body, "bucket type").await?;
        call.gateway.types.update(&name, &props).await?;
        return Ok(done(JSON));
    }
    accept::require(call.headers, &["application/json"])?;
    match call.gateway.types.props(&name).await {
        Ok(list) => Ok(json(StatusCode::OK, object(&list))),
        Err(error) => unknown_type_page(error),
    }
}
