//! Stub responses for the configuration of unimplemented features. Many tools read every configuration of a bucket and
//! stop at the first error.

use crate::call::S3Call;
use crate::errors::S3Error;
use crate::operations::{OperationScope, StubResponse};
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

/// Message for object lock requests: no bucket has object lock.
pub(crate) const NO_LOCKS: &str = "Bucket is missing Object Lock Configuration";

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
        StubResponse::Absent(code) => Err(code.into()),
        StubResponse::NoObjectLock => {
            call.objects.buckets.find(&call.bucket).await?;
            Err(S3Error::invalid(NO_LOCKS))
        }
    }
}
