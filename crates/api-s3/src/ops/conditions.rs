//! Conditions of requests: the four HTTP conditions, those of copy sources, and those of writes.
//!
//! The values of condition keys in a request, made by the parsers that the operations use: a policy tests what a request means,
//! not how it is spelled.
//!
//! A value that its operation will refuse is handed over as it stands: the request fails either way.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use larder_rows::Timestamp;
use larder_rows::limits::S3_PAGE_MAX;
use larder_s3::get::{IfRange, ReadConditions};
use larder_s3::put::WriteConditions;
use larder_s3_rules::acl::{RawGrantee, parse_grantees};
use larder_s3_rules::{Tag, dates};

use super::copy_source::CopySource;
use super::{listing_document, lock_headers, object_metadata};
use crate::call::joined;
use crate::target::S3Query;

/// The conditions of a read.
pub(crate) fn read_conditions(headers: &HeaderMap) -> ReadConditions {
    let four = conditions(headers, [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE]);
    ReadConditions { if_range: if_range(headers), ..four }
}

/// The condition of a range. A weak tag never matches.
fn if_range(headers: &HeaderMap) -> Option<IfRange> {
    if !headers.contains_key(IF_RANGE) {
        return None;
    }
    let text = listing_document::header(headers, IF_RANGE).unwrap_or_default();
    // A date comes without quotes, so it is tried before a tag.
    Some(match dates::parse_http(text) {
        Some(when) => IfRange::Modified(when),
        None if text.is_empty() || text.starts_with("W/") => IfRange::Nothing,
        None => IfRange::Tag(unquoted(text).to_owned()),
    })
}

/// The conditions of a copy source; any that fails is a failed precondition.
pub(crate) fn source_conditions(headers: &HeaderMap) -> ReadConditions {
    let names = [
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-none-match",
        "x-amz-copy-source-if-modified-since",
        "x-amz-copy-source-if-unmodified-since",
    ];
    ReadConditions { always_precondition: true, ..conditions(headers, names.map(HeaderName::from_static)) }
}

/// The conditions that a write checks against the current version at commit.
pub(crate) fn write_conditions(headers: &HeaderMap) -> WriteConditions {
    WriteConditions {
        if_match: etags(headers, IF_MATCH),
        if_none_match: etags(headers, IF_NONE_MATCH),
        if_version: None,
    }
}

/// The entity tags of a header, without quotes and weakness mark; `*` stays. `None` without the header.
pub(crate) fn etags(headers: &HeaderMap, name: HeaderName) -> Option<Vec<String>> {
    if !headers.contains_key(&name) {
        return None;
    }
    let mut tags = Vec::new();
    for value in headers.get_all(name) {
        list(&String::from_utf8_lossy(value.as_bytes()), &mut tags);
    }
    Some(tags)
}

/// Strips the quotes of an entity tag.
pub(crate) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: &str| text.strip_prefix(quote)?.strip_suffix(quote);
    // Some clients escape the quotes as XML.
    inner("\"").or_else(|| inner("&quot;")).unwrap_or(text)
}

fn conditions(headers: &HeaderMap, names: [HeaderName; 4]) -> ReadConditions {
    let [if_match, if_none_match, modified, unmodified] = names;
    let date = |name| listing_document::header(headers, name).and_then(dates::parse_http);
    ReadConditions {
        if_match: etags(headers, if_match),
        if_none_match: etags(headers, if_none_match),
        modified_since: date(modified),
        unmodified_since: date(unmodified),
        always_precondition: false,
        if_range: None,
    }
}

/// Splits at commas. This server's tags contain none, so a foreign tag with a comma matches nothing either way.
fn list(text: &str, tags: &mut Vec<String>) {
    for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
        tags.push(unquoted(tag.strip_prefix("W/").unwrap_or(tag)).to_owned());
    }
}

