//! Every operation there is, in one table: routing, access, usage and the manual read it.

use larder_http_edge::{held_by_stream, held_twice};
use larder_model::limits::S3_DOCUMENT_BYTES_MAX;

use crate::errors::Code;

use Answer::{Built, NotBuilt, Probe};
use Scope::{Admin, Bucket, Object, Service};
use Takes::{Document, Form, Nothing, Source, Stream};

/// What an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `/`
    Service,
    /// A bucket.
    Bucket,
    /// An object.
    Object,
    /// Riak CS's own paths: the first segment behind `/riak-cs/`.
    Admin(&'static str),
}

/// What an operation reads of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A small document.
    Document,
    /// The bytes of an object.
    Stream,
    /// A form with a file in it; its signature is one of its fields.
    Form,
    /// Nothing: the bytes of another object, which are here.
    Source,
}

impl Takes {
    /// Bytes of memory that a body of this length holds while it is read; `None`: its length is not known.
    #[must_use]
    pub fn memory(self, length: Option<u64>) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Document => held_twice(length, 2 * S3_DOCUMENT_BYTES_MAX as u64),
            Self::Stream => held_by_stream(length),
            Self::Form | Self::Source => held_by_stream(None),
        }
    }
}

/// Whether an operation is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is.
    Built,
    /// What it configures is not, but who asks is told so politely.
    Probe(ProbeAnswer),
    /// It is refused by name.
    NotBuilt,
}

/// What a probe is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A document with this root and nothing in it.
    Empty(&'static str),
    /// Who pays: the bucket's owner.
    Payer,
    /// That there is none.
    Absent(Code),
    /// That the bucket has no locks.
    Unlocked,
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Which.
    pub op: Op,
    /// Its name, as Amazon's documents have it.
    pub name: &'static str,
    /// Its method.
    pub method: Verb,
    /// What it is about.
    pub scope: Scope,
    /// Parameters that must be there, whatever their values; `name=value` asks for the value too.
    pub keys: &'static [&'static str],
    /// A header that must be there.
    pub header: Option<&'static str>,
    /// The action as policies name it; empty for what no policy is about.
    pub action: &'static str,
    /// What the usage report of Riak CS counts it as.
    pub usage: &'static str,
    /// What it reads of the body.
    pub takes: Takes,
    /// Whether it is offered.
    pub answer: Answer,
}

/// A method of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
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

impl Verb {
    /// As it is written.
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
        $action:literal $usage:ident $takes:ident $answer:expr;
    )*) => {
        /// An operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Op {
            $(#[doc = concat!("`", stringify!($op), "`")] $op,)*
        }

        /// All of them, the order of the enum.
        pub static OPERATIONS: &[Operation] = &[$(
            Operation {
                op: Op::$op,
                name: stringify!($op),
                method: Verb::$method,
                scope: $scope,
                keys: &[$($key),*],
                header: operations!(@header $($header)?),
                action: $action,
                usage: stringify!($usage),
                takes: $takes,
                answer: $answer,
            },
        )*];
    };
    (@header) => { None };
    (@header $header:literal) => { Some($header) };
}

