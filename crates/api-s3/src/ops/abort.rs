//! `DELETE /key?uploadId=U`: aborts a multipart upload.

use hyper::StatusCode;

use super::params;
use crate::call::S3Call;
use crate::dates;
use crate::errors::S3Error;
use crate::errors::gateway::INITIATED;
use crate::response::{self, S3Response};

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let upload = call.query.get("uploadId").unwrap_or_default();
    let initiated = match params::header(&call.headers, INITIATED) {
        None => None,
        Some(text) => {
            let bad = || S3Error::argument(INITIATED, text, "The date is none.");
            Some(dates::parse_http(text).or_else(|| dates::parse_document_date(text)).ok_or_else(bad)?.as_secs())
        }
    };
    call.objects.uploads.abort(&call.caller, &call.bucket, &call.key, upload, initiated).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}
