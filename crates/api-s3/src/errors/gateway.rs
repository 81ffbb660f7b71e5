//! What each error of the S3 side is called here. Every kind is matched, so that a new one fails to compile until it has a name.

use hyper::header::{CONTENT_RANGE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED};

use larder_gateway::objects::{Configuration, Error};
use larder_model::objects::{Etag, VersionId};
use larder_model::rows::Micros;

use crate::dates;
use crate::path::Target;
use crate::query::Query;

use super::{Code, Fault};

const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Gateway(error) => of_gateway(&error),
            Error::AccessDenied => Code::AccessDenied.into(),
            Error::NoSuchBucket(name) => Self::from(Code::NoSuchBucket).with("BucketName", name),
            Error::InvalidBucketName(name) => Self::from(Code::InvalidBucketName).with("BucketName", name),
            Error::BucketExists { own: true } => Code::BucketAlreadyOwnedByYou.into(),
            Error::BucketExists { own: false } => Code::BucketAlreadyExists.into(),
            Error::BucketNotEmpty => Code::BucketNotEmpty.into(),
            Error::OperationAborted => Code::OperationAborted.into(),
            Error::TooManyBuckets { current, allowed } => Self::from(Code::TooManyBuckets)
                .with("CurrentNumberOfBuckets", current.to_string())
                .with("AllowedNumberOfBuckets", allowed.to_string()),
            Error::NoConfiguration(what) => absent(what).into(),
            Error::NoSuchKey => Code::NoSuchKey.into(),
            Error::NoSuchVersion(id) => Self::from(Code::NoSuchVersion).with("VersionId", id),
            Error::BadVersionId(id) => Self::argument("versionId", id, "Invalid version id specified"),
            Error::DeleteMarker { id, null, modified, current } => marker(id, null, modified, current),
            Error::KeyTooLong(bytes) => Self::from(Code::KeyTooLongError)
                .with("Size", bytes.to_string())
                .with("MaxSizeAllowed", larder_model::limits::S3_KEY_BYTES_MAX.to_string()),
            Error::NoSuchUpload => Code::NoSuchUpload.into(),
            Error::PreconditionFailed(name) => Self::from(Code::PreconditionFailed).with("Condition", name),
            Error::NotModified { etag, modified, version, headers } => not_modified(&etag, modified, version, headers),
            Error::ConditionalConflict => Code::ConditionalRequestConflict.into(),
            Error::InvalidRange { length } => Self::from(Code::InvalidRange)
                .with("ActualObjectSize", length.to_string())
                .header(CONTENT_RANGE, format!("bytes */{length}")),
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
            Error::BrokenBody(_) => Code::IncompleteBody.into(),
            Error::InvalidPart { number, etag } => {
                Self::from(Code::InvalidPart).with("PartNumber", number.to_string()).with("ETag", etag)
            }
            Error::InvalidPartOrder => Code::InvalidPartOrder.into(),
            Error::InvalidRequest(message) => Self::invalid(message),
            Error::InvalidArgument { name, value, message } => Self::argument(name, value, message),
            Error::MalformedPolicy(message) => Self::new(Code::MalformedPolicy, message),
            Error::InvalidTag(message) => Self::new(Code::InvalidTag, message),
            Error::UnknownEmail(email) => Self::from(Code::UnresolvableGrantByEmailAddress).with("EmailAddress", email),
            Error::UnknownKey(key) => crate::auth::unknown_key(&key),
            Error::UserDisabled => disabled(),
            Error::UserExists => Code::UserAlreadyExists.into(),
            Error::InvalidUser(message) => Self::new(Code::InvalidUserUpdate, message),
            Error::UserHasBuckets => Code::DeleteConflict.into(),
        }
    }
}

/// 403, the user may do nothing at the moment.
pub(crate) fn disabled() -> Fault {
    Fault::new(Code::AccessDenied, "User is disabled")
}

/// 400, more bytes than there may be.
pub(crate) fn too_large(bytes: u64, max: u64) -> Fault {
    Fault::from(Code::EntityTooLarge).with("ProposedSize", bytes.to_string()).with("MaxSizeAllowed", max.to_string())
}

fn of_gateway(error: &larder_gateway::Error) -> Fault {
    use larder_gateway::Error as E;
    match error {
        E::TooLarge { bytes, max } => too_large(*bytes, *max),
        E::MetadataTooLarge { bytes, max } => {
            Fault::from(Code::MetadataTooLarge).with("Size", bytes.to_string()).with("MaxSizeAllowed", max.to_string())
        }
        E::BrokenBody(_) => Code::IncompleteBody.into(),
        E::TimedOut | E::Unsatisfied { .. } | E::NodeConfirms { .. } | E::NotReady(_) => {
            Code::ServiceUnavailable.into()
        }
        E::Overloaded { retry_after } => {
            Fault::from(Code::SlowDown).header(hyper::header::RETRY_AFTER, HeaderValue::from(*retry_after))
        }
        E::DiskFull => Code::InsufficientStorage.into(),
        E::NotBuilt(_) => Code::NotImplemented.into(),
        E::BadAddress(_) => Code::InvalidURI.into(),
        // Of the key-value side alone: S3 never asks for what these answer.
        E::UnknownType(_)
        | E::QuorumAboveN { .. }
        | E::Condition(_)
        | E::Superseded
        | E::Changed
        | E::Context(_)
        | E::TooManySiblings { .. }
        | E::Refused(_)
        | E::Type(_)
        | E::Damaged(_)
        | E::Internal(_) => {
            tracing::error!(%error, "a request failed");
            Code::InternalError.into()
        }
    }
}

