//! Answers to who asks for a configuration that is not offered: tools ask for all of them and stop at an error.

use crate::call::Call;
use crate::errors::Fault;
use crate::operations::{ProbeAnswer, Scope};
use crate::reply::{self, Reply};
use crate::xml::Xml;

/// What is said of locks: no bucket has any.
pub(crate) const NO_LOCKS: &str = "Bucket is missing Object Lock Configuration";

/// Answers a probe, to who may ask.
///
/// # Errors
/// `NoSuchBucket`, `AccessDenied`, and the code of what is not there.
pub(crate) async fn answer(call: &Call, answer: ProbeAnswer) -> Result<Reply, Fault> {
    if call.operation.scope == Scope::Bucket {
        call.objects.bucket_for(&call.caller, &call.bucket, call.operation.action).await?;
    }
    match answer {
        ProbeAnswer::Empty(root) => Ok(reply::document(Xml::new(root).finish())),
        ProbeAnswer::Payer => {
            let mut xml = Xml::new("RequestPaymentConfiguration");
            xml.text("Payer", "BucketOwner");
            Ok(reply::document(xml.finish()))
        }
        ProbeAnswer::Absent(code) => Err(code.into()),
        ProbeAnswer::Unlocked => {
            call.objects.bucket(&call.bucket).await?;
            Err(Fault::invalid(NO_LOCKS))
        }
    }
}
