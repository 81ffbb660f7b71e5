//! What the S3 side answers instead. The edge matches every kind without a wildcard.

use larder_model::objects::{Etag, VersionId};
use larder_model::rows::Micros;

/// Result of a call of the S3 side.
pub type Result<T> = std::result::Result<T, Error>;

/// A configuration of a bucket that may not be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    /// Its policy.
    Policy,
    /// Its rules for browsers.
    Cors,
    /// Its rules for what is old.
    Lifecycle,
    /// Its tags.
    Tags,
    /// Its public access block.
    PublicAccess,
}

/// A request that was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// What any call of the gateway may answer.
    #[error(transparent)]
    Gateway(#[from] crate::Error),
    /// The caller may not.
    #[error("access denied")]
    AccessDenied,
    /// There is no such bucket.
    #[error("no such bucket: {0}")]
    NoSuchBucket(String),
    /// No bucket can be called that.
    #[error("invalid bucket name: {0}")]
    InvalidBucketName(String),
    /// The name is taken.
    #[error("the bucket exists")]
    BucketExists {
        /// By the caller's own bucket.
        own: bool,
    },
    /// Objects, versions or delete markers remain.
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    /// The bucket is being changed by somebody else: try again.
    #[error("a conflicting operation is in progress")]
    OperationAborted,
    /// The caller has as many buckets as a user may have.
    #[error("too many buckets")]
    TooManyBuckets {
        /// How many there are.
        current: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// The bucket has no such configuration.
    #[error("no such configuration: {0:?}")]
    NoConfiguration(Configuration),
    /// There is no such object.
    #[error("no such key")]
    NoSuchKey,
    /// There is no such version.
    #[error("no such version: {0}")]
    NoSuchVersion(String),
    /// The text is no version id.
    #[error("invalid version id: {0}")]
    BadVersionId(String),
    /// The version is a delete marker.
    #[error("a delete marker")]
    DeleteMarker {
        /// Which.
        id: VersionId,
        /// Whether clients know it as `null`.
        null: bool,
        /// When it was written.
        modified: Micros,
        /// Whether it was met as the current version, not asked for by its id.
        current: bool,
    },
    /// The key is longer than keys may be.
    #[error("the key has {0} bytes")]
    KeyTooLong(usize),
    /// There is no such upload, or not one of this key.
    #[error("no such upload")]
    NoSuchUpload,
    /// A condition does not hold; its header's name.
    #[error("condition failed: {0}")]
    PreconditionFailed(&'static str),
    /// What is asked for is what the client has.
    #[error("not modified")]
    NotModified {
        /// Its entity tag.
        etag: Etag,
        /// When it was written.
        modified: Micros,
        /// Its version, if versions are kept.
        version: Option<String>,
        /// Its cache headers.
        headers: Vec<(larder_model::objects::SystemHeader, bytes::Bytes)>,
    },
    /// Another conditional writer won while this one was at it.
    #[error("a conditional request conflicts with another")]
    ConditionalConflict,
    /// The range lies outside the object.
    #[error("the range lies outside the object of {length} bytes")]
    InvalidRange {
        /// The object's length in bytes.
        length: u64,
    },
    /// The object has no such part.
    #[error("no such part number")]
    InvalidPartNumber,
    /// The bytes are not those that the client's MD5 is of.
    #[error("the Content-MD5 does not match")]
    BadDigest,
    /// The bytes are not those that the client's checksum is of; the algorithm's name.
    #[error("the {0} checksum does not match")]
    BadChecksum(&'static str),
    /// Larger than one put, part or object may be.
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
    /// A part that is listed was not uploaded, or is another one.
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
    /// Something is asked for that cannot be, in words for the client.
    #[error("{0}")]
    InvalidRequest(String),
    /// An argument does not hold.
    #[error("{message}")]
    InvalidArgument {
        /// Its name as clients know it.
        name: &'static str,
        /// What was given.
        value: String,
        /// Why it does not hold.
        message: String,
    },
    /// The policy cannot be read or says what policies may not say.
    #[error("{0}")]
    MalformedPolicy(String),
    /// A tag does not hold.
    #[error("{0}")]
    InvalidTag(String),
    /// No user has this e-mail address.
    #[error("no user has this e-mail address")]
    UnknownEmail(String),
    /// No user has this access key id.
    #[error("no such access key")]
    UnknownKey(String),
    /// The user is disabled.
    #[error("the user is disabled")]
    UserDisabled,
    /// A user has this e-mail address already.
    #[error("the user exists")]
    UserExists,
    /// A user's field does not hold, in words for the client.
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

impl From<larder_model::codec::DecodeError> for Error {
    fn from(error: larder_model::codec::DecodeError) -> Self {
        Self::Gateway(crate::Error::Damaged(error.to_string()))
    }
}
