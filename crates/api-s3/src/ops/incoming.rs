//! Bytes on their way in, and documents.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use larder_gateway::objects::put::Incoming;

use super::checksums;
use crate::body::Verdict;
use crate::call::Call;
use crate::errors::{Code, Fault};

/// The bytes of an object or a part, and who knows why they broke off, should they.
///
/// # Errors
/// 411 when nobody says how many there are, 400 for digests that cannot be read.
pub(crate) fn bytes(call: &Call) -> Result<(Incoming, Verdict), Fault> {
    let (md5, checksum) = (checksums::md5(&call.headers)?, checksums::wanted(&call.headers)?);
    let body = call.take_body();
    let length = body.length();
    if length.is_none() || !has_length(&call.headers) {
        return Err(Code::MissingContentLength.into());
    }
    let verdict = body.verdict();
    Ok((Incoming { stream: Box::new(body), length, md5, checksum }, verdict))
}

/// Whether anything says how long the body is. HTTP takes a request that does not for one without a body, and the object would
/// be replaced by nothing.
fn has_length(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// The document of a request, checked against the digests that came with it.
///
/// # Errors
/// 400 when it is too long, breaks off, or is another one.
pub(crate) async fn document(call: &Call) -> Result<Bytes, Fault> {
    let document = call.take_body().document().await?;
    checksums::check(&call.headers, &document)?;
    Ok(document)
}

/// Whether any digest came with the document.
pub(crate) fn has_digest(headers: &HeaderMap) -> Result<bool, Fault> {
    let signed = headers.contains_key("content-md5") || checksums::given(headers)?.is_some();
    Ok(signed || headers.contains_key("x-amz-trailer"))
}
