//! The table of all S3 operations. Routing, access control, usage reports and the manual read it.

use larder_http_edge::{parsed_body_memory, upload_memory};
use larder_model::limits::S3_DOCUMENT_BYTES_MAX;

use crate::errors::Code;

use OperationScope::{Admin, Bucket, Object, Service};
use RequestBodyKind::{CopySource, Document, Form, Nothing, Stream};
use Support::{ConfigStub, Implemented, NotImplemented};

/// The kind of resource that an operation addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationScope {
    /// `/`
    Service,
    /// A bucket.
    Bucket,
    /// An object.
    Object,
    /// The admin API of Riak CS: the first path segment after `/riak-cs/`.
    Admin(&'static str),
}

/// The request body that an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBodyKind {
    /// No body.
    Nothing,
    /// A small XML or JSON document.
    Document,
    /// The bytes of an object.
    Stream,
    /// A multipart form with a file; the signature is one of the fields.
    Form,
    /// No body; the server reads the bytes of another object.
    CopySource,
}

impl RequestBodyKind {
    /// Bytes of memory held while a body of `length` bytes is read; `None` if the length is unknown.
    #[must_use]
    pub fn memory(self, length: Option<u64>) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Document => parsed_body_memory(length, 2 * S3_DOCUMENT_BYTES_MAX as u64),
            Self::Stream => upload_memory(length),
            Self::Form | Self::CopySource => upload_memory(None),
        }
    }
}

/// How an operation is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Implemented.
    Implemented,
    /// The feature is not implemented; reads of its configuration get a stub response.
    ConfigStub(StubResponse),
    /// Refused with 501.
    NotImplemented,
}

/// The response to a request about the configuration of an unimplemented feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubResponse {
    /// An empty document with this root element.
    Empty(&'static str),
    /// The bucket owner pays.
    Payer,
    /// The error that the configuration does not exist.
    Absent(Code),
    /// The error that the bucket has no object lock.
    Unlocked,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct OperationSpec {
    /// The operation.
    pub op: S3Operation,
    /// Its name in the S3 API reference.
    pub name: &'static str,
    /// Its HTTP method.
    pub method: OperationMethod,
    /// The resource it addresses.
    pub scope: OperationScope,
    /// Required query parameters, with any value; `name=value` requires that value.
    pub keys: &'static [&'static str],
    /// A required header.
    pub header: Option<&'static str>,
    /// The IAM action that bucket policies test; empty for admin operations.
    pub action: &'static str,
    /// The operation name in Riak CS usage reports.
    pub usage: &'static str,
    /// The request body it reads.
    pub body: RequestBodyKind,
    /// How it is supported.
    pub support: Support,
}

/// An HTTP method of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationMethod {
    /// `GET`
    GET,
    /// `HEAD`
    HEAD,
    /// `PUT`
    PUT,
    /// `POST`
    POST,
    /// `DELETE`
    DELETE,
}

impl OperationMethod {
    /// The method in an HTTP request line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GET => "GET",
            Self::HEAD => "HEAD",
            Self::PUT => "PUT",
            Self::POST => "POST",
            Self::DELETE => "DELETE",
        }
    }
}

macro_rules! operations {
    ($(
        $op:ident $method:ident $scope:expr, [$($key:literal)*] $(header $header:literal)?,
        $action:literal $usage:ident $body:ident $support:expr;
    )*) => {
        /// An S3 operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum S3Operation {
            $(#[doc = concat!("`", stringify!($op), "`")] $op,)*
        }

        /// All operations, in the order of the enum.
        pub static OPERATIONS: &[OperationSpec] = &[$(
            OperationSpec {
                op: S3Operation::$op,
                name: stringify!($op),
                method: OperationMethod::$method,
                scope: $scope,
                keys: &[$($key),*],
                header: operations!(@header $($header)?),
                action: $action,
                usage: stringify!($usage),
                body: $body,
                support: $support,
            },
        )*];
    };
    (@header) => { None };
    (@header $header:literal) => { Some($header) };
}

