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
    // A bucket that does not keep versions any more makes none: there is nothing to come back to.
    describe::version(reply, stored.version_id.as_deref().filter(|_| !stored.version.null));
    if let Some(object) = &stored.version.object {
        reply::set(reply, ETAG, describe::quoted(object.etag));
        if let Some(checksum) = &object.checksum {
            checksums::say(reply, checksum, checksum.kind());
        }
    }
}
