//! `PUT /key`: an object.

use hyper::StatusCode;
use hyper::header::ETAG;
use larder_gateway::objects::put::{PutObject, Stored};

use super::{about, checksums, conditions, describe, incoming};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let about = about::of(&call.headers)?;
    let (incoming, verdict) = incoming::bytes(call)?;
    let request = PutObject {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        about,
        incoming,
        conditions: conditions::of_write(&call.headers),
    };
    let stored = call.objects.put(&call.caller, request).await.map_err(|error| verdict.of(error))?;
    let mut reply = reply::empty(StatusCode::OK);
    say(&mut reply, &stored);
    Ok(reply)
}

/// Says what was stored: entity tag, version, checksum.
pub(super) fn say(reply: &mut Reply, stored: &Stored) {
    describe::version(reply, stored.version_id.as_deref());
    if let Some(object) = &stored.version.object {
        reply::set(reply, ETAG, describe::quoted(object.etag));
        checksums::say(reply, object.checksum.as_ref());
    }
}
