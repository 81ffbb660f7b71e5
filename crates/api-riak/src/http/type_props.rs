//! The properties of a bucket type. Types are created and activated by `kv-admin` alone.

use hyper::{Method, StatusCode};
use larder_http_edge::ArrivingBody;

use super::accept;
use super::call::Call;
use super::props::{asked, object, unknown_is_a_page};
use super::reply::{Fault, JSON, Reply, done, json, page};

/// GET, HEAD and PUT of `/types/T/props`.
///
/// # Errors
/// The body, or the gateway, refuses.
pub(super) async fn answer(call: &Call<'_>, body: ArrivingBody<'_>) -> Result<Reply, Fault> {
    let name = call.bucket_type();
    if *call.method == Method::PUT {
        let props = asked(call.headers, body, "bucket type").await?;
        call.gateway.update_type(&name, &props).await?;
        return Ok(done(JSON));
    }
    if accept::media(call.headers, &["application/json"]).is_none() {
        return Ok(page(StatusCode::NOT_ACCEPTABLE));
    }
    match call.gateway.type_props(&name).await {
        Ok(list) => Ok(json(StatusCode::OK, object(&list))),
        Err(error) => unknown_is_a_page(error),
    }
}
