//! Maps gateway errors to S3 errors. Every variant is matched without a wildcard, so a new one fails to compile until
//! it has a code.

use hyper::header::{CONTENT_RANGE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED};
use larder_net::RateLimitedLog;
use larder_rows::Timestamp;
use larder_s3::encryption::EncryptionError;
use larder_s3::{Configuration, Error, RequestArgument};
use larder_s3_rules::{Etag, VersionId, dates};

use super::{Code, S3Error};
use crate::target::{ResourcePath, S3Query};

/// A key of a moving bucket that did not come from its source in time.
const NOT_MOVED_YET: &str = "The source of a move, which may have the object, has not given it yet. Try again.";
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
/// The header with the initiation time that an upload must have.
pub(crate) const INITIATED: &str = "x-amz-if-match-initiated-time";

// A client can cause either as often as it asks.
static UNEXPECTED: RateLimitedLog = RateLimitedLog::new();
static KEY_MISSING: RateLimitedLog = RateLimitedLog::new();

impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Gateway(error) => from_gateway(&error),
            Error::AccessDenied => Code::AccessDenied.into(),
            Error::Locked => Self::new(Code::AccessDenied, "Access Denied because object protected by object lock."),
            Error::InvalidBucketState(message) => Self::new(Code::InvalidBucketState, message),
            Error::NoSuchBucket(name) => Self::from(Code::NoSuchBucket).with("BucketName", name),
            Error::InvalidBucketName(name) => Self::from(Code::InvalidBucketName).with("BucketName", name),
            Error::BucketExists { own: true } => Code::BucketAlreadyOwnedByYou.into(),
            Error::BucketExists { own: false } => Code::BucketAlreadyExists.into(),
            Error::BucketNotEmpty => Code::BucketNotEmpty.into(),
            Error::OperationAborted => Code::OperationAborted.into(),
            Error::TooManyBuckets { current, allowed } => Self::from(Code::TooManyBuckets)
                .with("CurrentNumberOfBuckets", current.to_string())
                .with("AllowedNumberOfBuckets", allowed.to_string()),
            Error::QuotaExceeded(message) => Self::new(Code::QuotaExceeded, message),
            Error::NoConfiguration(what) => not_configured(what).into(),
            Error::NoSuchKey => Code::NoSuchKey.into(),
            Error::NoSuchVersion(id) => Self::from(Code::NoSuchVersion).with("VersionId", id),
            Error::BadVersionId(id) => Self::argument("versionId", id, "Invalid version id specified"),
            Error::DeleteMarker { id, null, modified, current } => delete_marker(id, null, modified, current),
            Error::KeyTooLong(bytes) => Self::from(Code::KeyTooLongError)
                .with("Size", bytes.to_string())
                .with("MaxSizeAllowed", larder_rows::limits::S3_KEY_BYTES_MAX.to_string()),
            Error::NoSuchUpload => Code::NoSuchUpload.into(),
            Error::PreconditionFailed(name) => Self::from(Code::PreconditionFailed).with("Condition", name),
            Error::OtherInitiationTime => Self::from(Code::PreconditionFailed).with("Condition", INITIATED),
            Error::NotModified { etag, modified, version, headers } => not_modified(&etag, modified, version, headers),
            Error::ConditionalConflict => Code::ConditionalRequestConflict.into(),
            Error::Encryption(error) => encryption(&error),
            Error::InvalidRange { length } => Self::from(Code::InvalidRange)
                .with("ActualObjectSize", length.to_string())
                .with_header(CONTENT_RANGE, format!("bytes */{length}")),
            Error::InvalidPartNumber => Code::InvalidPartNumber.into(),
            Error::BadDigest => {
                Self::new(Code::BadDigest, "The Content-MD5 you specified did not match what we received.")
            }
            Error::BadChecksum(algorithm) => {
                let message = format!("The {algorithm} you specified did not match the calculated checksum.");
                Self::new(Code::BadDigest, message)
            }
            Error::EntityTooLarge { bytes, max } => too_large(bytes, max),
            Error::EntityTooSmall { number, etag, bytes, min } => Self::from(Code::EntityTooSmall)
                .with("ProposedSize", bytes.to_string())
                .with("MinSizeAllowed", min.to_string())
                .with("PartNumber", number.to_string())
                .with("ETag", etag.to_string()),
            Error::NotMovedYet => Self::new(Code::ServiceUnavailable, NOT_MOVED_YET),
            Error::BrokenBody(_) => Code::IncompleteBody.into(),
            Error::InvalidPart { number, etag } => {
                Self::from(Code::InvalidPart).with("PartNumber", number.to_string()).with("ETag", etag)
            }
            Error::InvalidPartOrder => Code::InvalidPartOrder.into(),
            Error::InvalidRequest(message) => Self::invalid(message),
            Error::InvalidArgument { argument, value, message } => {
                Self::argument(argument_name(argument), value, message)
            }
            Error::MalformedPolicy(message) => Self::new(Code::MalformedPolicy, message),
            Error::InvalidTag(message) => Self::new(Code::InvalidTag, message),
            Error::AclsNotSupported => Code::AccessControlListNotSupported.into(),
            Error::AclUnderEnforcedOwnership => Code::InvalidBucketAclWithObjectOwnership.into(),
            Error::UnknownEmail(email) => Self::from(Code::UnresolvableGrantByEmailAddress).with("EmailAddress", email),
            Error::UnknownKey(key) => crate::auth::unknown_key(&key),
            Error::InvalidToken => Code::InvalidToken.into(),
            Error::UserDisabled => user_disabled(),
            Error::UserExists => Code::UserAlreadyExists.into(),
            Error::InvalidUser(message) => Self::new(Code::InvalidUserUpdate, message),
            Error::UserHasBuckets => Code::DeleteConflict.into(),
        }
    }
}

