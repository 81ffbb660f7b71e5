//! What a client says about an object beside its bytes: headers that are kept, metadata, tags.

use bytes::Bytes;
use hyper::HeaderMap;
use larder_gateway::objects::copy::NEVER_COPIED;
use larder_gateway::objects::put::About;
use larder_model::limits::{OBJECT_TAGS_MAX, S3_META_BYTES_MAX};
use larder_model::objects::tags::{self, TagError};
use larder_model::objects::{SystemHeader, Tag};

use super::{grants, params};
use crate::call::joined;
use crate::errors::{Code, Fault};
use crate::probe::NO_LOCKS;

/// What headers with metadata begin with.
pub(crate) const META: &str = "x-amz-meta-";
/// The header with the tags of a new object.
pub(crate) const TAGGING: &str = "x-amz-tagging";

/// Storage classes clients may name. They are remembered and shown; all bytes are kept the same way.
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

/// Beginnings of headers that would have bytes stored in another way, or elsewhere in the object.
const NOT_OFFERED: &[&str] = &[
    "x-amz-server-side-encryption",
    "x-amz-copy-source-server-side-encryption",
    "x-amz-write-offset-bytes",
    "x-amz-rename-source",
];

/// What the headers of a request say about an object.
///
/// # Errors
/// 400 for metadata that is too large, tags or grants that do not hold, or a storage class nobody knows; 501 for
/// encryption.
pub(crate) fn of(headers: &HeaderMap) -> Result<About, Fault> {
    refuse_unbuilt(headers)?;
    Ok(About {
        headers: system(headers)?,
        meta: meta(headers)?,
        tags: tags(headers)?.unwrap_or_default(),
        acl: grants::of(headers)?,
    })
}

/// The tags of the header, if it is there.
///
/// # Errors
/// 400 for tags that do not hold.
pub(crate) fn tags(headers: &HeaderMap) -> Result<Option<Vec<Tag>>, Fault> {
    let Some(text) = headers.get(TAGGING) else { return Ok(None) };
    let text = String::from_utf8_lossy(text.as_bytes());
    let bad = |error: TagError| match error {
        TagError::Encoding => Fault::argument(
            TAGGING,
            &*text,
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without \
             tag name duplicates.",
        ),
        other => refused(&other),
    };
    tags::parse_header(&text, OBJECT_TAGS_MAX).map(Some).map_err(bad)
}

/// The refusal of tags that do not hold.
pub(crate) fn refused(error: &TagError) -> Fault {
    match error {
        TagError::TooMany(max) => {
            let what = if *max == OBJECT_TAGS_MAX { "Object" } else { "Bucket" };
            Fault::new(Code::BadRequest, format!("{what} tags cannot be greater than {max}"))
        }
        TagError::KeyLength => Fault::new(Code::InvalidTag, "The TagKey you have provided is invalid"),
        TagError::ValueLength(_) => Fault::new(Code::InvalidTag, "The TagValue you have provided is invalid"),
        TagError::Duplicate(_) => Fault::new(Code::InvalidTag, "Cannot provide multiple Tags with the same key"),
        TagError::Character | TagError::Encoding => Fault::from(Code::InvalidTag),
    }
}

/// Whether the request asks for anything else that a copy onto itself may change.
pub(crate) fn changes_more(headers: &HeaderMap) -> bool {
    NEVER_COPIED.iter().any(|header| headers.contains_key(header.name()))
}

/// What a copy is given of the headers that it never takes over.
///
/// # Errors
/// 400 for a storage class nobody knows.
pub(crate) fn of_copy(headers: &HeaderMap) -> Result<Vec<(SystemHeader, Bytes)>, Fault> {
    let mut given = system(headers)?;
    given.retain(|(header, _)| NEVER_COPIED.contains(header));
    Ok(given)
}

/// What would be stored in another way than the client believes is refused.
///
/// # Errors
/// 501 for encryption by the server and for bytes at an offset, 400 for a lock.
pub(crate) fn refuse_unbuilt(headers: &HeaderMap) -> Result<(), Fault> {
    for name in headers.keys() {
        let name = name.as_str();
        if NOT_OFFERED.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(Fault::header_not_offered(name));
        }
        if name.starts_with("x-amz-object-lock-") {
            return Err(Fault::invalid(NO_LOCKS));
        }
    }
    Ok(())
}

fn system(headers: &HeaderMap) -> Result<Vec<(SystemHeader, Bytes)>, Fault> {
    let mut kept = Vec::new();
    for header in SystemHeader::ALL {
        let Some(value) = joined(headers, header.name()) else { continue };
        let value = match header {
            SystemHeader::ContentEncoding => without_framing(&value),
            SystemHeader::StorageClass => class(&value)?,
            _ => Some(value),
        };
        kept.extend(value.filter(|value| !value.is_empty()).map(|value| (header, value)));
    }
    Ok(kept)
}