// Name, method, scope, what must be there · action, usage, body, answer.
operations! {
    ListBuckets GET Service, [], "s3:ListAllMyBuckets" ListBuckets Nothing Built;

    CreateBucket PUT Bucket, [], "s3:CreateBucket" BucketCreate Document Built;
    HeadBucket HEAD Bucket, [], "s3:ListBucket" BucketStat Nothing Built;
    DeleteBucket DELETE Bucket, [], "s3:DeleteBucket" BucketDelete Nothing Built;
    ListObjects GET Bucket, [], "s3:ListBucket" BucketRead Nothing Built;
    ListObjectsV2 GET Bucket, ["list-type=2"], "s3:ListBucket" BucketRead Nothing Built;
    ListObjectVersions GET Bucket, ["versions"], "s3:ListBucketVersions" BucketRead Nothing Built;
    ListMultipartUploads GET Bucket, ["uploads"], "s3:ListBucketMultipartUploads" UnknownGET Nothing Built;
    DeleteObjects POST Bucket, ["delete"], "s3:DeleteObject" UnknownPOST Document Built;
    PostObject POST Bucket, [], "s3:PutObject" KeyWrite Form Built;

    GetBucketLocation GET Bucket, ["location"], "s3:GetBucketLocation" UnknownGET Nothing Built;
    GetBucketVersioning GET Bucket, ["versioning"], "s3:GetBucketVersioning" UnknownGET Nothing Built;
    PutBucketVersioning PUT Bucket, ["versioning"], "s3:PutBucketVersioning" UnknownPUT Document Built;
    GetBucketAcl GET Bucket, ["acl"], "s3:GetBucketAcl" BucketReadACL Nothing Built;
    PutBucketAcl PUT Bucket, ["acl"], "s3:PutBucketAcl" BucketWriteACL Document Built;
    GetBucketPolicy GET Bucket, ["policy"], "s3:GetBucketPolicy" UnknownGET Nothing Built;
    PutBucketPolicy PUT Bucket, ["policy"], "s3:PutBucketPolicy" UnknownPUT Document Built;
    DeleteBucketPolicy DELETE Bucket, ["policy"], "s3:DeleteBucketPolicy" UnknownDELETE Nothing Built;
    GetBucketPolicyStatus GET Bucket, ["policyStatus"], "s3:GetBucketPolicyStatus" UnknownGET Nothing Built;
    GetBucketCors GET Bucket, ["cors"], "s3:GetBucketCORS" UnknownGET Nothing Built;
    PutBucketCors PUT Bucket, ["cors"], "s3:PutBucketCORS" UnknownPUT Document Built;
    DeleteBucketCors DELETE Bucket, ["cors"], "s3:PutBucketCORS" UnknownDELETE Nothing Built;
    GetBucketLifecycleConfiguration GET Bucket, ["lifecycle"],
        "s3:GetLifecycleConfiguration" UnknownGET Nothing Built;
    PutBucketLifecycleConfiguration PUT Bucket, ["lifecycle"],
        "s3:PutLifecycleConfiguration" UnknownPUT Document Built;
    DeleteBucketLifecycle DELETE Bucket, ["lifecycle"], "s3:PutLifecycleConfiguration" UnknownDELETE Nothing Built;
    GetBucketTagging GET Bucket, ["tagging"], "s3:GetBucketTagging" UnknownGET Nothing Built;
    PutBucketTagging PUT Bucket, ["tagging"], "s3:PutBucketTagging" UnknownPUT Document Built;
    DeleteBucketTagging DELETE Bucket, ["tagging"], "s3:PutBucketTagging" UnknownDELETE Nothing Built;
    GetPublicAccessBlock GET Bucket, ["publicAccessBlock"], "s3:GetBucketPublicAccessBlock" UnknownGET Nothing Built;
    PutPublicAccessBlock PUT Bucket, ["publicAccessBlock"], "s3:PutBucketPublicAccessBlock" UnknownPUT Document Built;
    DeletePublicAccessBlock DELETE Bucket, ["publicAccessBlock"],
        "s3:PutBucketPublicAccessBlock" UnknownDELETE Nothing Built;

    GetBucketLogging GET Bucket, ["logging"],
        "s3:GetBucketLogging" UnknownGET Nothing Probe(ProbeAnswer::Empty("BucketLoggingStatus"));
    PutBucketLogging PUT Bucket, ["logging"], "s3:PutBucketLogging" UnknownPUT Document NotBuilt;
    GetBucketNotificationConfiguration GET Bucket, ["notification"],
        "s3:GetBucketNotification" UnknownGET Nothing Probe(ProbeAnswer::Empty("NotificationConfiguration"));
    PutBucketNotificationConfiguration PUT Bucket, ["notification"],
        "s3:PutBucketNotification" UnknownPUT Document NotBuilt;
    GetBucketRequestPayment GET Bucket, ["requestPayment"],
        "s3:GetBucketRequestPayment" UnknownGET Nothing Probe(ProbeAnswer::Payer);
    PutBucketRequestPayment PUT Bucket, ["requestPayment"], "s3:PutBucketRequestPayment" UnknownPUT Document NotBuilt;
    GetBucketAccelerateConfiguration GET Bucket, ["accelerate"],
        "s3:GetAccelerateConfiguration" UnknownGET Nothing Probe(ProbeAnswer::Empty("AccelerateConfiguration"));
    PutBucketAccelerateConfiguration PUT Bucket, ["accelerate"],
        "s3:PutAccelerateConfiguration" UnknownPUT Document NotBuilt;
    GetBucketWebsite GET Bucket, ["website"],
        "s3:GetBucketWebsite" UnknownGET Nothing Probe(ProbeAnswer::Absent(Code::NoSuchWebsiteConfiguration));
    PutBucketWebsite PUT Bucket, ["website"], "s3:PutBucketWebsite" UnknownPUT Document NotBuilt;
    DeleteBucketWebsite DELETE Bucket, ["website"], "s3:DeleteBucketWebsite" UnknownDELETE Nothing NotBuilt;
    GetBucketReplication GET Bucket, ["replication"], "s3:GetReplicationConfiguration" UnknownGET Nothing
        Probe(ProbeAnswer::Absent(Code::ReplicationConfigurationNotFoundError));
    PutBucketReplication PUT Bucket, ["replication"], "s3:PutReplicationConfiguration" UnknownPUT Document NotBuilt;
    DeleteBucketReplication DELETE Bucket, ["replication"],
        "s3:PutReplicationConfiguration" UnknownDELETE Nothing NotBuilt;
    GetBucketEncryption GET Bucket, ["encryption"], "s3:GetEncryptionConfiguration" UnknownGET Nothing
        Probe(ProbeAnswer::Absent(Code::ServerSideEncryptionConfigurationNotFoundError));
    PutBucketEncryption PUT Bucket, ["encryption"], "s3:PutEncryptionConfiguration" UnknownPUT Document NotBuilt;
    DeleteBucketEncryption DELETE Bucket, ["encryption"],
        "s3:PutEncryptionConfiguration" UnknownDELETE Nothing NotBuilt;
    GetBucketOwnershipControls GET Bucket, ["ownershipControls"], "s3:GetBucketOwnershipControls" UnknownGET Nothing
        Probe(ProbeAnswer::Absent(Code::OwnershipControlsNotFoundError));
    PutBucketOwnershipControls PUT Bucket, ["ownershipControls"],
        "s3:PutBucketOwnershipControls" UnknownPUT Document NotBuilt;
    DeleteBucketOwnershipControls DELETE Bucket, ["ownershipControls"],
        "s3:PutBucketOwnershipControls" UnknownDELETE Nothing NotBuilt;
    GetObjectLockConfiguration GET Bucket, ["object-lock"], "s3:GetBucketObjectLockConfiguration" UnknownGET Nothing
        Probe(ProbeAnswer::Absent(Code::ObjectLockConfigurationNotFoundError));
    PutObjectLockConfiguration PUT Bucket, ["object-lock"],
        "s3:PutBucketObjectLockConfiguration" UnknownPUT Document NotBuilt;

    GetObject GET Object, [], "s3:GetObject" KeyRead Nothing Built;
    HeadObject HEAD Object, [], "s3:GetObject" KeyStat Nothing Built;
    PutObject PUT Object, [], "s3:PutObject" KeyWrite Stream Built;
    CopyObject PUT Object, [] header "x-amz-copy-source", "s3:PutObject" KeyWrite Source Built;
    DeleteObject DELETE Object, [], "s3:DeleteObject" KeyDelete Nothing Built;
    GetObjectAcl GET Object, ["acl"], "s3:GetObjectAcl" KeyReadACL Nothing Built;
    PutObjectAcl PUT Object, ["acl"], "s3:PutObjectAcl" KeyWriteACL Document Built;
    GetObjectTagging GET Object, ["tagging"], "s3:GetObjectTagging" UnknownGET Nothing Built;
    PutObjectTagging PUT Object, ["tagging"], "s3:PutObjectTagging" UnknownPUT Document Built;
    DeleteObjectTagging DELETE Object, ["tagging"], "s3:DeleteObjectTagging" UnknownDELETE Nothing Built;
    GetObjectAttributes GET Object, ["attributes"], "s3:GetObject" UnknownGET Nothing Built;
    CreateMultipartUpload POST Object, ["uploads"], "s3:PutObject" UnknownPOST Nothing Built;
    UploadPart PUT Object, ["uploadId"], "s3:PutObject" UnknownPUT Stream Built;
    UploadPartCopy PUT Object, ["uploadId"] header "x-amz-copy-source", "s3:PutObject" UnknownPUT Source Built;
    ListParts GET Object, ["uploadId"], "s3:ListMultipartUploadParts" UnknownGET Nothing Built;
    CompleteMultipartUpload POST Object, ["uploadId"], "s3:PutObject" UnknownPOST Document Built;
    AbortMultipartUpload DELETE Object, ["uploadId"], "s3:AbortMultipartUpload" UnknownDELETE Nothing Built;
    GetObjectRetention GET Object, ["retention"],
        "s3:GetObjectRetention" UnknownGET Nothing Probe(ProbeAnswer::Unlocked);
    PutObjectRetention PUT Object, ["retention"],
        "s3:PutObjectRetention" UnknownPUT Document Probe(ProbeAnswer::Unlocked);
    GetObjectLegalHold GET Object, ["legal-hold"],
        "s3:GetObjectLegalHold" UnknownGET Nothing Probe(ProbeAnswer::Unlocked);
    PutObjectLegalHold PUT Object, ["legal-hold"],
        "s3:PutObjectLegalHold" UnknownPUT Document Probe(ProbeAnswer::Unlocked);
    GetObjectTorrent GET Object, ["torrent"], "s3:GetObjectTorrent" UnknownGET Nothing NotBuilt;
    RestoreObject POST Object, ["restore"], "s3:RestoreObject" UnknownPOST Document NotBuilt;
    SelectObjectContent POST Object, ["select"], "s3:GetObject" UnknownPOST Document NotBuilt;
    RenameObject PUT Object, ["renameObject"], "s3:PutObject" UnknownPUT Nothing NotBuilt;
    CreateSession GET Bucket, ["session"], "s3:CreateSession" UnknownGET Nothing NotBuilt;

    AdminPing GET Admin("ping"), [], "" UnknownGET Nothing Built;
    AdminHeadPing HEAD Admin("ping"), [], "" UnknownHEAD Nothing Built;
    AdminStats GET Admin("stats"), [], "" UnknownGET Nothing Built;
    AdminInfo GET Admin("info"), [], "" UnknownGET Nothing Built;
    AdminCreateUser POST Admin("user"), [], "" UnknownPOST Document Built;
    AdminReadUser GET Admin("user"), [], "" AccountRead Nothing Built;
    AdminHeadUser HEAD Admin("user"), [], "" AccountRead Nothing Built;
    AdminUpdateUser PUT Admin("user"), [], "" UnknownPUT Document Built;
    AdminDeleteUser DELETE Admin("user"), [], "" UnknownDELETE Nothing Built;
    AdminListUsers GET Admin("users"), [], "" UnknownGET Nothing Built;
    AdminUsage GET Admin("usage"), [], "" UsageRead Nothing Built;
    AdminListSessions GET Admin("temp-sessions"), [], "" UnknownGET Nothing NotBuilt;
}

impl Operation {
    /// Whether it only reads: what may be repeated, and asked by the pages of others without a preflight.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self.method, Verb::GET | Verb::HEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_lines_are_about_the_same_request() {
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
    fn every_line_is_complete() {
        for operation in OPERATIONS {
            let admin = matches!(operation.scope, Scope::Admin(_));
            assert_eq!(operation.action.is_empty(), admin, "{}", operation.name);
            assert!(admin || operation.action.starts_with("s3:"), "{}", operation.name);
            assert!(!(operation.reads() && operation.takes != Takes::Nothing), "{}", operation.name);
            let usage = ["ListBuckets", "UsageRead", "AccountRead", "Bucket", "Key", "Unknown"];
            assert!(usage.iter().any(|name| operation.usage.starts_with(name)), "{}", operation.name);
            if let Answer::Probe(answer) = operation.answer {
                let refuses = matches!(answer, ProbeAnswer::Absent(_) | ProbeAnswer::Unlocked);
                assert!(operation.reads() || refuses, "{} would be answered and forgotten", operation.name);
            }
        }
    }
}