/// 403 for a disabled user.
pub(crate) fn user_disabled() -> S3Error {
    S3Error::new(Code::AccessDenied, "User is disabled")
}

/// 400 for a body above the size limit.
pub(crate) fn too_large(bytes: u64, max: u64) -> S3Error {
    S3Error::from(Code::EntityTooLarge).with("ProposedSize", bytes.to_string()).with("MaxSizeAllowed", max.to_string())
}

fn from_gateway(error: &larder_core::Error) -> S3Error {
    use larder_core::Error as E;
    match error {
        E::TooLarge { bytes, max } => too_large(*bytes, *max),
        E::MetadataTooLarge { bytes, max } => S3Error::from(Code::MetadataTooLarge)
            .with("Size", bytes.to_string())
            .with("MaxSizeAllowed", max.to_string()),
        E::BrokenBody(_) => Code::IncompleteBody.into(),
        E::TimedOut | E::Unsatisfied { .. } | E::NodeConfirms { .. } | E::NotReady(_) => {
            Code::ServiceUnavailable.into()
        }
        E::Overloaded { retry_after } => {
            S3Error::from(Code::SlowDown).with_header(hyper::header::RETRY_AFTER, HeaderValue::from(*retry_after))
        }
        E::DiskFull => Code::InsufficientStorage.into(),
        E::NotBuilt(feature) => S3Error::new(Code::NotImplemented, format!("{} is not offered", feature.name())),
        E::BadAddress(_) => Code::InvalidURI.into(),
        // Errors of the key-value API alone; no S3 operation causes them.
        E::UnknownType(_)
        | E::QuorumAboveN { .. }
        | E::Condition(_)
        | E::Superseded
        | E::Datatype(_)
        | E::NotDatatype
        | E::DatatypePut
        | E::DatatypeNeedsSiblings
        | E::IndexTooLarge { .. }
        | E::Precommit(_)
        | E::Changed
        | E::Context(_)
        | E::TooManySiblings { .. }
        | E::Refused(_)
        | E::Type(_)
        | E::Damaged(_)
        | E::Internal(_) => {
            if let Some(line) = UNEXPECTED.admit_now() {
                let left_out = line.left_out;
                tracing::error!(%error, left_out, "S3 request failed with an unexpected gateway error; answered 500");
            }
            Code::InternalError.into()
        }
    }
}

