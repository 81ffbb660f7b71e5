//! `PUT /key?partNumber=N&uploadId=U`: a part of an upload.

use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName};
use larder_gateway::objects::parts::PartAddress;
use larder_model::objects::Etag;

use super::get_object::part_number;
use super::{about, describe, incoming};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    about::refuse_unbuilt(&call.headers)?;
    let at = address(call).await?;
    let (incoming, verdict) = incoming::bytes(call)?;
    let stored = call.objects.put_part(&call.caller, &at, incoming).await.map_err(|error| verdict.of(error))?;
    let mut reply = reply::empty(StatusCode::OK);
    reply::set(&mut reply, ETAG, describe::quoted(Etag::of_md5(stored.part.md5)));
    if let Some(checksum) = stored.checksum {
        reply::set(&mut reply, HeaderName::from_static(checksum.algorithm.header()), checksum.text());
    }
    Ok(reply)
}

/// Where the part goes. A bucket that is not there is told before a number that cannot be.
///
/// # Errors
/// `NoSuchBucket`, `InvalidArgument`.
pub(super) async fn address(call: &Call) -> Result<PartAddress, Fault> {
    call.objects.bucket(&call.bucket).await?;
    Ok(PartAddress {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        upload: call.query.get("uploadId").unwrap_or_default().to_owned(),
        number: part_number(call.query.get("partNumber").unwrap_or_default())?,
    })
}
