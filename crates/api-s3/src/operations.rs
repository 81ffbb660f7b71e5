//! The table of all S3 operations. Routing, access control and usage reports read it.

use OperationScope::{Admin, Bucket, Object, Service};
use RequestBodyKind::{CopySource, Document, Form, Nothing, Stream};
use Support::{ConfigStub, Implemented, NotImplemented};
use hyper::Method;
use larder_net::{parsed_body_memory, upload_memory};
use larder_rows::limits::S3_DOCUMENT_BYTES_MAX;
use larder_s3_rules::S3Action;

use crate::errors::Code;

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
    /// Implemented, as this operation.
    Implemented(S3Operation),
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
    /// An empty list with this root element.
    EmptyList(&'static str),
    /// The error that the configuration does not exist.
    Absent(Code),
    /// A configuration is gone that never was there.
    NothingToDelete,
    /// A put is answered if it sets what every bucket has, and refused otherwise.
    Unset(UnsetConfig),
}

/// A configuration that a put may leave as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsetConfig {
    /// No log.
    Logging,
    /// The bucket owner pays.
    Payment,
    /// No acceleration.
    Acceleration,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct OperationSpec {
    /// The operation's name in the S3 API reference.
    pub name: &'static str,
    /// Its HTTP method.
    pub method: Method,
    /// The resource it addresses.
    pub scope: OperationScope,
    /// Required query parameters, with any value; `name=value` requires that value.
    pub query_params: &'static [&'static str],
    /// A required header.
    pub header: Option<&'static str>,
    /// The action for which the caller needs permission; `None` for admin operations and those that are refused to everyone.
    pub action: Option<S3Action>,
    /// The operation name in Riak CS usage reports.
    pub usage_report_name: &'static str,
    /// The request body it reads.
    pub body: RequestBodyKind,
    /// Whether the audit log has a line for each request: it changes users, keys, buckets, or who may do what.
    pub is_audited: bool,
    /// How it is supported.
    pub support: Support,
}

macro_rules! operations {
    (
        implemented {$(
            $op:ident $method:ident $scope:expr, $keys:tt $(header $header:literal)?,
            $action:ident $usage:ident $body:ident $($audited:ident)?;
        )*}
        unimplemented {$(
            $name:ident $other_method:ident $other_scope:expr, $other_keys:tt $(header $other_header:literal)?,
            $other_action:ident $other_usage:ident $other_body:ident $support:expr;
        )*}
    ) => {
        /// An implemented S3 operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum S3Operation {
            $(#[doc = concat!("`", stringify!($op), "`")] $op,)*
        }

        /// All operations, the implemented ones first in the order of the enum.
        pub static OPERATIONS: &[OperationSpec] = &[
            $(operations!(@row $op $method $scope, $keys $(header $header)?, $action $usage $body
                ($($audited)?) Implemented(S3Operation::$op)),)*
            $(operations!(@row $name $other_method $other_scope, $other_keys $(header $other_header)?, $other_action $other_usage $other_body
                () $support),)*
        ];
    };
    (
        @row $name:ident $method:ident $scope:expr, [$($key:literal)*] $(header $header:literal)?,
        $action:ident $usage:ident $body:ident ($($audited:ident)?) $support:expr
    ) => {
        OperationSpec {
            name: stringify!($name),
            method: Method::$method,
            scope: $scope,
            query_params: &[$($key),*],
            header: operations!(@header $($header)?),
            action: operations!(@action $action),
            usage_report_name: stringify!($usage),
            body: $body,
            is_audited: operations!(@audited $($audited)?),
            support: $support,
        }
    };
    (@audited) => { false };
    (@audited audited) => { true };
    (@header) => { None };
    (@header $header:literal) => { Some($header) };
    (@action None) => { None };
    (@action $action:ident) => { Some(S3Action::$action) };
}

/// Parameters of S3, and of MinIO's `mc watch`, that select an operation without a row: each is refused by name.
pub(crate) static UNSUPPORTED_PARAMETERS: &[&str] = &["append", "events", "max-directory-buckets"];