fn not_configured(what: Configuration) -> Code {
    match what {
        Configuration::Policy => Code::NoSuchBucketPolicy,
        Configuration::Cors => Code::NoSuchCORSConfiguration,
        Configuration::Lifecycle => Code::NoSuchLifecycleConfiguration,
        Configuration::Tags => Code::NoSuchTagSet,
        Configuration::Encryption => Code::ServerSideEncryptionConfigurationNotFoundError,
        Configuration::Website => Code::NoSuchWebsiteConfiguration,
        Configuration::Ownership => Code::OwnershipControlsNotFoundError,
        Configuration::PublicAccess => Code::NoSuchPublicAccessBlockConfiguration,
        Configuration::ObjectLock => Code::ObjectLockConfigurationNotFoundError,
        Configuration::VersionLock => Code::NoSuchObjectLockConfiguration,
    }
}

/// Refusals about keys, with the texts of AWS where it has one.
fn encryption(error: &EncryptionError) -> S3Error {
    match error {
        EncryptionError::NoMasterKey => S3Error::new(
            Code::NotImplemented,
            "Server side encryption takes master keys: the server was started without --encryption-keys.",
        )
        .with("Header", "x-amz-server-side-encryption"),
        EncryptionError::MissingMasterKey(id) => {
            if let Some(line) = KEY_MISSING.admit_now() {
                tracing::error!(
                    master_key = %id,
                    left_out = line.left_out,
                    "object not readable: its master key is not in the ring of --encryption-keys"
                );
            }
            S3Error::new(
                Code::InternalError,
                format!("The master key {id} of the object is not in the ring of the server."),
            )
        }
        EncryptionError::CustomerKeyNeeded => S3Error::invalid(
            "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to \
             retrieve the object.",
        ),
        EncryptionError::OtherCustomerKey => S3Error::new(
            Code::AccessDenied,
            "Requests specifying Server Side Encryption with Customer provided keys must provide the correct secret key.",
        ),
        EncryptionError::NotApplicable => {
            S3Error::invalid("The encryption parameters are not applicable to this object.")
        }
        EncryptionError::PartDiffers => S3Error::invalid(
            "The multipart upload initiate requested encryption. Subsequent part requests must include the appropriate \
             encryption parameters.",
        ),
        EncryptionError::PartKeyDiffers => {
            S3Error::invalid("The provided encryption parameters did not match the ones used originally.")
        }
        EncryptionError::CustomerKeysBlocked => {
            S3Error::new(Code::AccessDenied, "The bucket does not allow encryption with customer provided keys.")
        }
    }
}

/// The name of an argument for clients.
fn argument_name(argument: RequestArgument) -> &'static str {
    match argument {
        RequestArgument::CannedAcl => "x-amz-acl",
        RequestArgument::GranteeId => "CanonicalUser/ID",
        RequestArgument::GroupUri => "Group/URI",
        RequestArgument::CopyRange => "x-amz-copy-source-range",
        RequestArgument::VersionMarker => "version-id-marker",
        RequestArgument::RetainUntilDate => "RetainUntilDate",
        RequestArgument::RetainUntilHeader => "x-amz-object-lock-retain-until-date",
    }
}

/// The error for a delete marker. As the current version it means that the key does not exist; addressed by its id it
/// can only be deleted.
fn delete_marker(id: VersionId, null: bool, modified: Timestamp, current: bool) -> S3Error {
    let error = if current {
        S3Error::from(Code::NoSuchKey)
    } else {
        S3Error::not_allowed("GET", "DeleteMarker", "DELETE").with_header(LAST_MODIFIED, http_date(modified))
    };
    let id = if null { "null".to_owned() } else { id.text() };
    error.with_header(DELETE_MARKER, HeaderValue::from_static("true")).with_header(VERSION_ID, id)
}

fn not_modified(
    etag: &Etag,
    modified: Timestamp,
    version: Option<String>,
    headers: Vec<(larder_s3_rules::SystemHeader, bytes::Bytes)>,
) -> S3Error {
    let mut error = S3Error::from(Code::NotModified)
        .with_header(ETAG, format!("\"{etag}\""))
        .with_header(LAST_MODIFIED, http_date(modified));
    if let Some(version) = version {
        error = error.with_header(VERSION_ID, version);
    }
    for (header, value) in headers {
        error = error.with_header(HeaderName::from_static(header.name()), value.as_ref());
    }
    error
}

