//! `PUT /key?partNumber=N&uploadId=U`: stores a part of an upload.

use hyper::StatusCode;
use hyper::header::{ETAG, HeaderName};
use larder_s3::parts::PartAddress;
use larder_s3::rules::Etag;

use super::get_object::part_number;
use super::{object_headers, object_metadata, upload_body};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    object_metadata::refuse_unsupported(&call.headers)?;
    let at = address(call).await?;
    let (body, failure) = upload_body::bytes(call)?;
    let stored =
        call.objects.uploads.put_part(&call.caller, &at, body).await.map_err(|error| failure.error_for(error))?;
    let mut response = response::empty(StatusCode::OK);
    response::set(&mut response, ETAG, object_headers::quoted(Etag::of_md5(stored.part.md5)));
    if let Some(checksum) = stored.checksum {
        response::set(&mut response, HeaderName::from_static(checksum.algorithm.header()), checksum.text());
    }
    Ok(response)
}

/// Decodes the address of a part. A missing bucket is reported before an invalid part number.
///
/// # Errors
/// `NoSuchBucket`, `InvalidArgument`.
pub(super) async fn address(call: &S3Call) -> Result<PartAddress, S3Error> {
    call.objects.buckets.find(&call.bucket).await?;
    Ok(PartAddress {
        bucket: call.bucket.clone(),
        key: call.key.clone(),
        upload: call.query.get("uploadId").unwrap_or_default().to_owned(),
        number: part_number(call.query.get("partNumber").unwrap_or_default())?,
    })
}
