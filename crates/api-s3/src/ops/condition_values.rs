//! The values of condition keys in a request, made by the parsers that the operations use: a policy tests what a request means,
//! not how it is spelled.
//!
//! A value that its operation will refuse is handed over as it stands: the request fails either way.

use bytes::Bytes;
use hyper::HeaderMap;
use larder_rows::limits::S3_PAGE_MAX;
use larder_s3::rules::Tag;
use larder_s3::rules::acl::{RawGrantee, parse_grantees};

use super::copy_source::CopySource;
use super::{object_metadata, params};
use crate::call::joined;
use crate::target::S3Query;

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

/// The values of headers.
pub(crate) fn of_headers(headers: &HeaderMap) -> Vec<ConditionValue> {
    let mut found = Vec::new();
    for (key, reading) in HEADER_KEYS {
        let header = &key["s3:".len()..];
        let line = match reading {
            HeaderReading::Grants => joined(headers, header),
            // Of several lines the operations read the first.
            _ => headers.get(header).map(|line| Bytes::copy_from_slice(line.as_bytes())),
        };
        if let Some(line) = line {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            found.extend(reading.values(line).into_iter().map(|value| (key, value)));
        }
    }
    found
}

/// The values of parameters.
pub(crate) fn of_query(query: &S3Query) -> Vec<ConditionValue> {
    let text = |name: &str| query.get(name).map(str::to_owned);
    let max_keys = query.get("max-keys").map(|text| {
        let number = params::number("max-keys", Some(text), u32::try_from(S3_PAGE_MAX).unwrap_or(u32::MAX));
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
    use super::super::copy_source::COPY_SOURCE;
    use super::*;

    fn of_header(name: &'static str, value: &'static str) -> Vec<String> {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        of_headers(&headers).into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn a_source_that_is_spelled_in_another_way_once_passed_a_denial() {
        for spelled in ["/b/secret/x", "b/secret/x", "/b/%73ecret/x", "%2Fb%2Fsecret%2Fx", "b/secret/x?versionId=1"] {
            assert_eq!(of_header(COPY_SOURCE, spelled), ["/b/secret/x", "b/secret/x"], "{spelled}");
        }
        assert_eq!(of_header(COPY_SOURCE, "nonsense"), ["nonsense"]);
    }

    #[test]
    fn a_number_that_is_spelled_in_another_way_once_passed_a_denial() {
        let max_keys = |query: &str| of_query(&S3Query::parse(Some(query))).into_iter().map(|(_, value)| value).next();
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
            let values = of_header("x-amz-grant-read", spelled);
            assert_eq!(values, ["id=\"a\", uri=\"u\"", "id=a, uri=u"], "{spelled}");
        }
    }

    #[test]
    fn an_empty_directive_is_the_default() {
        assert_eq!(of_header("x-amz-metadata-directive", ""), ["COPY"]);
        assert_eq!(of_header("x-amz-storage-class", " STANDARD "), ["STANDARD"]);
    }
}
