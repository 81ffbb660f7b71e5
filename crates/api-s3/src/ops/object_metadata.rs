//! Object metadata in request headers: system headers, user metadata, tags, ACL.

use bytes::Bytes;
use hyper::HeaderMap;
use larder_rows::Timestamp;
use larder_rows::limits::OBJECT_TAGS_MAX;
use larder_s3::copy::NEVER_COPIED;
use larder_s3::encryption::EncryptionChoice;
use larder_s3::put::{ObjectMetadata, stored_encoding};
use larder_s3_rules::tags::{self, TagError};
use larder_s3_rules::{SystemHeader, Tag};

use super::copy_source::COPY_SOURCE;
use super::{grants, listing_document, lock_headers};
use crate::call::joined;
use crate::errors::{self, Code, S3Error};

/// Prefix of user metadata headers.
pub(crate) const META: &str = "x-amz-meta-";
/// The header with the tags of a new object.
pub(crate) const TAGGING: &str = "x-amz-tagging";

/// Longest address of a redirect, in bytes.
const REDIRECT_BYTES_MAX: usize = 2048;
/// Accepted storage classes. They are stored and returned; all bytes are stored the same way.
const CLASSES: &[&str] = &[
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "GLACIER_IR",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// The beginning of the headers with the key of the source of a copy.
const SOURCE_ENCRYPTION: &str = "x-amz-copy-source-server-side-encryption";

/// Decodes the metadata of an object that is put at `now`, but its encryption.
///
/// # Errors
/// 400 for metadata above the limit, invalid tags, grants or locks, or an unknown storage class.
pub(crate) fn metadata_from_headers(headers: &HeaderMap, now: Timestamp) -> Result<ObjectMetadata, S3Error> {
    check_supported(headers)?;
    let metadata = ObjectMetadata {
        headers: system_headers(headers)?,
        meta: meta(headers),
        tags: tags(headers)?.unwrap_or_default(),
        acl: grants::acl_from_headers(headers)?,
        encryption: EncryptionChoice::BucketDefault,
        lock: lock_headers::lock_from_headers(headers, now)?,
    };
    metadata.check_size()?;
    Ok(metadata)
}

/// The tags in the header; `None` without it.
///
/// # Errors
/// 400 for invalid tags.
pub(crate) fn tags(headers: &HeaderMap) -> Result<Option<Vec<Tag>>, S3Error> {
    let Some(text) = headers.get(TAGGING) else { return Ok(None) };
    let text = String::from_utf8_lossy(text.as_bytes());
    let bad = |error: TagError| match error {
        TagError::Encoding => S3Error::argument(
            TAGGING,
            &*text,
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without \
             tag name duplicates.",
        ),
        other => tag_error(&other),
    };
    tags::parse_header(&text, OBJECT_TAGS_MAX).map(Some).map_err(bad)
}

/// The S3 error for invalid tags.
pub(crate) fn tag_error(error: &TagError) -> S3Error {
    match error {
        TagError::TooMany(max) => {
            let what = if *max == OBJECT_TAGS_MAX { "Object tags" } else { "Bucket tag count" };
            S3Error::new(Code::BadRequest, format!("{what} cannot be greater than {max}"))
        }
        TagError::Key(key) => {
            S3Error::new(Code::InvalidTag, "The TagKey you have provided is invalid").with("TagKey", key.as_str())
        }
        TagError::Value(tag) => S3Error::new(Code::InvalidTag, "The TagValue you have provided is invalid")
            .with("TagKey", tag.key.as_str())
            .with("TagValue", tag.value.as_str()),
        TagError::SystemKey(OBJECT_TAGS_MAX) => {
            S3Error::new(Code::InvalidTag, "Your TagKey cannot be prefixed with aws:")
        }
        TagError::SystemKey(_) => S3Error::new(Code::InvalidTag, "System tags cannot be added/updated by requester"),
        TagError::Duplicate(_) => S3Error::new(Code::InvalidTag, "Cannot provide multiple Tags with the same key"),
        TagError::Encoding => S3Error::from(Code::InvalidTag),
    }
}

/// Whether the request changes metadata besides replacing it, so that an object may be copied onto itself.
pub(crate) fn changes_more(headers: &HeaderMap) -> bool {
    NEVER_COPIED.iter().any(|header| headers.contains_key(header.name()))
}

/// The headers that a copy takes from its request and never from the source.
///
/// # Errors
/// 400 for an unknown storage class.
pub(crate) fn copied_headers(headers: &HeaderMap) -> Result<Vec<(SystemHeader, Bytes)>, S3Error> {
    let mut given = system_headers(headers)?;
    given.retain(|(header, _)| NEVER_COPIED.contains(header));
    Ok(given)
}

/// Refuses headers about the encryption of a source where there is none.
///
/// # Errors
/// 501 with the header.
pub(crate) fn check_supported(headers: &HeaderMap) -> Result<(), S3Error> {
    // Of the source of a copy, which other requests have none of.
    let is_stray = |name: &str| name.starts_with(SOURCE_ENCRYPTION) && !headers.contains_key(COPY_SOURCE);
    if let Some(name) = listing_document::first_header(headers, is_stray) {
        return Err(S3Error::header_not_offered(name));
    }
    Ok(())
}

fn system_headers(headers: &HeaderMap) -> Result<Vec<(SystemHeader, Bytes)>, S3Error> {
    let mut kept = Vec::new();
    for header in SystemHeader::ALL {
        let Some(value) = joined(headers, header.name()) else { continue };
        let value = match header {
            SystemHeader::ContentEncoding => stored_encoding(&value),
            SystemHeader::StorageClass => known_storage_class(&value)?,
            SystemHeader::WebsiteRedirect => Some(redirect_location(value)?),
            _ => Some(value),
        };
        kept.extend(value.filter(|value| !value.is_empty()).map(|value| (header, value)));
    }
    Ok(kept)
}

/// The address to which a website redirects the readers of an object.
fn redirect_location(value: Bytes) -> Result<Bytes, S3Error> {
    if value.len() > REDIRECT_BYTES_MAX {
        let message = "The length of website redirect location cannot exceed 2,048 characters.";
        return Err(S3Error::new(Code::InvalidRedirectLocation, message));
    }
    let is_place = [&b"/"[..], b"http://", b"https://"].iter().any(|begin| value.starts_with(begin));
    if is_place { Ok(value) } else { Err(Code::InvalidRedirectLocation.into()) }
}

fn known_storage_class(value: &Bytes) -> Result<Option<Bytes>, S3Error> {
    let name = String::from_utf8_lossy(value);
    if !CLASSES.contains(&&*name) {
        return Err(S3Error::argument("x-amz-storage-class", name, "The storage class you specified is not valid"));
    }
    Ok((name != "STANDARD").then(|| value.clone()))
}

fn meta(headers: &HeaderMap) -> Vec<(String, Bytes)> {
    let value = |name| errors::decoded(&joined(headers, name).unwrap_or_default());
    let named = headers.keys().filter_map(|name| Some((name.as_str().strip_prefix(META)?.to_owned(), value(name))));
    named.collect()
}

/// Whether a copy directive is `REPLACE`.
///
/// # Errors
/// 400 for a directive other than `COPY` or `REPLACE`.
pub(crate) fn is_replace(headers: &HeaderMap, directive: &'static str) -> Result<bool, S3Error> {
    match listing_document::header(headers, directive) {
        None | Some("" | "COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => {
            Err(S3Error::argument(directive, other, format!("Unknown {} directive.", directive_name(directive))))
        }
    }
}

fn directive_name(directive: &str) -> &str {
    if directive.contains("tagging") { "tagging" } else { "metadata" }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use hyper::header::HeaderName;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn code(pairs: &[(&'static str, &str)]) -> &'static str {
        metadata_from_headers(&headers(pairs), Timestamp::ZERO).unwrap_err().code.name()
    }

    #[test]
    fn metadata_is_decoded_from_headers() {
        let metadata = metadata_from_headers(
            &headers(&[
                ("content-type", "text/plain; charset=utf-8"),
                ("content-encoding", "aws-chunked, gzip"),
                ("x-amz-storage-class", "STANDARD"),
                ("expires", "never"),
                ("x-amz-meta-a", "1"),
                ("x-amz-meta-a", "é"),
                ("x-amz-tagging", "k=v&e="),
                ("host", "h"),
            ]),
            Timestamp::ZERO,
        )
        .unwrap();
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        assert_eq!(
            metadata.headers,
            [
                (SystemHeader::ContentType, bytes("text/plain; charset=utf-8")),
                (SystemHeader::ContentEncoding, bytes("gzip")),
                (SystemHeader::Expires, bytes("never")),
            ]
        );
        assert_eq!(metadata.meta, [("a".to_owned(), bytes("1,é"))]);
        assert_eq!(metadata.tags.len(), 2);
    }

    #[test]
    fn aws_chunked_is_not_stored_as_content_encoding() {
        for (given, kept) in [
            ("aws-chunked", None),
            ("AWS-Chunked,", None),
            ("gzip,aws-chunked", Some("gzip")),
            ("gzip, br", Some("gzip, br")),
            ("", None),
        ] {
            let metadata = metadata_from_headers(&headers(&[("content-encoding", given)]), Timestamp::ZERO).unwrap();
            let encoding = metadata.headers.first().map(|(_, value)| String::from_utf8(value.to_vec()).unwrap());
            assert_eq!(encoding.as_deref(), kept, "{given}");
        }
    }

    #[test]
    fn invalid_and_unsupported_headers_are_refused() {
        let long = "v".repeat(2048);
        assert_eq!(code(&[("x-amz-meta-a", &long)]), "MetadataTooLarge");
        assert!(metadata_from_headers(&headers(&[("x-amz-meta-a", &long[1..])]), Timestamp::ZERO).is_ok());
        assert_eq!(code(&[("x-amz-storage-class", "CHEAP")]), "InvalidArgument");
        let name = "x-amz-copy-source-server-side-encryption-customer-key";
        let error = metadata_from_headers(&headers(&[(name, "0")]), Timestamp::ZERO).unwrap_err();
        assert_eq!((error.code, error.extras), (Code::NotImplemented, vec![("Header", name.to_owned())]));
        assert_eq!(code(&[("x-amz-object-lock-mode", "GOVERNANCE")]), "InvalidArgument");
        assert_eq!(code(&[("x-amz-tagging", "a=%")]), "InvalidArgument");
        assert_eq!(code(&[("x-amz-tagging", "a=1&a=2")]), "InvalidArgument");
        assert_eq!(code(&[("x-amz-tagging", "a&b&c&d&e&f&g&h&i&j&k")]), "BadRequest");
        assert_eq!(code(&[("x-amz-tagging", "aws:x=1")]), "InvalidTag");
        assert_eq!(code(&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=1")]), "InvalidRequest");
    }

    #[test]
    fn only_known_directives_are_accepted() {
        let replaced = |value| is_replace(&headers(&[("x-amz-metadata-directive", value)]), "x-amz-metadata-directive");
        assert!(!replaced("COPY").unwrap());
        assert!(replaced("REPLACE").unwrap());
        assert!(replaced("replace").is_err());
    }

    proptest! {
        #[test]
        fn any_headers_are_read_or_refused(value: Vec<u8>) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            for name in ["content-encoding", "x-amz-storage-class", "x-amz-meta-x", TAGGING, "x-amz-grant-read"] {
                let headers: HeaderMap = [(HeaderName::from_static(name), value.clone())].into_iter().collect();
                let _ = metadata_from_headers(&headers, Timestamp::ZERO);
            }
        }
    }
}
