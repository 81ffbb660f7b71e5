//! Stub responses for the configuration of unimplemented features. Many tools read every configuration of a bucket and
//! stop at the first error.

use hyper::StatusCode;

use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::operations::{OperationScope, OperationSpec, StubResponse, UnsetConfig};
use crate::ops::upload_body;
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

/// Responds with a stub; for a bucket, after the same permission check as for an implemented operation.
///
/// # Errors
/// `NoSuchBucket`, `AccessDenied`, and the code of the stub.
pub(crate) async fn respond(call: &S3Call, stub: StubResponse) -> Result<S3Response, S3Error> {
    if call.operation.scope == OperationScope::Bucket {
        call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    }
    match stub {
        StubResponse::Empty(root) => Ok(response::document(XmlWriter::new(root).finish())),
        StubResponse::Payer => {
            let mut xml = XmlWriter::new("RequestPaymentConfiguration");
            xml.text("Payer", "BucketOwner");
            Ok(response::document(xml.finish()))
        }
        StubResponse::EmptyList(root) => {
            let mut xml = XmlWriter::new(root);
            xml.text("IsTruncated", "false");
            Ok(response::document(xml.finish()))
        }
        StubResponse::Absent(code) => Err(code.into()),
        StubResponse::NothingToDelete => Ok(response::empty(StatusCode::NO_CONTENT)),
        StubResponse::Unset(config) => match is_unset(config, &upload_body::document(call).await?)? {
            true => Ok(response::empty(StatusCode::OK)),
            false => Err(not_offered(call.operation)),
        },
    }
}

/// Whether a document sets what every bucket has.
///
/// # Errors
/// `MalformedXML` for a document that is none of this configuration, 501 for one with other elements.
fn is_unset(config: UnsetConfig, document: &[u8]) -> Result<bool, S3Error> {
    // The one element that counts, and its value that changes nothing and the other one; no value: the element itself asks for more.
    let (root, element, values) = match config {
        UnsetConfig::Logging if document.is_empty() => return Ok(true),
        UnsetConfig::Logging => ("BucketLoggingStatus", "LoggingEnabled", None),
        UnsetConfig::Payment => ("RequestPaymentConfiguration", "Payer", Some(("BucketOwner", "Requester"))),
        UnsetConfig::Acceleration => ("AccelerateConfiguration", "Status", Some(("Suspended", "Enabled"))),
    };
    let mut xml = XmlReader::open(document, root)?;
    let mut is_unset = values.is_none().then_some(true);
    while let Some(name) = xml.next_child()? {
        is_unset = Some(match values {
            _ if name != element => return Err(S3Error::element_not_offered(name)),
            Some((unset, set)) => match xml.text()?.trim() {
                value if value == unset => true,
                value if value == set => false,
                _ => return Err(Code::MalformedXML.into()),
            },
            None => {
                xml.set_aside()?;
                false
            }
        });
    }
    xml.expect_end()?;
    is_unset.ok_or_else(|| Code::MalformedXML.into())
}

/// The error of an operation that is not implemented.
pub(crate) fn not_offered(operation: &OperationSpec) -> S3Error {
    let refused = S3Error::new(Code::NotImplemented, format!("{} is not offered", operation.name));
    operation.query_params.iter().fold(refused, |refused, key| refused.with("QueryParameter", *key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_that_changes_nothing_differs_from_one_that_asks_for_more() {
        let put = |config, document: &str| is_unset(config, document.as_bytes()).map_err(|error| error.code);
        use UnsetConfig::{Acceleration, Logging, Payment};
        for (config, document, is) in [
            (Logging, "", Ok(true)),
            (Logging, "<BucketLoggingStatus/>", Ok(true)),
            (Logging, "<BucketLoggingStatus><LoggingEnabled/></BucketLoggingStatus>", Ok(false)),
            (
                Payment,
                "<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>",
                Ok(true),
            ),
            (Payment, "<RequestPaymentConfiguration><Payer>Requester</Payer></RequestPaymentConfiguration>", Ok(false)),
            (
                Payment,
                "<RequestPaymentConfiguration><Payer>x</Payer></RequestPaymentConfiguration>",
                Err(Code::MalformedXML),
            ),
            (Payment, "<RequestPaymentConfiguration/>", Err(Code::MalformedXML)),
            (Acceleration, "<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>", Ok(true)),
            (Acceleration, "<AccelerateConfiguration><Status>Enabled</Status></AccelerateConfiguration>", Ok(false)),
            (Acceleration, "<Other/>", Err(Code::MalformedXML)),
            (Logging, "<BucketLoggingStatus><Other/></BucketLoggingStatus>", Err(Code::NotImplemented)),
        ] {
            assert_eq!(put(config, document), is, "{config:?} {document}");
        }
    }
}
