//! Response headers that describe an object.

use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED,
};
use hyper::{HeaderMap, StatusCode};
use larder_rows::Timestamp;
use larder_s3::get::FoundObject;
use larder_s3_rules::{Etag, Object, SystemHeader, dates};

use super::{checksums, encryption, listing_document, lock_headers, object_metadata};
use crate::errors::{self, S3Error};
use crate::response::{self, S3Response};
use crate::target::S3Query;

/// The version of an object.
pub(crate) const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const MISSING_META: HeaderName = HeaderName::from_static("x-amz-missing-meta");

/// The unit of ranges.
const BYTES: HeaderValue = HeaderValue::from_static("bytes");

/// The type of objects stored without one.
const DEFAULT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");

/// Query parameters that override response headers.
const OVERRIDES: &[(&str, &str)] = &[
    ("response-content-type", "content-type"),
    ("response-content-language", "content-language"),
    ("response-expires", "expires"),
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
];

/// The response headers that query parameters override.
///
/// # Errors
/// 400 `InvalidRequest` for an anonymous request, `InvalidArgument` for an invalid header value.
pub(crate) fn overrides(query: &S3Query, signed: bool) -> Result<Vec<(HeaderName, HeaderValue)>, S3Error> {
    let mut headers = Vec::new();
    for (parameter, header) in OVERRIDES {
        let Some(value) = query.get(parameter) else { continue };
        if !signed {
            return Err(S3Error::invalid(
                "Request specific response headers cannot be used for anonymous GET requests.",
            ));
        }
        let bad = || S3Error::argument(parameter, value, "The value cannot be one of a header.");
        headers.push((HeaderName::from_static(header), HeaderValue::from_str(value).map_err(|_| bad())?));
    }
    Ok(headers)
}

/// An entity tag in quotes.
pub(crate) fn quoted(etag: Etag) -> String {
    format!("\"{etag}\"")
}

/// Writes the version id, if the bucket keeps versions.
pub(crate) fn write_version(response: &mut S3Response, id: Option<&str>) {
    if let Some(id) = id {
        response::set(response, VERSION_ID, id);
    }
}

/// Writes when the lifecycle removes an object, and by which rule.
pub(crate) fn write_expiry(response: &mut S3Response, expires: Option<&(Timestamp, String)>) {
    if let Some((at, rule)) = expires {
        let rule = listing_document::encoded_value(rule.as_bytes());
        response::set(response, EXPIRATION, format!("expiry-date=\"{}\", rule-id=\"{rule}\"", dates::http(*at)));
    }
}

/// Writes all headers of an object that was found, for GET and HEAD.
pub(crate) fn write_found(response: &mut S3Response, found_object: &FoundObject, object: &Object, headers: &HeaderMap) {
    response::set(response, ETAG, quoted(object.etag));
    response::set(response, LAST_MODIFIED, dates::http(found_object.version.modified));
    response.headers_mut().insert(ACCEPT_RANGES, BYTES);
    response.headers_mut().insert(CONTENT_TYPE, DEFAULT_TYPE);
    for (name, value) in &object.headers {
        // The header shares the memory of the row.
        if let Ok(value) = HeaderValue::from_maybe_shared(value.clone()) {
            response.headers_mut().insert(HeaderName::from_static(name.name()), value);
        }
    }
    write_metadata(response, object);
    encryption::write_headers(response, object.encryption_kind(), headers);
    write_version(response, found_object.version_id.as_deref());
    if !object.tags.is_empty() {
        response::set(response, TAG_COUNT, object.tags.len().to_string());
    }
    write_expiry(response, found_object.expires.as_ref());
    lock_headers::write_lock(response, &found_object.lock);
    if let Some(count) = found_object.part.as_ref().and_then(|part| part.count) {
        response::set(response, PARTS_COUNT, count.to_string());
    }
    let wants_checksum =
        listing_document::header(headers, CHECKSUM_MODE).is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"));
    let checksum = match &found_object.part {
        Some(part) => part.checksum.as_ref(),
        // A client would check a range against the checksum of the whole object and fail.
        None if found_object.partial => None,
        None => object.checksum.as_ref(),
    };
    if let (true, Some(checksum), Some(whole)) = (wants_checksum, checksum, &object.checksum) {
        checksums::write_headers(response, checksum, whole.kind());
    }
    write_window(response, found_object, object.length());
}

fn write_metadata(response: &mut S3Response, object: &Object) {
    let mut missing = 0_usize;
    for (name, value) in &object.meta {
        let name = HeaderName::try_from(format!("{}{name}", object_metadata::META));
        match (name, HeaderValue::from_maybe_shared(errors::encoded(value))) {
            (Ok(name), Ok(value)) => drop(response.headers_mut().insert(name, value)),
            _ => missing += 1,
        }
    }
    if missing > 0 {
        response::set(response, MISSING_META, missing.to_string());
    }
}

/// Writes the length and, for a range, status 206 with its bounds.
fn write_window(response: &mut S3Response, found_object: &FoundObject, length: u64) {
    let window = &found_object.window;
    let bytes = window.end.saturating_sub(window.start);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    // A part without bytes has no bounds, and no answer is partial without them (RFC 9110, 15.3.7).
    if found_object.partial && bytes > 0 {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        response::set(response, CONTENT_RANGE, format!("bytes {}-{}/{length}", window.start, window.end - 1));
    }
}

