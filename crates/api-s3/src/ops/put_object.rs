//! `PUT /key`: stores an object.

use hyper::header::ETAG;
use hyper::{HeaderMap, StatusCode};
use larder_s3::put::{PutObject, StoredVersion};

use super::{checksums, conditions, encryption, lock_headers, object_headers, object_metadata, upload_body};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let mut metadata = object_metadata::metadata_from_headers(&call.headers, call.now)?;
    metadata.encryption = encryption::choice(call).await?;
    lock_headers::check_digest(&call.headers, &metadata.lock)?;
    let (body, failure) = upload_body::bytes(call)?;
    let request = PutObject {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        metadata,
        upload_body: body,
        conditions: conditions::write_conditions(&call.headers),
    };
    let stored = call.objects.put(&call.caller, request).await.map_err(|error| failure.error_for(error))?;
    let mut response = response::empty(StatusCode::OK);
    write_stored(&mut response, &stored, &call.headers);
    Ok(response)
}

/// Writes entity tag, version, checksum and encryption of the object that a request with these headers stored.
pub(super) fn write_stored(response: &mut S3Response, stored: &StoredVersion, headers: &HeaderMap) {
    // A bucket with suspended versioning stores the null version, which has no id to return.
    object_headers::write_version(response, stored.version_id.as_deref().filter(|_| !stored.version.null));
    object_headers::write_expiry(response, stored.expires.as_ref());
    if let Some(object) = &stored.version.object {
        response::set(response, ETAG, object_headers::quoted(object.etag));
        encryption::write_headers(response, object.encryption_kind(), headers);
        if let Some(checksum) = &object.checksum {
            checksums::write_headers(response, checksum, checksum.kind());
        }
    }
}
