//! DELETE of an object.

use hyper::StatusCode;
use hyper::header::VARY;

use larder_gateway::kv::{DeleteObject, Deleted};

use super::call::Call;
use super::conditional;
use super::params::Params;
use super::reply::{Fault, HTML, Reply, VARY_ENCODING, done, text};

/// DELETE: 204, or 404 when there was nothing.
///
/// # Errors
/// A parameter, a header or the gateway refuses.
pub(super) async fn delete(call: &Call<'_>) -> Result<Reply, Fault> {
    let params = Params::of(&call.query)?;
    let request = DeleteObject {
        address: call.address()?,
        context: conditional::context(call.headers, "x-riak-vclock")?,
        conditions: conditional::conditions(call.headers),
        quorums: params.quorums,
        timeout: params.timeout,
    };
    match call.gateway.delete(request).await.map_err(|error| Fault::from(error).after_checks())? {
        Deleted::Done => Ok(done(HTML)),
        Deleted::NotFound(_) => {
            let mut reply = text(StatusCode::NOT_FOUND, "not found\n");
            reply.headers_mut().insert(VARY, VARY_ENCODING);
            Ok(reply)
        }
    }
}