// Operation, method, scope, required parameters and header · action, usage name, body, support.
operations! {
    ListBuckets GET Service, [], "s3:ListAllMyBuckets" ListBuckets Nothing Implemented;

    CreateBucket PUT Bucket, [], "s3:CreateBucket" BucketCreate Document Implemented;
    HeadBucket HEAD Bucket, [], "s3:ListBucket" BucketStat Nothing Implemented;
    DeleteBucket DELETE Bucket, [], "s3:DeleteBucket" BucketDelete Nothing Implemented;
    ListObjects GET Bucket, [], "s3:ListBucket" BucketRead Nothing Implemented;
    ListObjectsV2 GET Bucket, ["list-type=2"], "s3:ListBucket" BucketRead Nothing Implemented;
    ListObjectVersions GET Bucket, ["versions"], "s3:ListBucketVersions" BucketRead Nothing Implemented;
    ListMultipartUploads GET Bucket, ["uploads"], "s3:ListBucketMultipartUploads" UnknownGET Nothing Implemented;
    DeleteObjects POST Bucket, ["delete"], "s3:DeleteObject" UnknownPOST Document Implemented;
    PostObject POST Bucket, [], "s3:PutObject" KeyWrite Form Implemented;

    GetBucketLocation GET Bucket, ["location"], "s3:GetBucketLocation" UnknownGET Nothing Implemented;
    GetBucketVersioning GET Bucket, ["versioning"], "s3:GetBucketVersioning" UnknownGET Nothing Implemented;
    PutBucketVersioning PUT Bucket, ["versioning"], "s3:PutBucketVersioning" UnknownPUT Document Implemented;
    GetBucketAcl GET Bucket, ["acl"], "s3:GetBucketAcl" BucketReadACL Nothing Implemented;
    PutBucketAcl PUT Bucket, ["acl"], "s3:PutBucketAcl" BucketWriteACL Document Implemented;
    GetBucketPolicy GET Bucket, ["policy"], "s3:GetBucketPolicy" UnknownGET Nothing Implemented;
    PutBucketPolicy PUT Bucket, ["policy"], "s3:PutBucketPolicy" UnknownPUT Document Implemented;
    DeleteBucketPolicy DELETE Bucket, ["policy"], "s3:DeleteBucketPolicy" UnknownDELETE Nothing Implemented;
    GetBucketPolicyStatus GET Bucket, ["policyStatus"], "s3:GetBucketPolicyStatus" UnknownGET Nothing Implemented;
    GetBucketCors GET Bucket, ["cors"], "s3:GetBucketCORS" UnknownGET Nothing Implemented;
    PutBucketCors PUT Bucket, ["cors"], "s3:PutBucketCORS" UnknownPUT Document Implemented;
    DeleteBucketCors DELETE Bucket, ["cors"], "s3:PutBucketCORS" UnknownDELETE Nothing Implemented;
    GetBucketLifecycleConfiguration GET Bucket, ["lifecycle"],
        "s3:GetLifecycleConfiguration" UnknownGET Nothing Implemented;
    PutBucketLifecycleConfiguration PUT Bucket, ["lifecycle"],
        "s3:PutLifecycleConfiguration" UnknownPUT Document Implemented;
    DeleteBucketLifecycle DELETE Bucket, ["lifecycle"], "s3:PutLifecycleConfiguration" UnknownDELETE Nothing Implemented;
    GetBucketTagging GET Bucket, ["tagging"], "s3:GetBucketTagging" UnknownGET Nothing Implemented;
    PutBucketTagging PUT Bucket, ["tagging"], "s3:PutBucketTagging" UnknownPUT Document Implemented;
    DeleteBucketTagging DELETE Bucket, ["tagging"], "s3:PutBucketTagging" UnknownDELETE Nothing Implemented;
    GetPublicAccessBlock GET Bucket, ["publicAccessBlock"], "s3:GetBucketPublicAccessBlock" UnknownGET Nothing Implemented;
    PutPublicAccessBlock PUT Bucket, ["publicAccessBlock"], "s3:PutBucketPublicAccessBlock" UnknownPUT Document Implemented;
    DeletePublicAccessBlock DELETE Bucket, ["publicAccessBlock"],
        "s3:PutBucketPublicAccessBlock" UnknownDELETE Nothing Implemented;

    GetBucketLogging GET Bucket, ["logging"],
        "s3:GetBucketLogging" UnknownGET Nothing ConfigStub(StubResponse::Empty("BucketLoggingStatus"));
    PutBucketLogging PUT Bucket, ["logging"], "s3:PutBucketLogging" UnknownPUT Document NotImplemented;
    GetBucketNotificationConfiguration GET Bucket, ["notification"],
        "s3:GetBucketNotification" UnknownGET Nothing ConfigStub(StubResponse::Empty("NotificationConfiguration"));
    PutBucketNotificationConfiguration PUT Bucket, ["notification"],
        "s3:PutBucketNotification" UnknownPUT Document NotImplemented;
    GetBucketRequestPayment GET Bucket, ["requestPayment"],
        "s3:GetBucketRequestPayment" UnknownGET Nothing ConfigStub(StubResponse::Payer);
    PutBucketRequestPayment PUT Bucket, ["requestPayment"], "s3:PutBucketRequestPayment" UnknownPUT Document NotImplemented;
    GetBucketAccelerateConfiguration GET Bucket, ["accelerate"],
        "s3:GetAccelerateConfiguration" UnknownGET Nothing ConfigStub(StubResponse::Empty("AccelerateConfiguration"));
    PutBucketAccelerateConfiguration PUT Bucket, ["accelerate"],
        "s3:PutAccelerateConfiguration" UnknownPUT Document NotImplemented;
    GetBucketWebsite GET Bucket, ["website"],
        "s3:GetBucketWebsite" UnknownGET Nothing ConfigStub(StubResponse::Absent(Code::NoSuchWebsiteConfiguration));
    PutBucketWebsite PUT Bucket, ["website"], "s3:PutBucketWebsite" UnknownPUT Document NotImplemented;
    DeleteBucketWebsite DELETE Bucket, ["website"], "s3:DeleteBucketWebsite" UnknownDELETE Nothing NotImplemented;
    GetBucketReplication GET Bucket, ["replication"], "s3:GetReplicationConfiguration" UnknownGET Nothing
        ConfigStub(StubResponse::Absent(Code::ReplicationConfigurationNotFoundError));
    PutBucketReplication PUT Bucket, ["replication"], "s3:PutReplicationConfiguration" UnknownPUT Document NotImplemented;
    DeleteBucketReplication DELETE Bucket, ["replication"],
        "s3:PutReplicationConfiguration" UnknownDELETE Nothing NotImplemented;
    GetBucketEncryption GET Bucket, ["encryption"], "s3:GetEncryptionConfiguration" UnknownGET Nothing
        ConfigStub(StubResponse::Absent(Code::ServerSideEncryptionConfigurationNotFoundError));
    PutBucketEncryption PUT Bucket, ["encryption"], "s3:PutEncryptionConfiguration" UnknownPUT Document NotImplemented;
    DeleteBucketEncryption DELETE Bucket, ["encryption"],
        "s3:PutEncryptionConfiguration" UnknownDELETE Nothing NotImplemented;
    GetBucketOwnershipControls GET Bucket, ["ownershipControls"], "s3:GetBucketOwnershipControls" UnknownGET Nothing
        ConfigStub(StubResponse::Absent(Code::OwnershipControlsNotFoundError));
    PutBucketOwnershipControls PUT Bucket, ["ownershipControls"],
        "s3:PutBucketOwnershipControls" UnknownPUT Document NotImplemented;
    DeleteBucketOwnershipControls DELETE Bucket, ["ownershipControls"],
        "s3:PutBucketOwnershipControls" UnknownDELETE Nothing NotImplemented;
    GetObjectLockConfiguration GET Bucket, ["object-lock"], "s3:GetBucketObjectLockConfiguration" UnknownGET Nothing
        ConfigStub(StubResponse::Absent(Code::ObjectLockConfigurationNotFoundError));
    PutObjectLockConfiguration PUT Bucket, ["object-lock"],
        "s3:PutBucketObjectLockConfiguration" UnknownPUT Document NotImplemented;

    GetObject GET Object, [], "s3:GetObject" KeyRead Nothing Implemented;
    HeadObject HEAD Object, [], "s3:GetObject" KeyStat Nothing Implemented;
    PutObject PUT Object, [], "s3:PutObject" KeyWrite Stream Implemented;
    CopyObject PUT Object, [] header "x-amz-copy-source", "s3:PutObject" KeyWrite CopySource Implemented;
    DeleteObject DELETE Object, [], "s3:DeleteObject" KeyDelete Nothing Implemented;
    GetObjectAcl GET Object, ["acl"], "s3:GetObjectAcl" KeyReadACL Nothing Implemented;
    PutObjectAcl PUT Object, ["acl"], "s3:PutObjectAcl" KeyWriteACL Document Implemented;
    GetObjectTagging GET Object, ["tagging"], "s3:GetObjectTagging" UnknownGET Nothing Implemented;
    PutObjectTagging PUT Object, ["tagging"], "s3:PutObjectTagging" UnknownPUT Document Implemented;
    DeleteObjectTagging DELETE Object, ["tagging"], "s3:DeleteObjectTagging" UnknownDELETE Nothing Implemented;
    GetObjectAttributes GET Object, ["attributes"], "s3:GetObject" UnknownGET Nothing Implemented;
    CreateMultipartUpload POST Object, ["uploads"], "s3:PutObject" UnknownPOST Nothing Implemented;
    UploadPart PUT Object, ["uploadId"], "s3:PutObject" UnknownPUT Stream Implemented;
    UploadPartCopy PUT Object, ["uploadId"] header "x-amz-copy-source", "s3:PutObject" UnknownPUT CopySource Implemented;
    ListParts GET Object, ["uploadId"], "s3:ListMultipartUploadParts" UnknownGET Nothing Implemented;
    CompleteMultipartUpload POST Object, ["uploadId"], "s3:PutObject" UnknownPOST Document Implemented;
    AbortMultipartUpload DELETE Object, ["uploadId"], "s3:AbortMultipartUpload" UnknownDELETE Nothing Implemented;
    GetObjectRetention GET Object, ["retention"],
        "s3:GetObjectRetention" UnknownGET Nothing ConfigStub(StubResponse::Unlocked);
    PutObjectRetention PUT Object, ["retention"],
        "s3:PutObjectRetention" UnknownPUT Document ConfigStub(StubResponse::Unlocked);
    GetObjectLegalHold GET Object, ["legal-hold"],
        "s3:GetObjectLegalHold" UnknownGET Nothing ConfigStub(StubResponse::Unlocked);
    PutObjectLegalHold PUT Object, ["legal-hold"],
        "s3:PutObjectLegalHold" UnknownPUT Document ConfigStub(StubResponse::Unlocked);
    GetObjectTorrent GET Object, ["torrent"], "s3:GetObjectTorrent" UnknownGET Nothing NotImplemented;
    RestoreObject POST Object, ["restore"], "s3:RestoreObject" UnknownPOST Document NotImplemented;
    SelectObjectContent POST Object, ["select"], "s3:GetObject" UnknownPOST Document NotImplemented;
    RenameObject PUT Object, ["renameObject"], "s3:PutObject" UnknownPUT Nothing NotImplemented;
    CreateSession GET Bucket, ["session"], "s3:CreateSession" UnknownGET Nothing NotImplemented;

    AdminPing GET Admin("ping"), [], "" UnknownGET Nothing Implemented;
    AdminHeadPing HEAD Admin("ping"), [], "" UnknownHEAD Nothing Implemented;
    AdminStats GET Admin("stats"), [], "" UnknownGET Nothing Implemented;
    AdminInfo GET Admin("info"), [], "" UnknownGET Nothing Implemented;
    AdminCreateUser POST Admin("user"), [], "" UnknownPOST Document Implemented;
    AdminReadUser GET Admin("user"), [], "" AccountRead Nothing Implemented;
    AdminHeadUser HEAD Admin("user"), [], "" AccountRead Nothing Implemented;
    AdminUpdateUser PUT Admin("user"), [], "" UnknownPUT Document Implemented;
    AdminDeleteUser DELETE Admin("user"), [], "" UnknownDELETE Nothing Implemented;
    AdminListUsers GET Admin("users"), [], "" UnknownGET Nothing Implemented;
    AdminUsage GET Admin("usage"), [], "" UsageRead Nothing Implemented;
    AdminListSessions GET Admin("temp-sessions"), [], "" UnknownGET Nothing NotImplemented;
}

