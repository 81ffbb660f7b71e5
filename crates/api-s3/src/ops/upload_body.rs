//! Bodies of uploads, and documents.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use larder_s3::put::UploadBody;

use super::checksums;
use crate::body::RequestBodyFailure;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};

/// The body of an object or a part, and the slot for its failure.
///
/// # Errors
/// 411 without a length, 400 for invalid digests.
pub(crate) fn bytes(call: &S3Call) -> Result<(UploadBody, RequestBodyFailure), S3Error> {
    let (md5, checksum) = (checksums::md5(&call.headers)?, checksums::wanted(&call.headers)?);
    let body = call.take_body();
    let length = body.length();
    if length.is_none() || !has_length(&call.headers) {
        return Err(Code::MissingContentLength.into());
    }
    let failure = body.failure();
    Ok((UploadBody { stream: Box::new(body), length, md5, checksum }, failure))
}

/// Whether the request frames a body. HTTP treats a request without framing as having no body, and the object would be
/// replaced by an empty one.
fn has_length(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// Reads the document of a request and verifies its digests.
///
/// # Errors
/// 400 for a document above the limit, an incomplete one, or a wrong digest.
pub(crate) async fn document(call: &S3Call) -> Result<Bytes, S3Error> {
    let document = call.take_body().document().await?;
    checksums::check(&call.headers, &document)?;
    Ok(document)
}

/// Refuses a request without a digest of its document.
///
/// # Errors
/// 400 `InvalidRequest`.
pub(crate) fn require_digest(headers: &HeaderMap) -> Result<(), S3Error> {
    if has_digest(headers)? {
        return Ok(());
    }
    Err(S3Error::invalid("Missing required header for this request: Content-MD5 OR x-amz-checksum-*"))
}

/// Whether the request carries a digest of its document.
pub(crate) fn has_digest(headers: &HeaderMap) -> Result<bool, S3Error> {
    let signed = headers.contains_key("content-md5") || checksums::given(headers)?.is_some();
    Ok(signed || headers.contains_key("x-amz-trailer"))
}