/// The content encoding without the framing of the body, which is none of the object's.
fn without_framing(value: &Bytes) -> Option<Bytes> {
    let text = String::from_utf8_lossy(value);
    let is_framing = |one: &&str| one.eq_ignore_ascii_case("aws-chunked");
    let codings: Vec<&str> = text.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    if !codings.iter().any(is_framing) {
        return Some(value.clone());
    }
    let left: Vec<&str> = codings.into_iter().filter(|one| !is_framing(one)).collect();
    (!left.is_empty()).then(|| left.join(",").into())
}

fn class(value: &Bytes) -> Result<Option<Bytes>, Fault> {
    let name = String::from_utf8_lossy(value);
    if !CLASSES.contains(&&*name) {
        return Err(Fault::argument("x-amz-storage-class", name, "The storage class you specified is not valid"));
    }
    Ok((name != "STANDARD").then(|| value.clone()))
}

fn meta(headers: &HeaderMap) -> Result<Vec<(String, Bytes)>, Fault> {
    let mut meta = Vec::new();
    let mut bytes = 0;
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(META) else { continue };
        let value = joined(headers, name).unwrap_or_default();
        bytes += short.len() + value.len();
        meta.push((short.to_owned(), value));
    }
    check_meta(bytes)?;
    Ok(meta)
}

/// Checks the size of metadata: names and values together.
///
/// # Errors
/// 400 `MetadataTooLarge`.
pub(crate) fn check_meta(bytes: usize) -> Result<(), Fault> {
    if bytes <= S3_META_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::from(Code::MetadataTooLarge)
        .with("Size", bytes.to_string())
        .with("MaxSizeAllowed", S3_META_BYTES_MAX.to_string()))
}

/// Whether a directive of a copy says to replace.
///
/// # Errors
/// 400 for another word than `COPY` or `REPLACE`.
pub(crate) fn replaces(headers: &HeaderMap, directive: &'static str) -> Result<bool, Fault> {
    match params::header(headers, directive) {
        None | Some("" | "COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(Fault::argument(directive, other, format!("Unknown {} directive.", what(directive)))),
    }
}

fn what(directive: &str) -> &str {
    if directive.contains("tagging") { "tagging" } else { "metadata" }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn code(pairs: &[(&'static str, &str)]) -> &'static str {
        of(&headers(pairs)).unwrap_err().code.name()
    }

    #[test]
    fn what_is_kept() {
        let about = of(&headers(&[
            ("content-type", "text/plain; charset=utf-8"),
            ("content-encoding", "aws-chunked, gzip"),
            ("x-amz-storage-class", "STANDARD"),
            ("expires", "never"),
            ("x-amz-meta-a", "1"),
            ("x-amz-meta-a", "é"),
            ("x-amz-tagging", "k=v&e="),
            ("host", "h"),
        ]))
        .unwrap();
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        assert_eq!(
            about.headers,
            [
                (SystemHeader::ContentType, bytes("text/plain; charset=utf-8")),
                (SystemHeader::ContentEncoding, bytes("gzip")),
                (SystemHeader::Expires, bytes("never")),
            ]
        );
        assert_eq!(about.meta, [("a".to_owned(), bytes("1,é"))]);
        assert_eq!(about.tags.len(), 2);
    }

    #[test]
    fn framing_is_no_encoding_of_the_object() {
        for (given, kept) in [
            ("aws-chunked", None),
            ("AWS-Chunked,", None),
            ("gzip,aws-chunked", Some("gzip")),
            ("gzip, br", Some("gzip, br")),
            ("", None),
        ] {
            let about = of(&headers(&[("content-encoding", given)])).unwrap();
            let found = about.headers.first().map(|(_, value)| String::from_utf8(value.to_vec()).unwrap());
            assert_eq!(found.as_deref(), kept, "{given}");
        }
    }

    #[test]
    fn what_is_refused() {
        let long = "v".repeat(2048);
        assert_eq!(code(&[("x-amz-meta-a", &long)]), "MetadataTooLarge");
        assert!(of(&headers(&[("x-amz-meta-a", &long[1..])])).is_ok());
        assert_eq!(code(&[("x-amz-storage-class", "CHEAP")]), "InvalidArgument");
        for name in ["x-amz-server-side-encryption", "x-amz-write-offset-bytes"] {
            let fault = of(&headers(&[(name, "0")])).unwrap_err();
            assert_eq!((fault.code, fault.extras), (Code::NotImplemented, vec![("Header", name.to_owned())]));
        }
        assert_eq!(code(&[("x-amz-object-lock-mode", "GOVERNANCE")]), "InvalidRequest");
        assert_eq!(code(&[("x-amz-tagging", "a=%")]), "InvalidArgument");
        assert_eq!(code(&[("x-amz-tagging", "a=1&a=2")]), "InvalidTag");
        assert_eq!(code(&[("x-amz-tagging", "a&b&c&d&e&f&g&h&i&j&k")]), "BadRequest");
        assert_eq!(code(&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=1")]), "InvalidRequest");
    }

    #[test]
    fn directives() {
        let replaced = |value| replaces(&headers(&[("x-amz-metadata-directive", value)]), "x-amz-metadata-directive");
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
                let _ = of(&headers);
            }
        }
    }
}