impl OperationSpec {
    /// Whether the operation only reads. Such a request is safe to retry and to send cross-origin without a preflight.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.method, OperationMethod::GET | OperationMethod::HEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_rows_match_the_same_request() {
        let mut seen = HashSet::new();
        for (index, operation) in OPERATIONS.iter().enumerate() {
            let mut keys = operation.keys.to_vec();
            keys.sort_unstable();
            let what = format!("{:?} {:?} {keys:?} {:?}", operation.method, operation.scope, operation.header);
            assert!(seen.insert(what.clone()), "{what} twice");
            assert_eq!(operation.op as usize, index);
        }
    }

    #[test]
    fn every_row_is_consistent() {
        for operation in OPERATIONS {
            let admin = matches!(operation.scope, OperationScope::Admin(_));
            assert_eq!(operation.action.is_empty(), admin, "{}", operation.name);
            assert!(admin || operation.action.starts_with("s3:"), "{}", operation.name);
            assert!(!(operation.is_read_only() && operation.body != RequestBodyKind::Nothing), "{}", operation.name);
            let usage = ["ListBuckets", "UsageRead", "AccountRead", "Bucket", "Key", "Unknown"];
            assert!(usage.iter().any(|name| operation.usage.starts_with(name)), "{}", operation.name);
            if let Support::ConfigStub(stub) = operation.support {
                let refuses = matches!(stub, StubResponse::Absent(_) | StubResponse::Unlocked);
                assert!(operation.is_read_only() || refuses, "{} would be answered and forgotten", operation.name);
            }
        }
    }
}
