//! `?policy` and `?policyStatus`: the policy of a bucket.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::Bucket;
use larder_s3_rules::policy::BucketPolicy;

use super::upload_body;
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::xml::XmlWriter;

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let policy = bucket_policy(call).await?;
    Ok(response::json(StatusCode::OK, policy.text.clone()))
}

pub(super) async fn status(call: &S3Call) -> Result<S3Response, S3Error> {
    let policy = bucket_policy(call).await?;
    Ok(response::document(status_document(policy.is_public())))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let policy = read(&call.bucket, &upload_body::document(call).await?)?;
    let change = |bucket: &mut Bucket| {
        if bucket.public_access.is_some_and(|access| access.refuses_policy(&policy)) {
            return Err(Error::AccessDenied);
        }
        bucket.policy = Some(Arc::clone(&policy));
        Ok(())
    };
    call.objects.buckets.configure(&call.caller, &call.bucket, change).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// Reads the policy of a bucket.
///
/// # Errors
/// `MalformedPolicy`, also for parts that would have no effect.
pub(super) fn read(bucket: &str, document: &[u8]) -> Result<Arc<BucketPolicy>, S3Error> {
    let malformed = |message: String| Error::MalformedPolicy(message);
    let text = std::str::from_utf8(document).map_err(|_| malformed("Policies must be valid JSON".into()))?;
    let policy = BucketPolicy::parse(bucket, text).map_err(|error| malformed(error.message))?;
    if let Some((_, part)) = policy.void_parts(bucket).next() {
        return Err(malformed(part.to_string()).into());
    }
    Ok(Arc::new(policy))
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.policy = None).await
}

async fn bucket_policy(call: &S3Call) -> Result<Arc<BucketPolicy>, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    Ok(bucket.policy.clone().ok_or(Error::NoConfiguration(Configuration::Policy))?)
}

fn status_document(public: bool) -> Bytes {
    let mut xml = XmlWriter::new("PolicyStatus");
    xml.value("IsPublic", public);
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_document() {
        let text = String::from_utf8(status_document(true).to_vec()).unwrap();
        assert!(text.ends_with("03-01/\"><IsPublic>true</IsPublic></PolicyStatus>"));
    }
}