impl S3Error {
    /// Adds elements that describe the request: its key, upload id or range.
    #[must_use]
    pub(crate) fn with_request(mut self, target: &ResourcePath, query: &S3Query, range: Option<&str>) -> Self {
        let key = || String::from_utf8_lossy(&target.key).into_owned();
        let upload = || query.get("uploadId").unwrap_or_default().to_owned();
        let extras: Vec<(&'static str, String)> = match self.code {
            Code::NoSuchKey => vec![("Key", key())],
            Code::NoSuchVersion => vec![("Key", key())],
            Code::NoSuchBucket | Code::ObjectLockConfigurationNotFoundError => {
                vec![("BucketName", target.bucket.clone())]
            }
            Code::NoSuchUpload | Code::InvalidPart => vec![("UploadId", upload())],
            Code::InvalidRange => vec![("RangeRequested", range.unwrap_or_default().to_owned())],
            _ => vec![],
        };
        for (name, value) in extras {
            if !self.extras.iter().any(|(extra, _)| *extra == name) {
                self.extras.insert(0, (name, value));
            }
        }
        self
    }
}

/// A time as the value of a header.
fn http_date(at: Timestamp) -> HeaderValue {
    HeaderValue::try_from(dates::http(at)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBytes(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_names_the_key_upload_or_range_of_its_request() {
        let target = ResourcePath { bucket: "b".into(), key: "k".into() };
        let query = S3Query::parse(Some("uploadId=u"));
        let extras_of = |error: Error| S3Error::from(error).with_request(&target, &query, Some("bytes=9-")).extras;
        assert_eq!(extras_of(Error::NoSuchKey), [("Key", "k".to_owned())]);
        assert_eq!(extras_of(Error::NoSuchUpload), [("UploadId", "u".to_owned())]);
        assert_eq!(
            extras_of(Error::NoSuchVersion("v".into())),
            [("Key", "k".to_owned()), ("VersionId", "v".to_owned())]
        );
        assert_eq!(
            extras_of(Error::InvalidRange { length: 3 }),
            [("RangeRequested", "bytes=9-".to_owned()), ("ActualObjectSize", "3".to_owned())]
        );
        assert_eq!(extras_of(Error::NoSuchBucket("other".into())), [("BucketName", "other".to_owned())]);
    }

    #[test]
    fn a_delete_marker_is_404_as_current_version_and_405_by_id() {
        let marker =
            |current, null| Error::DeleteMarker { id: VersionId([1; 16]), null, modified: Timestamp::ZERO, current };
        let response = S3Error::from(marker(true, true)).into_response("/b/k", "r", true);
        assert_eq!(response.status(), 404);
        assert_eq!(
            (&response.headers()["x-amz-delete-marker"], &response.headers()["x-amz-version-id"]),
            (&HeaderValue::from_static("true"), &HeaderValue::from_static("null"))
        );
        let response = S3Error::from(marker(false, false)).into_response("/b/k", "r", true);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &HeaderValue::from_static("DELETE"))
        );
        assert_eq!(response.headers()["last-modified"], "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_wrote_a_line_in_the_log_with_each_request_that_failed() {
        // Past the lines of other tests.
        tokio::time::sleep(Duration::from_secs(365 * 24 * 3600)).await;
        let log = LogBytes::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let missing = || EncryptionError::MissingMasterKey("7".to_owned());
        for _ in 0..1_000 {
            drop(S3Error::from(Error::Gateway(larder_core::Error::Damaged("a row".into()))));
            drop(S3Error::from(Error::Encryption(missing())));
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        drop(S3Error::from(Error::Encryption(missing())));
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() == 3 && lines[2].contains("left_out=999"), "{lines:#?}");
    }

    #[test]
    fn overload_has_a_retry_after_header() {
        let error = S3Error::from(Error::Gateway(larder_core::Error::Overloaded { retry_after: 7 }));
        let response = error.into_response("/", "r", false);
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &HeaderValue::from(7)));
        assert_eq!(response.headers().get_all("retry-after").iter().count(), 1);
    }
}
