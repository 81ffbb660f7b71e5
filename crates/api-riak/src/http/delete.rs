//! DELETE of an object.

use hyper::StatusCode;
use hyper::header::VARY;
use larder_core::Error;
use larder_kv::{KvDelete, KvDeleteOutcome, KvGet, Quorums};

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
    let params = ObjectParams::from_query(&call.query)?;
    let request = KvDelete {
        address: call.address()?,
        context: headers::context(call.headers, "x-riak-vclock")?,
        conditions: headers::conditions(call.headers),
        quorums: params.quorums,
        timeout: params.timeout,
    };
    let lookup = KvGet {
        address: request.address.clone(),
        quorums: Quorums::default(),
        bodies: false,
        timeout: request.timeout,
    };
    match call.gateway.kv.delete(request).await {
        Ok(KvDeleteOutcome::Done) => Ok(done(HTML)),
        Ok(KvDeleteOutcome::NotFound(_)) => Ok(not_found()),
        // Riak looks for the object before it looks at the quorums.
        Err(Error::QuorumAboveN { .. }) if is_absent(call, lookup).await => Ok(not_found()),
        Err(error) => Err(RiakFault::from_write(error, call.method).after_checks()),
    }
}

async fn is_absent(call: &RiakCall<'_>, lookup: KvGet) -> bool {
    call.gateway.kv.get(lookup).await.is_ok_and(|object| object.versions.siblings.is_empty())
}

fn not_found() -> RiakResponse {
    let mut reply = text(StatusCode::NOT_FOUND, "not found\n");
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}
