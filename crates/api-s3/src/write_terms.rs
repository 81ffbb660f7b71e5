//! What a write may ask for beside its content, and the operations that do it. Elsewhere it is refused by name: a condition or a
//! lock that is dropped loses data, or its protection.

use hyper::{HeaderMap, Method};

use crate::errors::S3Error;
use crate::operations::S3Operation::{
    self, CompleteMultipartUpload, CopyObject, CreateMultipartUpload, DeleteBucket, DeleteObject, DeleteObjectTagging,
    PutObject, PutObjectAcl, PutObjectLegalHold, PutObjectRetention, PutObjectTagging, UploadPart, UploadPartCopy,
};
use crate::operations::{OperationSpec, Support};
use crate::target::S3Query;

const VERSIONED: &[S3Operation] =
    &[DeleteObject, PutObjectAcl, PutObjectTagging, DeleteObjectTagging, PutObjectRetention, PutObjectLegalHold];
const LOCKING: &[S3Operation] =
    &[PutObject, CopyObject, CreateMultipartUpload, UploadPart, UploadPartCopy, CompleteMultipartUpload];

/// Headers, and the operations that read them.
static HEADERS: &[(&str, &[S3Operation])] = &[
    ("if-match", &[PutObject, CopyObject, CreateMultipartUpload, CompleteMultipartUpload, DeleteObject]),
    ("if-none-match", &[PutObject, CopyObject, CreateMultipartUpload, CompleteMultipartUpload]),
    ("if-modified-since", &[]),
    ("if-unmodified-since", &[]),
    ("x-amz-if-match-size", &[]),
    ("x-amz-if-match-last-modified-time", &[]),
    ("x-amz-object-lock-mode", LOCKING),
    ("x-amz-object-lock-retain-until-date", LOCKING),
    ("x-amz-object-lock-legal-hold", LOCKING),
    ("x-amz-bucket-namespace", &[]),
    ("x-amz-write-offset-bytes", &[]),
    ("x-amz-rename-source", &[]),
    // MinIO's: a prefix that is deleted at once, and an archive whose files are stored. A bucket with objects stays, and says so.
    ("x-minio-force-delete", &[DeleteBucket]),
    ("x-minio-extract", &[]),
    ("x-amz-meta-snowball-auto-extract", &[]),
];

/// Refuses a write that asks for what its operation does not do.
///
/// # Errors
/// 501 with the header; 400 for a version id.
pub(crate) fn check(operation: &OperationSpec, headers: &HeaderMap, query: &S3Query) -> Result<(), S3Error> {
    if matches!(operation.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let does = |operations: &[S3Operation]| match operation.support {
        Support::Implemented(operation) => operations.contains(&operation),
        Support::ConfigStub(_) | Support::NotImplemented => false,
    };
    if let Some((name, _)) = HEADERS.iter().find(|(name, operations)| headers.contains_key(*name) && !does(operations))
    {
        return Err(S3Error::header_not_offered(name));
    }
    match query.get("versionId").filter(|id| !id.is_empty() && !does(VERSIONED)) {
        Some(id) => Err(S3Error::argument("versionId", id, "This operation does not accept a version-id.")),
        None => Ok(()),
    }
}

/// Whether a field of a form asks for what a form does not do.
pub(crate) fn is_refused_field(name: &str) -> bool {
    let is_term = HEADERS.iter().any(|(header, operations)| *header == name && *operations != LOCKING);
    is_term || ["x-amz-copy-source", "x-amz-expected-bucket-owner"].contains(&name)
}