fn absent(what: Configuration) -> Code {
    match what {
        Configuration::Policy => Code::NoSuchBucketPolicy,
        Configuration::Cors => Code::NoSuchCORSConfiguration,
        Configuration::Lifecycle => Code::NoSuchLifecycleConfiguration,
        Configuration::Tags => Code::NoSuchTagSet,
        Configuration::PublicAccess => Code::NoSuchPublicAccessBlockConfiguration,
    }
}

/// A delete marker: met as the current version there is nothing, asked for by its id it can only be deleted.
fn marker(id: VersionId, null: bool, modified: Micros, current: bool) -> Fault {
    let fault = if current {
        Fault::from(Code::NoSuchKey)
    } else {
        Fault::not_allowed("GET", "DeleteMarker", "DELETE").header(LAST_MODIFIED, dates::http_header(modified))
    };
    let id = if null { "null".to_owned() } else { id.text() };
    fault.header(DELETE_MARKER, HeaderValue::from_static("true")).header(VERSION_ID, id)
}

fn not_modified(
    etag: &Etag,
    modified: Micros,
    version: Option<String>,
    headers: Vec<(larder_model::objects::SystemHeader, bytes::Bytes)>,
) -> Fault {
    let mut fault = Fault::from(Code::NotModified)
        .header(ETAG, format!("\"{etag}\""))
        .header(LAST_MODIFIED, dates::http_header(modified));
    if let Some(version) = version {
        fault = fault.header(VERSION_ID, version);
    }
    for (header, value) in headers {
        fault = fault.header(HeaderName::from_static(header.name()), value.as_ref());
    }
    fault
}

impl Fault {
    /// The same with what its document tells of the request: the key that is not there, the upload, the range.
    #[must_use]
    pub(crate) fn about(mut self, target: &Target, query: &Query, range: Option<&str>) -> Self {
        let key = || String::from_utf8_lossy(&target.key).into_owned();
        let upload = || query.get("uploadId").unwrap_or_default().to_owned();
        let told: Vec<(&'static str, String)> = match self.code {
            Code::NoSuchKey => vec![("Key", key())],
            Code::NoSuchVersion => vec![("Key", key())],
            Code::NoSuchBucket => vec![("BucketName", target.bucket.clone())],
            Code::NoSuchUpload | Code::InvalidPart => vec![("UploadId", upload())],
            Code::InvalidRange => vec![("RangeRequested", range.unwrap_or_default().to_owned())],
            _ => vec![],
        };
        for (name, value) in told {
            if !self.extras.iter().any(|(one, _)| *one == name) {
                self.extras.insert(0, (name, value));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_tells_what_it_is_about() {
        let target = Target { bucket: "b".into(), key: "k".into() };
        let query = Query::of(Some("uploadId=u"));
        let about = |error: Error| Fault::from(error).about(&target, &query, Some("bytes=9-")).extras;
        assert_eq!(about(Error::NoSuchKey), [("Key", "k".to_owned())]);
        assert_eq!(about(Error::NoSuchUpload), [("UploadId", "u".to_owned())]);
        assert_eq!(about(Error::NoSuchVersion("v".into())), [("Key", "k".to_owned()), ("VersionId", "v".to_owned())]);
        assert_eq!(
            about(Error::InvalidRange { length: 3 }),
            [("RangeRequested", "bytes=9-".to_owned()), ("ActualObjectSize", "3".to_owned())]
        );
        assert_eq!(about(Error::NoSuchBucket("other".into())), [("BucketName", "other".to_owned())]);
    }

    #[test]
    fn a_delete_marker_is_nothing_or_not_to_be_read() {
        let marker = |current, null| Error::DeleteMarker { id: VersionId([1; 16]), null, modified: 0, current };
        let reply = Fault::from(marker(true, true)).into_reply("/b/k", "r", true);
        assert_eq!(reply.status(), 404);
        assert_eq!(
            (&reply.headers()["x-amz-delete-marker"], &reply.headers()["x-amz-version-id"]),
            (&HeaderValue::from_static("true"), &HeaderValue::from_static("null"))
        );
        let reply = Fault::from(marker(false, false)).into_reply("/b/k", "r", true);
        assert_eq!((reply.status().as_u16(), &reply.headers()["allow"]), (405, &HeaderValue::from_static("DELETE")));
        assert_eq!(reply.headers()["last-modified"], "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn overload_says_when_to_come_again() {
        let fault = Fault::from(Error::Gateway(larder_gateway::Error::Overloaded { retry_after: 7 }));
        let reply = fault.into_reply("/", "r", false);
        assert_eq!((reply.status().as_u16(), &reply.headers()["retry-after"]), (503, &HeaderValue::from(7)));
        assert_eq!(reply.headers().get_all("retry-after").iter().count(), 1);
    }
}