/// A condition key with one of its values.
pub(crate) type ConditionValue = (&'static str, String);

/// How a header's value is read.
#[derive(Debug, Clone, Copy)]
enum HeaderReading {
    /// As trimmed text.
    Text,
    /// As the object to copy.
    CopySource,
    /// As grantees.
    Grants,
    /// As `COPY` or `REPLACE`; empty means the first.
    Directive,
}

/// The condition keys of headers: `s3:` and the header's name.
const HEADER_KEYS: [(&str, HeaderReading); 13] = [
    ("s3:x-amz-acl", HeaderReading::Text),
    ("s3:x-amz-grant-read", HeaderReading::Grants),
    ("s3:x-amz-grant-write", HeaderReading::Grants),
    ("s3:x-amz-grant-read-acp", HeaderReading::Grants),
    ("s3:x-amz-grant-write-acp", HeaderReading::Grants),
    ("s3:x-amz-grant-full-control", HeaderReading::Grants),
    ("s3:x-amz-copy-source", HeaderReading::CopySource),
    ("s3:x-amz-metadata-directive", HeaderReading::Directive),
    ("s3:x-amz-storage-class", HeaderReading::Text),
    ("s3:x-amz-content-sha256", HeaderReading::Text),
    ("s3:x-amz-server-side-encryption", HeaderReading::Text),
    ("s3:x-amz-server-side-encryption-aws-kms-key-id", HeaderReading::Text),
    ("s3:x-amz-server-side-encryption-customer-algorithm", HeaderReading::Text),
];

/// The values of headers of a request that came at `now`.
pub(crate) fn header_conditions(headers: &HeaderMap, now: Timestamp) -> Vec<ConditionValue> {
    let mut values = lock_headers::header_conditions(headers, now);
    for (key, reading) in HEADER_KEYS {
        let header = &key["s3:".len()..];
        let line = match reading {
            HeaderReading::Grants => joined(headers, header),
            // Of several lines the operations read the first.
            _ => headers.get(header).map(|line| Bytes::copy_from_slice(line.as_bytes())),
        };
        if let Some(line) = line {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            values.extend(reading.values(line).into_iter().map(|value| (key, value)));
        }
    }
    values
}

/// The values of parameters.
pub(crate) fn query_conditions(query: &S3Query) -> Vec<ConditionValue> {
    let text = |name: &str| query.get(name).map(str::to_owned);
    let max_keys = query.get("max-keys").map(|text| {
        let number = listing_document::number("max-keys", Some(text), u32::try_from(S3_PAGE_MAX).unwrap_or(u32::MAX));
        number.map_or_else(|_| text.to_owned(), |number| number.to_string())
    });
    let known = [
        ("s3:prefix", text("prefix")),
        ("s3:delimiter", text("delimiter")),
        ("s3:max-keys", max_keys),
        ("s3:VersionId", text("versionId")),
    ];
    known.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// The tags in the header of a request; none if its operation would refuse them.
pub(crate) fn request_tags(headers: &HeaderMap) -> Vec<Tag> {
    object_metadata::tags(headers).ok().flatten().unwrap_or_default()
}

impl HeaderReading {
    /// All spellings in which a policy may name the value; each stands for the whole of it.
    fn values(self, line: String) -> Vec<String> {
        match self {
            Self::Text => vec![line],
            Self::Directive => vec![if line.is_empty() { "COPY".to_owned() } else { line }],
            Self::CopySource => match CopySource::parse(&line) {
                Ok(CopySource { bucket, key, .. }) => {
                    let source = format!("{bucket}/{}", String::from_utf8_lossy(&key));
                    vec![format!("/{source}"), source]
                }
                Err(_) => vec![line],
            },
            Self::Grants => match parse_grantees(&line) {
                Ok(grantees) => ["\"", ""].map(|quote| grants_text(&grantees, quote)).into(),
                Err(_) => vec![line],
            },
        }
    }
}

/// Grantees in the form of a header, with or without quotes around their names.
fn grants_text(grantees: &[RawGrantee], quote: &str) -> String {
    let text = |grantee: &RawGrantee| {
        let (kind, name) = match grantee {
            RawGrantee::Id(id) => ("id", id),
            RawGrantee::Email(address) => ("emailAddress", address),
            RawGrantee::Uri(uri) => ("uri", uri),
        };
        format!("{kind}={quote}{name}{quote}")
    };
    grantees.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn entity_tags_are_read_with_and_without_quotes() {
        let given =
            headers(&[("if-match", "\"a\", b ,W/\"c\""), ("if-match", "*"), ("if-none-match", "&quot;d-2&quot;")]);
        let conditions = read_conditions(&given);
        let tags = |tags: &[&str]| Some(tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
        assert_eq!(conditions.if_match, tags(&["a", "b", "c", "*"]));
        assert_eq!(conditions.if_none_match, tags(&["d-2"]));
        assert_eq!(write_conditions(&given).if_none_match, tags(&["d-2"]));
        assert_eq!(
            source_conditions(&given),
            ReadConditions { always_precondition: true, ..ReadConditions::default() }
        );
        assert_eq!(etags(&headers(&[("if-match", "")]), IF_MATCH), Some(vec![]));
    }

    #[test]
    fn a_range_condition_is_a_tag_or_a_date() {
        let condition = |value: &str| read_conditions(&headers(&[("if-range", value)])).if_range;
        assert_eq!(condition("\"a\""), Some(IfRange::Tag("a".into())));
        assert_eq!(condition("a"), Some(IfRange::Tag("a".into())));
        assert_eq!(condition("Thu, 01 Jan 1970 00:00:07 GMT"), Some(IfRange::Modified(Timestamp(7_000_000))));
        assert_eq!((condition("W/\"a\""), condition("")), (Some(IfRange::Nothing), Some(IfRange::Nothing)));
        assert_eq!(read_conditions(&HeaderMap::new()).if_range, None);
        assert_eq!(source_conditions(&headers(&[("if-range", "a")])).if_range, None);
    }

    #[test]
    fn unreadable_dates_are_ignored() {
        let given = headers(&[("if-modified-since", "Thu, 01 Jan 1970 00:00:07 GMT"), ("if-unmodified-since", "soon")]);
        let conditions = read_conditions(&given);
        assert_eq!((conditions.modified_since, conditions.unmodified_since), (Some(Timestamp(7_000_000)), None));
    }

    proptest! {
        #[test]
        fn any_header_is_read(value: Vec<u8>) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let mut headers = HeaderMap::new();
            for name in ["if-match", "if-none-match", "if-modified-since", "if-range"] {
                headers.insert(name, value.clone());
            }
            let _ = (read_conditions(&headers), write_conditions(&headers));
        }
    }
}

#[cfg(test)]
mod condition_values_tests {
    use super::super::copy_source::COPY_SOURCE;
    use super::*;

    fn header_values(name: &'static str, value: &'static str) -> Vec<String> {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        header_conditions(&headers, Timestamp::ZERO).into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn a_source_that_is_spelled_in_another_way_once_passed_a_denial() {
        for spelled in ["/b/secret/x", "b/secret/x", "/b/%73ecret/x", "%2Fb%2Fsecret%2Fx", "b/secret/x?versionId=1"] {
            assert_eq!(header_values(COPY_SOURCE, spelled), ["/b/secret/x", "b/secret/x"], "{spelled}");
        }
        assert_eq!(header_values(COPY_SOURCE, "nonsense"), ["nonsense"]);
    }

    #[test]
    fn a_number_that_is_spelled_in_another_way_once_passed_a_denial() {
        let max_keys =
            |query: &str| query_conditions(&S3Query::parse(Some(query))).into_iter().map(|(_, value)| value).next();
        for spelled in ["max-keys=1000", "max-keys=%2B1000", "max-keys=0000000000000000000001000", "max-keys="] {
            assert_eq!(max_keys(spelled).as_deref(), Some("1000"), "{spelled}");
        }
        assert_eq!(max_keys("max-keys=x").as_deref(), Some("x"));
        assert_eq!(max_keys("prefix=max-keys").as_deref(), Some("max-keys"));
        assert_eq!(max_keys("marker=m"), None);
    }

    #[test]
    fn grantees_are_the_same_with_any_white_space_and_quotes() {
        for spelled in ["id=a,uri=\"u\"", "id=\"a\" ,  uri=u"] {
            let values = header_values("x-amz-grant-read", spelled);
            assert_eq!(values, ["id=\"a\", uri=\"u\"", "id=a, uri=u"], "{spelled}");
        }
    }

    #[test]
    fn an_empty_directive_is_the_default() {
        assert_eq!(header_values("x-amz-metadata-directive", ""), ["COPY"]);
        assert_eq!(header_values("x-amz-storage-class", " STANDARD "), ["STANDARD"]);
    }
}
