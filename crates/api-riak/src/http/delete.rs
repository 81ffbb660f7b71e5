//! DELETE of an object.

use hyper::StatusCode;
use hyper::header::VARY;

use larder_gateway::kv::{KvDelete, KvDeleteOutcome};

use super::call::RiakCall;
use super::errors::RiakFault;
use super::headers;
use super::params::ObjectParams;
use super::reply::{HTML, RiakResponse, VARY_ENCODING, done, text};

/// DELETE: 204, or 404 when the object does not exist.
///
/// # Errors
/// An invalid parameter or header, or an error of the gateway.
pub(super) async fn delete(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    let params = ObjectParams::of(&call.query)?;
    let request = KvDelete {
        address: call.address()?,
        context: headers::context(call.headers, "x-riak-vclock")?,
        conditions: headers::conditions(call.headers),
        quorums: params.quorums,
        timeout: params.timeout,
    };
    match call
        .gateway
        .kv
        .delete(request)
        .await
        .map_err(|error| RiakFault::of_write(error, call.method).after_checks())?
    {
        KvDeleteOutcome::Done => Ok(done(HTML)),
        KvDeleteOutcome::NotFound(_) => {
            let mut reply = text(StatusCode::NOT_FOUND, "not found\n");
            reply.headers_mut().insert(VARY, VARY_ENCODING);
            Ok(reply)
        }
    }
}
