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
use super::write_headers::check_object_write;

/// DELETE: 204, or 404 when the object does not exist.
///
/// # Errors
/// An invalid parameter or header, or an error of the gateway.
pub(super) async fn delete(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    let params = ObjectParams::from_query(&call.query)?;
    check_object_write(call.headers)?;
    // It chooses one sibling of a read, and a delete takes all.
    if call.query.get("vtag").is_some() {
        return Err(RiakFault::bad("A delete takes no parameter vtag\n"));
    }
    let address = call.address()?;
    let if_not_modified = headers::if_not_modified(call.headers)?;
    let conditions = headers::conditions(call.headers);
    let request = KvDelete {
        context: headers::context(call.headers, "x-riak-vclock")?,
        conditions: call.gateway.kv.decode_conditions(conditions, if_not_modified.as_ref(), &address)?,
        address,
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
