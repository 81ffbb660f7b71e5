//! Conditions of requests: the four HTTP conditions, those of copy sources, and those of writes.

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use larder_s3::get::{IfRange, ReadConditions};
use larder_s3::put::WriteConditions;

use super::params;
use crate::dates;

/// The conditions of a read.
pub(crate) fn of_read(headers: &HeaderMap) -> ReadConditions {
    let four = conditions(headers, [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE]);
    ReadConditions { if_range: if_range(headers), ..four }
}

/// The condition of a range. A weak tag never matches.
fn if_range(headers: &HeaderMap) -> Option<IfRange> {
    if !headers.contains_key(IF_RANGE) {
        return None;
    }
    let text = params::header(headers, IF_RANGE).unwrap_or_default();
    // A date comes without quotes, so it is tried before a tag.
    Some(match dates::parse_http(text) {
        Some(when) => IfRange::Modified(when),
        None if text.is_empty() || text.starts_with("W/") => IfRange::Nothing,
        None => IfRange::Tag(unquoted(text).to_owned()),
    })
}

/// The conditions of a copy source; any that fails is a failed precondition.
pub(crate) fn of_source(headers: &HeaderMap) -> ReadConditions {
    let names = [
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-none-match",
        "x-amz-copy-source-if-modified-since",
        "x-amz-copy-source-if-unmodified-since",
    ];
    ReadConditions { always_precondition: true, ..conditions(headers, names.map(HeaderName::from_static)) }
}

/// The conditions that a write checks against the current version at commit.
pub(crate) fn of_write(headers: &HeaderMap) -> WriteConditions {
    WriteConditions { if_match: etags(headers, IF_MATCH), if_none_match: etags(headers, IF_NONE_MATCH) }
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
    let date = |name| params::header(headers, name).and_then(dates::parse_http);
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

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use larder_rows::Timestamp;
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
        let found = of_read(&given);
        let tags = |tags: &[&str]| Some(tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
        assert_eq!(found.if_match, tags(&["a", "b", "c", "*"]));
        assert_eq!(found.if_none_match, tags(&["d-2"]));
        assert_eq!(of_write(&given).if_none_match, tags(&["d-2"]));
        assert_eq!(of_source(&given), ReadConditions { always_precondition: true, ..ReadConditions::default() });
        assert_eq!(etags(&headers(&[("if-match", "")]), IF_MATCH), Some(vec![]));
    }

    #[test]
    fn a_range_condition_is_a_tag_or_a_date() {
        let found = |value: &str| of_read(&headers(&[("if-range", value)])).if_range;
        assert_eq!(found("\"a\""), Some(IfRange::Tag("a".into())));
        assert_eq!(found("a"), Some(IfRange::Tag("a".into())));
        assert_eq!(found("Thu, 01 Jan 1970 00:00:07 GMT"), Some(IfRange::Modified(Timestamp(7_000_000))));
        assert_eq!((found("W/\"a\""), found("")), (Some(IfRange::Nothing), Some(IfRange::Nothing)));
        assert_eq!(of_read(&HeaderMap::new()).if_range, None);
        assert_eq!(of_source(&headers(&[("if-range", "a")])).if_range, None);
    }

    #[test]
    fn unreadable_dates_are_ignored() {
        let given = headers(&[("if-modified-since", "Thu, 01 Jan 1970 00:00:07 GMT"), ("if-unmodified-since", "soon")]);
        let found = of_read(&given);
        assert_eq!((found.modified_since, found.unmodified_since), (Some(Timestamp(7_000_000)), None));
    }

    proptest! {
        #[test]
        fn any_header_is_read(value: Vec<u8>) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let mut headers = HeaderMap::new();
            for name in ["if-match", "if-none-match", "if-modified-since", "if-range"] {
                headers.insert(name, value.clone());
            }
            let _ = (of_read(&headers), of_write(&headers));
        }
    }
}
