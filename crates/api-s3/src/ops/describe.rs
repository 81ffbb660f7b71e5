//! What headers of an answer say of an object.

use hyper::HeaderMap;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED,
};
use larder_gateway::objects::get::Found;
use larder_model::objects::{Etag, Object, SystemHeader};

use super::{about, checksums, params, spelling};
use crate::dates;
use crate::errors::Fault;
use crate::query::Query;
use crate::reply::{self, Reply};

/// The version of an object.
pub(crate) const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
const MISSING_META: HeaderName = HeaderName::from_static("x-amz-missing-meta");

/// The type of objects that came without one.
const DEFAULT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");

/// Parameters that replace headers of the answer.
const OVERRIDES: &[(&str, &str)] = &[
    ("response-content-type", "content-type"),
    ("response-content-language", "content-language"),
    ("response-expires", "expires"),
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
];

/// The headers of the answer that a parameter replaces.
///
/// # Errors
/// 400 `InvalidRequest` when nobody signed the request, or a value cannot be one of a header.
pub(crate) fn overrides(query: &Query, signed: bool) -> Result<Vec<(HeaderName, HeaderValue)>, Fault> {
    let mut headers = Vec::new();
    for (parameter, header) in OVERRIDES {
        let Some(value) = query.get(parameter) else { continue };
        if !signed {
            return Err(Fault::invalid("Request specific response headers cannot be used for anonymous GET requests."));
        }
        let bad = || Fault::argument(parameter, value, "The value cannot be one of a header.");
        headers.push((HeaderName::from_static(header), HeaderValue::from_str(value).map_err(|_| bad())?));
    }
    Ok(headers)
}

/// An entity tag in quotes.
pub(crate) fn quoted(etag: Etag) -> String {
    format!("\"{etag}\"")
}

/// Says the version of an object, where versions are kept.
pub(crate) fn version(reply: &mut Reply, id: Option<&str>) {
    if let Some(id) = id {
        reply::set(reply, VERSION_ID, id);
    }
}

/// Says everything of an object that was found, in an answer that has its bytes or stands for one that does.
pub(crate) fn found(reply: &mut Reply, found: &Found, object: &Object, headers: &HeaderMap) {
    reply::set(reply, ETAG, quoted(object.etag));
    reply::set(reply, LAST_MODIFIED, dates::http(found.version.modified));
    reply::set(reply, ACCEPT_RANGES, "bytes");
    reply.headers_mut().insert(CONTENT_TYPE, DEFAULT_TYPE);
    for (name, value) in &object.headers {
        reply::set(reply, HeaderName::from_static(name.name()), value.as_ref());
    }
    metadata(reply, object);
    version(reply, found.version_id.as_deref());
    if !object.tags.is_empty() {
        reply::set(reply, TAG_COUNT, object.tags.len().to_string());
    }
    if let Some((at, rule)) = &found.expires {
        let rule = spelling::value_of(rule.as_bytes());
        reply::set(reply, EXPIRATION, format!("expiry-date=\"{}\", rule-id=\"{rule}\"", dates::http(*at)));
    }
    if let Some(count) = found.part.as_ref().and_then(|part| part.count) {
        reply::set(reply, PARTS_COUNT, count.to_string());
    }
    let asked = params::header(headers, "x-amz-checksum-mode").is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"));
    let said = match &found.part {
        Some(part) => part.checksum.as_ref(),
        // A client that is told the checksum of all bytes would check some of them against it.
        None if found.partial => None,
        None => object.checksum.as_ref(),
    };
    if let (true, Some(said), Some(whole)) = (asked, said, &object.checksum) {
        checksums::say(reply, said, whole.kind());
    }
    window(reply, found, object.length());
}

fn metadata(reply: &mut Reply, object: &Object) {
    let mut missing = 0_usize;
    for (name, value) in &object.meta {
        let name = HeaderName::try_from(format!("{}{name}", about::META));
        match (name, HeaderValue::from_bytes(value)) {
            (Ok(name), Ok(value)) => drop(reply.headers_mut().insert(name, value)),
            _ => missing += 1,
        }
    }
    if missing > 0 {
        reply::set(reply, MISSING_META, missing.to_string());
    }
}

/// How many bytes there are, and which: 206 for some of them.
fn window(reply: &mut Reply, found: &Found, length: u64) {
    let window = &found.window;
    let bytes = window.end.saturating_sub(window.start);
    reply::set(reply, CONTENT_LENGTH, bytes.to_string());
    if found.partial {
        *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
        if bytes > 0 {
            reply::set(reply, CONTENT_RANGE, format!("bytes {}-{}/{length}", window.start, window.end - 1));
        }
    }
}

