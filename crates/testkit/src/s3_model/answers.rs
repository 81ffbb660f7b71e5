//! Comparisons of an answer.

use super::asks::{ModelRequest, customer_key_md5};
use super::dates::{SECOND, parsed};
use super::state::{ModelEncryption, ModelLock, ModelObject};
use super::{Checked, S3Model};
use crate::http::HttpResponse;

/// The codes that the model knows, with their statuses.
const STATUSES: &[(u16, &[&str])] = &[
    (304, &["NotModified"]),
    (
        400,
        &[
            "BadDigest",
            "EntityTooSmall",
            "InvalidArgument",
            "InvalidPart",
            "InvalidPartOrder",
            "InvalidRequest",
            "InvalidRetentionPeriod",
            "InvalidTag",
            "MalformedXML",
        ],
    ),
    (403, &["AccessDenied"]),
    (
        404,
        &[
            "NoSuchBucket",
            "NoSuchKey",
            "NoSuchLifecycleConfiguration",
            "NoSuchObjectLockConfiguration",
            "NoSuchTagSet",
            "NoSuchUpload",
            "NoSuchVersion",
            "ObjectLockConfigurationNotFoundError",
            "ServerSideEncryptionConfigurationNotFoundError",
        ],
    ),
    (405, &["MethodNotAllowed"]),
    (409, &["BucketNotEmpty", "InvalidBucketState", "BucketAlreadyOwnedByYou"]),
    (412, &["PreconditionFailed"]),
    (416, &["InvalidRange", "InvalidPartNumber"]),
    (501, &["NotImplemented"]),
];

fn status(code: &str) -> u16 {
    let row = STATUSES.iter().find(|(_, codes)| codes.contains(&code));
    row.unwrap_or_else(|| panic!("{code} has no status")).0
}

/// An answer in one line.
pub(super) fn shown(answer: &HttpResponse) -> String {
    let told = ["etag", "x-amz-version-id", "x-amz-delete-marker", "content-range"];
    let headers = told.iter().filter_map(|name| Some(format!(" {name}={}", answer.header(name)?)));
    let code = answer.element("Code").map(|code| format!(" {code} {:?}", answer.element("Message")));
    format!("{}{}{}", answer.status, headers.collect::<String>(), code.unwrap_or_default())
}

/// An error with what was expected and found.
pub(super) fn differs<T>(what: &str, expected: impl std::fmt::Debug, found: impl std::fmt::Debug) -> Result<T, String> {
    Err(format!("{what}: expected {expected:?}, found {found:?}"))
}

/// Fails unless both are the same.
pub(super) fn same<T: std::fmt::Debug + PartialEq<U>, U: std::fmt::Debug>(
    what: &str,
    expected: T,
    found: U,
) -> Checked {
    if expected == found { Ok(()) } else { differs(what, expected, found) }
}

/// Fails unless a header has this value, or is not there.
pub(super) fn header(answer: &HttpResponse, name: &str, expected: Option<&str>) -> Checked {
    same(name, expected, answer.header(name))
}

/// The entity tag of an answer without its quotes.
pub(super) fn answered_etag(answer: &HttpResponse) -> String {
    answer.header("etag").unwrap_or_default().trim_matches('"').to_owned()
}

/// The texts of all elements of this name, in order.
pub(super) fn elements<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    text.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

impl S3Model<'_> {
    /// Sends a request that must be refused for one of these faults, if there are any; otherwise its answer has one of these
    /// statuses. Returns the answer to go on with, `None` after a refusal.
    pub(super) fn expect(
        &mut self,
        request: &ModelRequest,
        faults: &[&'static str],
        statuses: &[u16],
    ) -> Result<Option<HttpResponse>, String> {
        let answer = self.send(request);
        let outcomes = self.counts.0.entry(self.action).or_default();
        if faults.is_empty() {
            outcomes.served += 1
        } else {
            outcomes.refused += 1
        }
        if faults.is_empty() {
            return if statuses.contains(&answer.status) {
                Ok(Some(answer))
            } else {
                differs("status", statuses, shown(&answer))
            };
        }
        let fits = |code: &&&str| {
            let has_code = request.method == "HEAD" || answer.status == 304 || answer.element("Code") == Some(**code);
            has_code && answer.status == status(code)
        };
        match faults.iter().find(fits) {
            Some(_) => Ok(None),
            None => differs("refusal", faults, shown(&answer)),
        }
    }
}

/// Compares the headers that say how an object is encrypted.
pub(super) fn encryption(answer: &HttpResponse, expected: ModelEncryption) -> Checked {
    let (server, algorithm, md5) = match expected {
        ModelEncryption::Plain => (None, None, None),
        ModelEncryption::Server => (Some("AES256"), None, None),
        ModelEncryption::Customer(number) => (None, Some("AES256"), Some(customer_key_md5(number))),
    };
    header(answer, "x-amz-server-side-encryption", server)?;
    header(answer, "x-amz-server-side-encryption-customer-algorithm", algorithm)?;
    header(answer, "x-amz-server-side-encryption-customer-key-md5", md5.as_deref())
}

/// Compares the headers of a lock.
pub(super) fn lock(answer: &HttpResponse, expected: ModelLock) -> Checked {
    let mode = expected.retention.map(|one| if one.is_compliance { "COMPLIANCE" } else { "GOVERNANCE" });
    header(answer, "x-amz-object-lock-mode", mode)?;
    let until = answer.header("x-amz-object-lock-retain-until-date").and_then(parsed);
    is_near("retain until", expected.retention.map(|one| one.until), until)?;
    let hold = expected.hold.map(|is_on| if is_on { "ON" } else { "OFF" });
    header(answer, "x-amz-object-lock-legal-hold", hold)
}

/// Fails unless two times are less than a few seconds apart, or both are absent.
pub(super) fn is_near(what: &str, expected: Option<u64>, found: Option<u64>) -> Checked {
    match (expected, found) {
        (Some(expected), Some(found)) if expected.abs_diff(found) <= 3 * SECOND => Ok(()),
        (None, None) => Ok(()),
        _ => differs(what, expected, found),
    }
}

/// Compares the headers of a read object but those of its length.
pub(super) fn object_headers(answer: &HttpResponse, object: &ModelObject) -> Checked {
    same("etag", &object.etag, &answered_etag(answer))?;
    let kind = object.metadata.content_type.as_deref().unwrap_or("binary/octet-stream");
    header(answer, "content-type", Some(kind))?;
    header(answer, "x-amz-meta-colour", object.metadata.colour.as_deref())?;
    let count = Some(object.metadata.tags.len()).filter(|count| *count > 0).map(|count| count.to_string());
    header(answer, "x-amz-tagging-count", count.as_deref())?;
    encryption(answer, object.encryption)?;
    lock(answer, object.lock)
}
