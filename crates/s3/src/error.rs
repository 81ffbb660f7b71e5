//! Errors of the S3 side. The edge matches every kind without a wildcard.

use larder_rows::Timestamp;

use crate::encryption::EncryptionError;
use crate::rules::{Etag, VersionId};

/// Result of a call of the S3 side.
pub type Result<T> = std::result::Result<T, Error>;

/// An optional configuration of a bucket, or of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// Its policy.
    Policy,
    /// Its CORS rules.
    Cors,
    /// Its lifecycle rules.
    Lifecycle,
    /// Its tags.
    Tags,
    /// Its public access block.
    PublicAccess,
    /// Its default encryption.
    Encryption,
    /// Its ownership controls.
    Ownership,
    /// Its website.
    Website,
    /// Its object lock.
    ObjectLock,
    /// The retention or the legal hold of a version.
    VersionLock,
}

/// An argument of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestArgument {
    /// The name of a canned ACL.
    CannedAcl,
    /// The canonical id of a grantee.
    GranteeId,
    /// The URI of a group.
    GroupUri,
    /// The range of the source of a copied part.
    CopyRange,
    /// The version marker of a listing.
    VersionMarker,
    /// The end of a retention, in a document.
    RetainUntilDate,
    /// The end of a retention, in a header.
    RetainUntilHeader,
}