/// The storage class of an object.
pub(crate) fn class(object: &Object) -> String {
    let class = object.header(SystemHeader::StorageClass);
    class.map_or_else(|| "STANDARD".into(), |class| String::from_utf8_lossy(class).into_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use larder_gateway::objects::get::FoundPart;
    use larder_model::objects::{Algorithm, Checksum, ObjectBody, Tag, Version, VersionId};

    use super::*;

    /// An object of a hundred bytes with something of everything.
    pub(crate) fn object() -> Object {
        Object {
            body: ObjectBody::Inline(Bytes::from(vec![0; 100])),
            etag: Etag::of_md5([0x44; 16]),
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
        }
    }

    /// It, found.
    pub(crate) fn found_object(window: std::ops::Range<u64>, partial: bool) -> Found {
        let version = Version {
            id: VersionId([1; 16]),
            null: false,
            modified: 1_289_422_114_123_456,
            owner: "o".into(),
            object: Some(object()),
        };
        Found {
            version,
            version_id: Some("v1".into()),
            window,
            partial,
            part: partial.then(|| FoundPart { count: Some(3), checksum: None }),
            expires: Some((1_289_422_114_123_456, "old stuff".into())),
        }
    }

    fn described(window: std::ops::Range<u64>, partial: bool) -> Reply {
        let headers: HeaderMap =
            [(HeaderName::from_static("x-amz-checksum-mode"), HeaderValue::from_static("ENABLED"))]
                .into_iter()
                .collect();
        let mut reply = reply::empty(StatusCode::OK);
        let one = found_object(window, partial);
        found(&mut reply, &one, one.version.object.as_ref().unwrap(), &headers);
        reply
    }

    #[test]
    fn everything_is_said() {
        let reply = described(0..100, false);
        let expected: &[(&str, &str)] = &[
            ("etag", "\"44444444444444444444444444444444\""),
            ("last-modified", "Wed, 10 Nov 2010 20:48:34 GMT"),
            ("accept-ranges", "bytes"),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-missing-meta", "2"),
            ("x-amz-version-id", "v1"),
            ("x-amz-tagging-count", "1"),
            ("x-amz-expiration", "expiry-date=\"Wed, 10 Nov 2010 20:48:34 GMT\", rule-id=\"old%20stuff\""),
            ("x-amz-checksum-crc32", "AAAAAQ=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("content-length", "100"),
        ];
        for (name, value) in expected {
            assert_eq!(reply.headers()[*name], *value, "{name}");
        }
        assert_eq!(reply.headers()["x-amz-meta-a"].as_bytes(), "é".as_bytes());
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(reply.headers().len(), expected.len() + 1);
    }

    #[test]
    fn some_of_the_bytes() {
        let reply = described(10..20, true);
        assert_eq!(reply.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(
            (&reply.headers()["content-range"], &reply.headers()["content-length"]),
            (&HeaderValue::from_static("bytes 10-19/100"), &HeaderValue::from_static("10"))
        );
        assert_eq!(reply.headers()["x-amz-mp-parts-count"], "3");
        assert!(!reply.headers().contains_key("x-amz-checksum-crc32"));
        let digest = Bytes::from_static(&[0, 0, 0, 2]);
        let part = FoundPart { count: Some(3), checksum: Some(Checksum::full(Algorithm::Crc32, digest)) };
        let (mut reply, one) = (reply::empty(StatusCode::OK), Found { part: Some(part), ..found_object(10..20, true) });
        let asked = [(HeaderName::from_static("x-amz-checksum-mode"), HeaderValue::from_static("ENABLED"))];
        found(&mut reply, &one, one.version.object.as_ref().unwrap(), &asked.into_iter().collect());
        assert_eq!(reply.headers()["x-amz-checksum-crc32"], "AAAAAg==", "a part has a checksum of its own");
    }

    #[test]
    fn overriding_needs_a_signature() {
        let query = Query::of(Some("response-content-type=a%2Fb&response-expires=x"));
        let headers = overrides(&query, true).unwrap();
        assert_eq!(headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["content-type", "expires"]);
        assert_eq!(overrides(&query, false).unwrap_err().code.name(), "InvalidRequest");
        assert!(overrides(&Query::of(Some("x-id=GetObject")), false).unwrap().is_empty());
        assert_eq!(
            overrides(&Query::of(Some("response-expires=a%0Ab")), true).unwrap_err().code.name(),
            "InvalidArgument"
        );
    }
}
