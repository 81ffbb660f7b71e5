//! `PUT /key?partNumber=N&uploadId=U`: a part of an upload.

use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName};
use larder_gateway::objects::parts::PartAddress;
use larder_gateway::objects::put::ChecksumWanted;
use larder_model::objects::{Algorithm, Checksum, Etag, Part};

use super::get_object::part_number;
use super::{about, describe, incoming};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    about::refuse_unbuilt(&call.headers)?;
    let at = address(call).await?;
    let (incoming, verdict) = incoming::bytes(call)?;
    let wanted = incoming.checksum.clone();
    let part = call.objects.put_part(&call.caller, &at, incoming).await.map_err(|error| verdict.of(error))?;
    let mut reply = reply::empty(StatusCode::OK);
    reply::set(&mut reply, ETAG, describe::quoted(Etag::of_md5(part.md5)));
    if let Some(checksum) = checksum_of(&part, &wanted) {
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

/// The checksum of a part: the one that was stored, or the one that was given and held.
fn checksum_of(part: &Part, wanted: &ChecksumWanted) -> Option<Checksum> {
    let named = incoming::algorithm(wanted);
    match (&part.checksum, wanted) {
        (Some(digest), _) => {
            let algorithm = named.or_else(|| by_length(digest.len()))?;
            (algorithm.digest_length() == digest.len()).then(|| Checksum::full(algorithm, digest.clone()))
        }
        (None, ChecksumWanted::Given(checksum)) => Some(checksum.clone()),
        (None, _) => None,
    }
}

/// The algorithm whose digests alone have this length.
pub(super) fn by_length(length: usize) -> Option<Algorithm> {
    let mut fitting = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.digest_length() == length);
    let first = fitting.next();
    first.filter(|_| fitting.next().is_none())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn part(checksum: Option<&'static [u8]>) -> Part {
        let checksum = checksum.map(Bytes::from_static);
        Part { number: 1, md5: [0; 16], length: 0, blob: None, modified: 1, checksum }
    }

    #[test]
    fn the_checksum_that_is_told() {
        let told = |checksum, wanted| checksum_of(&part(checksum), &wanted).map(|checksum| checksum.algorithm.name());
        let given = ChecksumWanted::Given(Checksum::full(Algorithm::Sha1, Bytes::from_static(&[0; 20])));
        assert_eq!(told(Some(&[0; 4]), ChecksumWanted::Trailing(Algorithm::Crc32c)), Some("CRC32C"));
        assert_eq!(told(Some(&[0; 8]), ChecksumWanted::Default), Some("CRC64NVME"));
        assert_eq!(told(Some(&[0; 4]), ChecksumWanted::Default), None);
        assert_eq!(told(Some(&[0; 8]), ChecksumWanted::Trailing(Algorithm::Crc32c)), None);
        assert_eq!(told(None, given), Some("SHA1"));
        assert_eq!(told(None, ChecksumWanted::Default), None);
    }
}