/// The storage class of an object.
pub(crate) fn storage_class(object: &Object) -> String {
    let class = object.header(SystemHeader::StorageClass);
    class.map_or_else(|| "STANDARD".into(), |class| String::from_utf8_lossy(class).into_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use larder_rows::Timestamp;
    use larder_s3::get::FoundPart;
    use larder_s3_rules::{Algorithm, Checksum, ObjectBody, ObjectLock, Tag, Version, VersionId};

    use super::*;

    /// An object of a hundred bytes with every kind of metadata.
    pub(crate) fn object() -> Object {
        Object {
            body: ObjectBody::Inline(Bytes::from(vec![0; 100])),
            etag: Etag::from_md5([0x44; 16]),
            headers: vec![
                (SystemHeader::ContentType, Bytes::from_static(b"text/plain; charset=utf-8")),
                (SystemHeader::StorageClass, Bytes::from_static(b"GLACIER")),
            ],
            meta: vec![
                ("a".into(), Bytes::from_static("é".as_bytes())),
                ("bad name".into(), Bytes::from_static(b"x")),
                ("b".into(), Bytes::from_static(b"a\nb")),
            ],
            tags: vec![Tag { key: "k".into(), value: "v".into() }],
            acl: None,
            checksum: Some(Checksum::full(Algorithm::Crc32, Bytes::from_static(&[0, 0, 0, 1]))),
            upload: None,
            encryption: None,
            lock: ObjectLock::default(),
        }
    }

    /// The object as a read finds it.
    pub(crate) fn found_object(window: std::ops::Range<u64>, partial: bool) -> FoundObject {
        let version = Version {
            id: VersionId([1; 16]),
            null: false,
            modified: Timestamp(1_289_422_114_123_456),
            owner: "o".into(),
            object: Some(object()),
        };
        FoundObject {
            version,
            version_id: Some("v1".into()),
            window,
            partial,
            part: partial.then(|| FoundPart { count: Some(3), checksum: None }),
            expires: Some((Timestamp(1_289_422_114_123_456), "old stuff".into())),
            lock: ObjectLock { legal_hold: Some(false), ..ObjectLock::default() },
        }
    }

    fn described(window: std::ops::Range<u64>, partial: bool) -> S3Response {
        let headers: HeaderMap =
            [(HeaderName::from_static("x-amz-checksum-mode"), HeaderValue::from_static("ENABLED"))]
                .into_iter()
                .collect();
        let mut response = response::empty(StatusCode::OK);
        let object = found_object(window, partial);
        write_found(&mut response, &object, object.version.object.as_ref().unwrap(), &headers);
        response
    }

    #[test]
    fn all_headers_of_an_object_are_written() {
        let response = described(0..100, false);
        let expected: &[(&str, &str)] = &[
            ("etag", "\"44444444444444444444444444444444\""),
            ("last-modified", "Wed, 10 Nov 2010 20:48:34 GMT"),
            ("accept-ranges", "bytes"),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-missing-meta", "1"),
            ("x-amz-version-id", "v1"),
            ("x-amz-tagging-count", "1"),
            ("x-amz-object-lock-legal-hold", "OFF"),
            ("x-amz-expiration", "expiry-date=\"Wed, 10 Nov 2010 20:48:34 GMT\", rule-id=\"old%20stuff\""),
            ("x-amz-checksum-crc32", "AAAAAQ=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("content-length", "100"),
        ];
        for (name, value) in expected {
            assert_eq!(response.headers()[*name], *value, "{name}");
        }
        assert_eq!(response.headers()["x-amz-meta-a"], "=?UTF-8?B?w6k=?=");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers().len(), expected.len() + 2, "and two of metadata");
    }

    #[test]
    fn a_part_without_bytes_was_once_partial_without_bounds() {
        let response = described(100..100, true);
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key("content-range"));
        assert_eq!(response.headers()["content-length"], "0");
    }

    #[test]
    fn a_range_has_its_bounds_and_only_its_own_checksum() {
        let response = described(10..20, true);
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(
            (&response.headers()["content-range"], &response.headers()["content-length"]),
            (&HeaderValue::from_static("bytes 10-19/100"), &HeaderValue::from_static("10"))
        );
        assert_eq!(response.headers()["x-amz-mp-parts-count"], "3");
        assert!(!response.headers().contains_key("x-amz-checksum-crc32"));
        let digest = Bytes::from_static(&[0, 0, 0, 2]);
        let part = FoundPart { count: Some(3), checksum: Some(Checksum::full(Algorithm::Crc32, digest)) };
        let (mut response, object) =
            (response::empty(StatusCode::OK), FoundObject { part: Some(part), ..found_object(10..20, true) });
        let wants_checksum = [(HeaderName::from_static("x-amz-checksum-mode"), HeaderValue::from_static("ENABLED"))];
        write_found(
            &mut response,
            &object,
            object.version.object.as_ref().unwrap(),
            &wants_checksum.into_iter().collect(),
        );
        assert_eq!(response.headers()["x-amz-checksum-crc32"], "AAAAAg==", "a part has a checksum of its own");
    }

    #[test]
    fn overrides_need_a_signature() {
        let query = S3Query::parse(Some("response-content-type=a%2Fb&response-expires=x"));
        let headers = overrides(&query, true).unwrap();
        assert_eq!(headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["content-type", "expires"]);
        assert_eq!(overrides(&query, false).unwrap_err().code.name(), "InvalidRequest");
        assert!(overrides(&S3Query::parse(Some("x-id=GetObject")), false).unwrap().is_empty());
        assert_eq!(
            overrides(&S3Query::parse(Some("response-expires=a%0Ab")), true).unwrap_err().code.name(),
            "InvalidArgument"
        );
    }
}
