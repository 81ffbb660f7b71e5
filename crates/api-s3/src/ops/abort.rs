//! `DELETE /key?uploadId=U`: gives an upload up.

use hyper::StatusCode;

use super::{dates, params};
use crate::call::Call;
use crate::errors::Fault;
use crate::reply::{self, Reply};

/// When the upload must have been begun.
const INITIATED: &str = "x-amz-if-match-initiated-time";

pub(super) async fn run(call: &Call) -> Result<Reply, Fault> {
    let upload = call.query.get("uploadId").unwrap_or_default();
    let initiated = match params::header(&call.headers, INITIATED) {
        None => None,
        Some(text) => {
            let bad = || Fault::argument(INITIATED, text, "The date is none.");
            Some(dates::http(text).or_else(|| dates::iso(text)).ok_or_else(bad)? / 1_000_000)
        }
    };
    call.objects.abort(&call.caller, &call.bucket, &call.key, upload, initiated).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
