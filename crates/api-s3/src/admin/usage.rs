//! `/riak-cs/usage/KEY`: accesses of a user by hour, and the storage of its buckets.

mod report;

use hyper::StatusCode;
use larder_s3::Error;

use super::{DocumentFormat, self_or_admin};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::route::USAGE_BUCKET;
use crate::xml::XmlWriter;
use report::{UsageReport, UsageRequest};

pub(crate) async fn report(call: &S3Call) -> Result<S3Response, S3Error> {
    let path = String::from_utf8_lossy(&call.key);
    let rest = if call.bucket == USAGE_BUCKET { &*path } else { path.strip_prefix("usage").unwrap_or_default() };
    let format = super::accepted_format(&call.headers, DocumentFormat::Json);
    let request = match UsageRequest::parse(rest, &call.query, format, call.now) {
        Ok(request) => request,
        Err(message) => return Ok(refused(StatusCode::BAD_REQUEST, message, format)),
    };
    self_or_admin(call, &request.key_id)?;
    let user = match call.objects.users.find_by_key(&request.key_id).await {
        Ok(user) => user,
        Err(Error::UnknownKey(_)) => return Ok(refused(StatusCode::NOT_FOUND, "Unknown user", request.format)),
        Err(error) => return Err(error.into()),
    };
    let access = if request.access {
        Some(call.objects.usage.samples(&user.key_id, request.from, request.to).await?)
    } else {
        None
    };
    let storage = if request.storage { Some(call.objects.usage.user_storage(&user.id).await?) } else { None };
    let report = UsageReport { access, storage, now: call.now, to: request.to };
    Ok(match request.format {
        DocumentFormat::Json => response::json(StatusCode::OK, report.json().to_string()),
        DocumentFormat::Xml => response::document(report.xml()),
    })
}

/// An error in the format of Riak CS usage reports.
fn refused(status: StatusCode, message: &str, format: DocumentFormat) -> S3Response {
    match format {
        DocumentFormat::Json => {
            response::json(status, serde_json::json!({ "Error": { "Message": message } }).to_string())
        }
        DocumentFormat::Xml => {
            let mut xml = XmlWriter::without_namespace("Error");
            xml.text("Message", message);
            response::xml(status, xml.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_written_in_json_and_xml() {
        let text = |format| {
            let response = refused(StatusCode::NOT_FOUND, "Unknown user", format);
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
            String::from_utf8(response.into_body().into_bytes().unwrap().to_vec()).unwrap()
        };
        assert_eq!(text(DocumentFormat::Json), "{\"Error\":{\"Message\":\"Unknown user\"}}");
        assert!(text(DocumentFormat::Xml).ends_with("<Error><Message>Unknown user</Message></Error>"));
    }
}
