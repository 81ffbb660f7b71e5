//! Conditions of requests: the four of HTTP, the same about the source of a copy, and those of writes.

use hyper::HeaderMap;
use larder_gateway::objects::get::{IfRange, ReadConditions};
use larder_gateway::objects::put::WriteConditions;

use super::{dates, params};

/// What must hold of an object that is read.
pub(crate) fn of_read(headers: &HeaderMap) -> ReadConditions {
    let four = conditions(headers, ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"]);
    ReadConditions { if_range: if_range(headers), ..four }
}

/// The object that a range is of. A weak tag is not exact.
fn if_range(headers: &HeaderMap) -> Option<IfRange> {
    if !headers.contains_key("if-range") {
        return None;
    }
    let text = params::header(headers, "if-range").unwrap_or_default();
    Some(match dates::http(text) {
        Some(when) => IfRange::Modified(when),
        None if text.is_empty() || text.starts_with("W/") => IfRange::Nothing,
        None => IfRange::Tag(unquoted(text).to_owned()),
    })
}

/// What must hold of the source of a copy: whichever does not is a failed precondition.
pub(crate) fn of_source(headers: &HeaderMap) -> ReadConditions {
    let names = [
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-none-match",
        "x-amz-copy-source-if-modified-since",
        "x-amz-copy-source-if-unmodified-since",
    ];
    ReadConditions { always_precondition: true, ..conditions(headers, names) }
}

/// What must hold of the current version when a write is committed.
pub(crate) fn of_write(headers: &HeaderMap) -> WriteConditions {
    WriteConditions { if_match: etags(headers, "if-match"), if_none_match: etags(headers, "if-none-match") }
}

/// The entity tags of a header, each without quotes and without the mark of weak ones; `*` stays. `None` without the
/// header.
pub(crate) fn etags(headers: &HeaderMap, name: &str) -> Option<Vec<String>> {
    let mut tags = Vec::new();
    for value in headers.get_all(name) {
        list(&String::from_utf8_lossy(value.as_bytes()), &mut tags);
    }
    headers.contains_key(name).then_some(tags)
}

/// An entity tag without its quotes, as it came otherwise.
pub(crate) fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: &str| text.strip_prefix(quote)?.strip_suffix(quote);
    inner("\"").or_else(|| inner("&quot;")).unwrap_or(text)
}

fn conditions(headers: &HeaderMap, names: [&str; 4]) -> ReadConditions {
    let [if_match, if_none_match, modified, unmodified] = names;
    let date = |name| params::header(headers, name).and_then(dates::http);
    ReadConditions {
        if_match: etags(headers, if_match),
        if_none_match: etags(headers, if_none_match),
        modified_since: date(modified),
        unmodified_since: date(unmodified),
        always_precondition: false,
        if_range: None,
    }
}

/// Splits at commas: our tags have none, so a quoted tag of somebody else that has one fits nothing in any case.
fn list(text: &str, tags: &mut Vec<String>) {
    for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
        tags.push(unquoted(tag.strip_prefix("W/").unwrap_or(tag)).to_owned());
    }
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
    fn tags_in_every_spelling() {
        let given =
            headers(&[("if-match", "\"a\", b ,W/\"c\""), ("if-match", "*"), ("if-none-match", "&quot;d-2&quot;")]);
        let found = of_read(&given);
        let tags = |tags: &[&str]| Some(tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
        assert_eq!(found.if_match, tags(&["a", "b", "c", "*"]));
        assert_eq!(found.if_none_match, tags(&["d-2"]));
        assert_eq!(of_write(&given).if_none_match, tags(&["d-2"]));
        assert_eq!(of_source(&given), ReadConditions { always_precondition: true, ..ReadConditions::default() });
        assert_eq!(etags(&headers(&[("if-match", "")]), "if-match"), Some(vec![]));
    }

    #[test]
    fn what_a_range_is_of() {
        let found = |value: &str| of_read(&headers(&[("if-range", value)])).if_range;
        assert_eq!(found("\"a\""), Some(IfRange::Tag("a".into())));
        assert_eq!(found("a"), Some(IfRange::Tag("a".into())));
        assert_eq!(found("Thu, 01 Jan 1970 00:00:07 GMT"), Some(IfRange::Modified(7_000_000)));
        assert_eq!((found("W/\"a\""), found("")), (Some(IfRange::Nothing), Some(IfRange::Nothing)));
        assert_eq!(of_read(&HeaderMap::new()).if_range, None);
        assert_eq!(of_source(&headers(&[("if-range", "a")])).if_range, None);
    }

    #[test]
    fn dates_nobody_can_read_are_not_there() {
        let given = headers(&[("if-modified-since", "Thu, 01 Jan 1970 00:00:07 GMT"), ("if-unmodified-since", "soon")]);
        let found = of_read(&given);
        assert_eq!((found.modified_since, found.unmodified_since), (Some(7_000_000), None));
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