// Operation, method, scope, required parameters and header · action, usage name, body, and whether the audit log has it, or the
// support if unimplemented.
operations! {
    implemented {
        ListBuckets GET Service, [], ListAllMyBuckets ListBuckets Nothing;
        AssumeRole POST Service, [], AssumeRole UnknownPOST Document audited;

        CreateBucket PUT Bucket, [], CreateBucket BucketCreate Document audited;
        HeadBucket HEAD Bucket, [], ListBucket BucketStat Nothing;
        DeleteBucket DELETE Bucket, [], DeleteBucket BucketDelete Nothing audited;
        ListObjects GET Bucket, [], ListBucket BucketRead Nothing;
        ListObjectsV2 GET Bucket, ["list-type=2"], ListBucket BucketRead Nothing;
        ListObjectVersions GET Bucket, ["versions"], ListBucketVersions BucketRead Nothing;
        ListMultipartUploads GET Bucket, ["uploads"], ListBucketMultipartUploads UnknownGET Nothing;
        DeleteObjects POST Bucket, ["delete"], DeleteObject UnknownPOST Document;
        PostObject POST Bucket, [], PutObject KeyWrite Form;

        GetBucketLocation GET Bucket, ["location"], GetBucketLocation UnknownGET Nothing;
        GetBucketVersioning GET Bucket, ["versioning"], GetBucketVersioning UnknownGET Nothing;
        PutBucketVersioning PUT Bucket, ["versioning"], PutBucketVersioning UnknownPUT Document;
        GetBucketAcl GET Bucket, ["acl"], GetBucketAcl BucketReadACL Nothing;
        PutBucketAcl PUT Bucket, ["acl"], PutBucketAcl BucketWriteACL Document audited;
        GetBucketPolicy GET Bucket, ["policy"], GetBucketPolicy UnknownGET Nothing;
        PutBucketPolicy PUT Bucket, ["policy"], PutBucketPolicy UnknownPUT Document audited;
        DeleteBucketPolicy DELETE Bucket, ["policy"], DeleteBucketPolicy UnknownDELETE Nothing audited;
        GetBucketPolicyStatus GET Bucket, ["policyStatus"], GetBucketPolicyStatus UnknownGET Nothing;
        GetBucketCors GET Bucket, ["cors"], GetBucketCORS UnknownGET Nothing;
        PutBucketCors PUT Bucket, ["cors"], PutBucketCORS UnknownPUT Document audited;
        DeleteBucketCors DELETE Bucket, ["cors"], PutBucketCORS UnknownDELETE Nothing audited;
        GetBucketLifecycleConfiguration GET Bucket, ["lifecycle"], GetLifecycleConfiguration UnknownGET Nothing;
        PutBucketLifecycleConfiguration PUT Bucket, ["lifecycle"], PutLifecycleConfiguration UnknownPUT Document;
        DeleteBucketLifecycle DELETE Bucket, ["lifecycle"], PutLifecycleConfiguration UnknownDELETE Nothing;
        GetBucketTagging GET Bucket, ["tagging"], GetBucketTagging UnknownGET Nothing;
        PutBucketTagging PUT Bucket, ["tagging"], PutBucketTagging UnknownPUT Document;
        DeleteBucketTagging DELETE Bucket, ["tagging"], PutBucketTagging UnknownDELETE Nothing;
        GetBucketEncryption GET Bucket, ["encryption"], GetEncryptionConfiguration UnknownGET Nothing;
        PutBucketEncryption PUT Bucket, ["encryption"], PutEncryptionConfiguration UnknownPUT Document audited;
        DeleteBucketEncryption DELETE Bucket, ["encryption"], PutEncryptionConfiguration UnknownDELETE Nothing audited;
        GetPublicAccessBlock GET Bucket, ["publicAccessBlock"], GetBucketPublicAccessBlock UnknownGET Nothing;
        PutPublicAccessBlock PUT Bucket, ["publicAccessBlock"], PutBucketPublicAccessBlock UnknownPUT Document audited;
        DeletePublicAccessBlock DELETE Bucket, ["publicAccessBlock"], PutBucketPublicAccessBlock UnknownDELETE Nothing audited;
        GetBucketOwnershipControls GET Bucket, ["ownershipControls"], GetBucketOwnershipControls UnknownGET Nothing;
        PutBucketOwnershipControls PUT Bucket, ["ownershipControls"], PutBucketOwnershipControls UnknownPUT Document audited;
        DeleteBucketOwnershipControls DELETE Bucket, ["ownershipControls"], PutBucketOwnershipControls UnknownDELETE Nothing audited;
        GetBucketWebsite GET Bucket, ["website"], GetBucketWebsite UnknownGET Nothing;
        PutBucketWebsite PUT Bucket, ["website"], PutBucketWebsite UnknownPUT Document audited;
        DeleteBucketWebsite DELETE Bucket, ["website"], DeleteBucketWebsite UnknownDELETE Nothing audited;
        GetObjectLockConfiguration GET Bucket, ["object-lock"], GetBucketObjectLockConfiguration UnknownGET Nothing;
        PutObjectLockConfiguration PUT Bucket, ["object-lock"], PutBucketObjectLockConfiguration UnknownPUT Document audited;
        GetBucketNotificationConfiguration GET Bucket, ["notification"], GetBucketNotification UnknownGET Nothing;
        PutBucketNotificationConfiguration PUT Bucket, ["notification"], PutBucketNotification UnknownPUT Document audited;

        GetObject GET Object, [], GetObject KeyRead Nothing;
        HeadObject HEAD Object, [], GetObject KeyStat Nothing;
        PutObject PUT Object, [], PutObject KeyWrite Stream;
        CopyObject PUT Object, [] header "x-amz-copy-source", PutObject KeyWrite CopySource;
        DeleteObject DELETE Object, [], DeleteObject KeyDelete Nothing;
        GetObjectAcl GET Object, ["acl"], GetObjectAcl KeyReadACL Nothing;
        PutObjectAcl PUT Object, ["acl"], PutObjectAcl KeyWriteACL Document audited;
        GetObjectTagging GET Object, ["tagging"], GetObjectTagging UnknownGET Nothing;
        PutObjectTagging PUT Object, ["tagging"], PutObjectTagging UnknownPUT Document;
        DeleteObjectTagging DELETE Object, ["tagging"], DeleteObjectTagging UnknownDELETE Nothing;
        GetObjectAttributes GET Object, ["attributes"], GetObjectAttributes UnknownGET Nothing;
        GetObjectRetention GET Object, ["retention"], GetObjectRetention UnknownGET Nothing;
        PutObjectRetention PUT Object, ["retention"], PutObjectRetention UnknownPUT Document audited;
        GetObjectLegalHold GET Object, ["legal-hold"], GetObjectLegalHold UnknownGET Nothing;
        PutObjectLegalHold PUT Object, ["legal-hold"], PutObjectLegalHold UnknownPUT Document audited;
        CreateMultipartUpload POST Object, ["uploads"], PutObject UnknownPOST Nothing;
        UploadPart PUT Object, ["uploadId"], PutObject UnknownPUT Stream;
        UploadPartCopy PUT Object, ["uploadId"] header "x-amz-copy-source", PutObject UnknownPUT CopySource;
        ListParts GET Object, ["uploadId"], ListMultipartUploadParts UnknownGET Nothing;
        CompleteMultipartUpload POST Object, ["uploadId"], PutObject UnknownPOST Document;
        AbortMultipartUpload DELETE Object, ["uploadId"], AbortMultipartUpload UnknownDELETE Nothing;

        AdminPing GET Admin("ping"), [], None UnknownGET Nothing;
        AdminHeadPing HEAD Admin("ping"), [], None UnknownHEAD Nothing;
        AdminStats GET Admin("stats"), [], None UnknownGET Nothing;
        AdminInfo GET Admin("info"), [], None UnknownGET Nothing;
        AdminCreateUser POST Admin("user"), [], None UnknownPOST Document audited;
        AdminReadUser GET Admin("user"), [], None AccountRead Nothing;
        AdminHeadUser HEAD Admin("user"), [], None AccountRead Nothing;
        AdminUpdateUser PUT Admin("user"), [], None UnknownPUT Document audited;
        AdminDeleteUser DELETE Admin("user"), [], None UnknownDELETE Nothing audited;
        AdminListUsers GET Admin("users"), [], None UnknownGET Nothing;
        AdminUsage GET Admin("usage"), [], None UsageRead Nothing;
    }
    unimplemented {
        GetBucketLogging GET Bucket, ["logging"],
            GetBucketLogging UnknownGET Nothing ConfigStub(StubResponse::Empty("BucketLoggingStatus"));
        PutBucketLogging PUT Bucket, ["logging"], PutBucketLogging UnknownPUT Document
            ConfigStub(StubResponse::Unset(UnsetConfig::Logging));
        GetBucketRequestPayment GET Bucket, ["requestPayment"],
            GetBucketRequestPayment UnknownGET Nothing ConfigStub(StubResponse::Payer);
        PutBucketRequestPayment PUT Bucket, ["requestPayment"],
            PutBucketRequestPayment UnknownPUT Document ConfigStub(StubResponse::Unset(UnsetConfig::Payment));
        GetBucketAccelerateConfiguration GET Bucket, ["accelerate"],
            GetAccelerateConfiguration UnknownGET Nothing ConfigStub(StubResponse::Empty("AccelerateConfiguration"));
        PutBucketAccelerateConfiguration PUT Bucket, ["accelerate"],
            PutAccelerateConfiguration UnknownPUT Document ConfigStub(StubResponse::Unset(UnsetConfig::Acceleration));
        GetBucketReplication GET Bucket, ["replication"], GetReplicationConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::Absent(Code::ReplicationConfigurationNotFoundError));
        PutBucketReplication PUT Bucket, ["replication"],
            PutReplicationConfiguration UnknownPUT Document NotImplemented;
        DeleteBucketReplication DELETE Bucket, ["replication"],
            PutReplicationConfiguration UnknownDELETE Nothing ConfigStub(StubResponse::NothingToDelete);
        GetBucketInventoryConfiguration GET Bucket, ["inventory" "id"], GetInventoryConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        ListBucketInventoryConfigurations GET Bucket, ["inventory"], GetInventoryConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::EmptyList("ListInventoryConfigurationsResult"));
        PutBucketInventoryConfiguration PUT Bucket, ["inventory"],
            PutInventoryConfiguration UnknownPUT Document NotImplemented;
        DeleteBucketInventoryConfiguration DELETE Bucket, ["inventory"], PutInventoryConfiguration UnknownDELETE Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        GetBucketAnalyticsConfiguration GET Bucket, ["analytics" "id"], GetAnalyticsConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        ListBucketAnalyticsConfigurations GET Bucket, ["analytics"], GetAnalyticsConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::EmptyList("ListBucketAnalyticsConfigurationResult"));
        PutBucketAnalyticsConfiguration PUT Bucket, ["analytics"],
            PutAnalyticsConfiguration UnknownPUT Document NotImplemented;
        DeleteBucketAnalyticsConfiguration DELETE Bucket, ["analytics"], PutAnalyticsConfiguration UnknownDELETE Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        GetBucketMetricsConfiguration GET Bucket, ["metrics" "id"], GetMetricsConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        ListBucketMetricsConfigurations GET Bucket, ["metrics"], GetMetricsConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::EmptyList("ListMetricsConfigurationsResult"));
        PutBucketMetricsConfiguration PUT Bucket, ["metrics"],
            PutMetricsConfiguration UnknownPUT Document NotImplemented;
        DeleteBucketMetricsConfiguration DELETE Bucket, ["metrics"], PutMetricsConfiguration UnknownDELETE Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        GetBucketIntelligentTieringConfiguration GET Bucket, ["intelligent-tiering" "id"], GetIntelligentTieringConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        ListBucketIntelligentTieringConfigurations GET Bucket, ["intelligent-tiering"], GetIntelligentTieringConfiguration UnknownGET Nothing
            ConfigStub(StubResponse::EmptyList("ListBucketIntelligentTieringConfigurationsOutput"));
        PutBucketIntelligentTieringConfiguration PUT Bucket, ["intelligent-tiering"],
            PutIntelligentTieringConfiguration UnknownPUT Document NotImplemented;
        DeleteBucketIntelligentTieringConfiguration DELETE Bucket, ["intelligent-tiering"],
            PutIntelligentTieringConfiguration UnknownDELETE Nothing
            ConfigStub(StubResponse::Absent(Code::NoSuchConfiguration));
        GetObjectTorrent GET Object, ["torrent"], GetObjectTorrent UnknownGET Nothing NotImplemented;
        RestoreObject POST Object, ["restore"], RestoreObject UnknownPOST Document NotImplemented;
        SelectObjectContent POST Object, ["select"], GetObject UnknownPOST Document NotImplemented;
        RenameObject PUT Object, ["renameObject"], PutObject UnknownPUT Nothing NotImplemented;
        UpdateObjectEncryption PUT Object, ["encryption"], None UnknownPUT Document NotImplemented;
        ListObjectAnnotations GET Object, ["annotation"], None UnknownGET Nothing NotImplemented;
        GetObjectAnnotation GET Object, ["annotation" "annotationName"], None UnknownGET Nothing NotImplemented;
        PutObjectAnnotation PUT Object, ["annotation"], None UnknownPUT Stream NotImplemented;
        DeleteObjectAnnotation DELETE Object, ["annotation"], None UnknownDELETE Nothing NotImplemented;
        GetBucketAbac GET Bucket, ["abac"], None UnknownGET Nothing NotImplemented;
        PutBucketAbac PUT Bucket, ["abac"], None UnknownPUT Document NotImplemented;
        GetBucketMetadataConfiguration GET Bucket, ["metadataConfiguration"], None UnknownGET Nothing NotImplemented;
        CreateBucketMetadataConfiguration POST Bucket, ["metadataConfiguration"],
            None UnknownPOST Document NotImplemented;
        DeleteBucketMetadataConfiguration DELETE Bucket, ["metadataConfiguration"],
            None UnknownDELETE Nothing NotImplemented;
        GetBucketMetadataTableConfiguration GET Bucket, ["metadataTable"], None UnknownGET Nothing NotImplemented;
        CreateBucketMetadataTableConfiguration POST Bucket, ["metadataTable"],
            None UnknownPOST Document NotImplemented;
        DeleteBucketMetadataTableConfiguration DELETE Bucket, ["metadataTable"],
            None UnknownDELETE Nothing NotImplemented;
        UpdateBucketMetadataAnnotationTableConfiguration PUT Bucket, ["metadataAnnotationTable"],
            None UnknownPUT Document NotImplemented;
        UpdateBucketMetadataInventoryTableConfiguration PUT Bucket, ["metadataInventoryTable"],
            None UnknownPUT Document NotImplemented;
        UpdateBucketMetadataJournalTableConfiguration PUT Bucket, ["metadataJournalTable"],
            None UnknownPUT Document NotImplemented;
        ListDirectoryBuckets GET Service, ["x-id=ListDirectoryBuckets"], None UnknownGET Nothing NotImplemented;
        // Its host begins with the route, so that a server of virtual hosts takes the name of the operation for a key.
        WriteGetObjectResponse POST Bucket, [] header "x-amz-request-route", None UnknownPOST Stream NotImplemented;
        WriteGetObjectResponse POST Object, [] header "x-amz-request-route", None UnknownPOST Stream NotImplemented;
        CreateSession GET Bucket, ["session"], CreateSession UnknownGET Nothing NotImplemented;
        AdminListSessions GET Admin("temp-sessions"), [], None UnknownGET Nothing NotImplemented;
    }
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_rows_match_the_same_request() {
        let mut seen = HashSet::new();
        for operation in OPERATIONS {
            let mut keys = operation.query_params.to_vec();
            keys.sort_unstable();
            let what = format!("{:?} {:?} {keys:?} {:?}", operation.method, operation.scope, operation.header);
            assert!(seen.insert(what.clone()), "{what} twice");
        }
    }

    #[test]
    fn every_row_is_consistent() {
        for operation in OPERATIONS {
            let is_read_only = matches!(operation.method, Method::GET | Method::HEAD);
            let admin = matches!(operation.scope, OperationScope::Admin(_));
            assert!(!(admin && operation.action.is_some()), "{}", operation.name);
            let may_lack = admin || operation.support == NotImplemented;
            assert!(operation.action.is_some() || may_lack, "{}", operation.name);
            assert!(!(is_read_only && operation.body != RequestBodyKind::Nothing), "{}", operation.name);
            let usage = ["ListBuckets", "UsageRead", "AccountRead", "Bucket", "Key", "Unknown"];
            assert!(usage.iter().any(|name| operation.usage_report_name.starts_with(name)), "{}", operation.name);
            if let Support::ConfigStub(stub) = operation.support {
                let keeps =
                    matches!(stub, StubResponse::Absent(_) | StubResponse::NothingToDelete | StubResponse::Unset(_));
                assert!(is_read_only || keeps, "{} would be answered and forgotten", operation.name);
            }
        }
    }
}