/// The error of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An error of the gateway.
    #[error(transparent)]
    Gateway(#[from] larder_core::Error),
    /// The caller has no permission.
    #[error("access denied")]
    AccessDenied,
    /// A lock protects the version.
    #[error("the version is locked")]
    Locked,
    /// The bucket's configuration does not permit the change; a text for the client.
    #[error("{0}")]
    InvalidBucketState(&'static str),
    /// There is no such bucket.
    #[error("no such bucket: {0}")]
    NoSuchBucket(String),
    /// The name is no valid bucket name.
    #[error("invalid bucket name: {0}")]
    InvalidBucketName(String),
    /// The name is taken.
    #[error("the bucket exists")]
    BucketExists {
        /// Whether the bucket is the caller's.
        own: bool,
    },
    /// Objects, versions or delete markers remain.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// A concurrent operation conflicts: the client may retry.
    #[error("a conflicting operation is in progress")]
    OperationAborted,
    /// The caller owns as many buckets as a user may.
    #[error("too many buckets")]
    TooManyBuckets {
        /// The number owned.
        current: usize,
        /// The limit.
        allowed: usize,
    },
    /// The quota of the bucket, or of its owner, is used up; a text for the client.
    #[error("{0}")]
    QuotaExceeded(String),
    /// The bucket has no such configuration.
    #[error("no such configuration: {0:?}")]
    NoConfiguration(Configuration),
    /// There is no such object.
    #[error("no such key")]
    NoSuchKey,
    /// The source of a move may have the object, and did not give it in time.
    #[error("the source of a move did not answer")]
    NotMovedYet,
    /// There is no such version.
    #[error("no such version: {0}")]
    NoSuchVersion(String),
    /// The text is no version id.
    #[error("invalid version id: {0}")]
    BadVersionId(String),
    /// The version is a delete marker.
    #[error("a delete marker")]
    DeleteMarker {
        /// Its id.
        id: VersionId,
        /// Whether its id for clients is `null`.
        null: bool,
        /// When it was written.
        modified: Timestamp,
        /// Whether it is the current version and the request gave no version id.
        current: bool,
    },
    /// The key is too long; its length in bytes.
    #[error("the key has {0} bytes")]
    KeyTooLong(usize),
    /// There is no such upload, or not one of this key.
    #[error("no such upload")]
    NoSuchUpload,
    /// A condition fails; its header's name.
    #[error("condition failed: {0}")]
    PreconditionFailed(&'static str),
    /// The upload was initiated at another time than the request requires.
    #[error("the upload was initiated at another time")]
    OtherInitiationTime,
    /// The client already has this version.
    #[error("not modified")]
    NotModified {
        /// Its entity tag.
        etag: Etag,
        /// When it was written.
        modified: Timestamp,
        /// Its version, if the bucket has versioning.
        version: Option<String>,
        /// Its cache headers.
        headers: Vec<(crate::rules::SystemHeader, bytes::Bytes)>,
    },
    /// Another writer won the race against a conditional request.
    #[error("a conditional request conflicts with another")]
    ConditionalConflict,
    /// The keys of the request do not fit.
    #[error(transparent)]
    Encryption(EncryptionError),
    /// The range lies outside the object.
    #[error("the range lies outside the object of {length} bytes")]
    InvalidRange {
        /// The object's length in bytes.
        length: u64,
    },
    /// The object has no such part.
    #[error("no such part number")]
    InvalidPartNumber,
    /// The body does not match the client's MD5.
    #[error("the Content-MD5 does not match")]
    BadDigest,
    /// The body does not match the client's checksum; the algorithm's name.
    #[error("the {0} checksum does not match")]
    BadChecksum(&'static str),
    /// Larger than a put, part or object may be.
    #[error("{bytes} bytes are more than {max}")]
    EntityTooLarge {
        /// Bytes seen or announced.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A part that is not the last is too small.
    #[error("part {number} has {bytes} bytes, less than {min}")]
    EntityTooSmall {
        /// Its number.
        number: u16,
        /// Its entity tag.
        etag: Etag,
        /// Its length in bytes.
        bytes: u64,
        /// The limit.
        min: u64,
    },
    /// The body ended before its announced length, or was malformed.
    #[error("the request body could not be read: {0}")]
    BrokenBody(String),
    /// A listed part was not uploaded or has another entity tag.
    #[error("part {number} is not there or is another one")]
    InvalidPart {
        /// Its number.
        number: u32,
        /// The entity tag that was listed.
        etag: String,
    },
    /// Parts are not listed in ascending order.
    #[error("parts are not in ascending order")]
    InvalidPartOrder,
    /// The request is invalid; a text for the client.
    #[error("{0}")]
    InvalidRequest(String),
    /// An argument is invalid.
    #[error("{message}")]
    InvalidArgument {
        /// The argument.
        argument: RequestArgument,
        /// The given value.
        value: String,
        /// The reason.
        message: String,
    },
    /// The policy is malformed.
    #[error("{0}")]
    MalformedPolicy(String),
    /// A tag is invalid.
    #[error("{0}")]
    InvalidTag(String),
    /// The ownership controls of the bucket end all ACLs, and the request has one.
    #[error("the bucket does not allow ACLs")]
    AclsNotSupported,
    /// The bucket grants others something, and its ownership controls would end that.
    #[error("the bucket has an ACL that its ownership controls do not allow")]
    AclUnderEnforcedOwnership,
    /// No user has this e-mail address.
    #[error("no user has this e-mail address")]
    UnknownEmail(String),
    /// No user has this access key id.
    #[error("no such access key")]
    UnknownKey(String),
    /// The token of the session is not valid, or its key is gone.
    #[error("the session token is not valid")]
    InvalidToken,
    /// The user is disabled.
    #[error("the user is disabled")]
    UserDisabled,
    /// Another user has this e-mail address.
    #[error("the user exists")]
    UserExists,
    /// A field of a user is invalid; a text for the client.
    #[error("{0}")]
    InvalidUser(String),
    /// The user still owns buckets.
    #[error("the user owns buckets")]
    UserHasBuckets,
}

impl From<larder_store::Error> for Error {
    fn from(error: larder_store::Error) -> Self {
        Self::Gateway(error.into())
    }
}

impl From<larder_rows::codec::DecodeError> for Error {
    fn from(error: larder_rows::codec::DecodeError) -> Self {
        Self::Gateway(larder_core::Error::Damaged(error.to_string()))
    }
}
