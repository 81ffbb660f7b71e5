//! Decodes conditional headers; the model evaluates them (Riak KV HTTP reference §0.1).

use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};

use larder_gateway::Error;
use larder_model::causality::{Conditions, ContextError, EtagMatcher};

/// The conditions of a request; an invalid date counts as absent.
#[must_use]
pub(super) fn conditions(headers: &HeaderMap) -> Conditions {
    Conditions {
        if_match: matcher(headers, &IF_MATCH),
        if_unmodified_since: since(headers, &IF_UNMODIFIED_SINCE),
        if_none_match: matcher(headers, &IF_NONE_MATCH),
        if_modified_since: since(headers, &IF_MODIFIED_SINCE),
        if_not_modified: None,
    }
}

/// A context in a header.
///
/// # Errors
/// The header is not base64.
pub(super) fn context(headers: &HeaderMap, name: &str) -> Result<Option<Bytes>, Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match STANDARD.decode(value.as_bytes()) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(_) => Err(ContextError::Foreign.into()),
    }
}

fn matcher(headers: &HeaderMap, name: &HeaderName) -> Option<EtagMatcher> {
    if !headers.contains_key(name) {
        return None;
    }
    let mut tags = Vec::new();
    for value in headers.get_all(name) {
        let text = String::from_utf8_lossy(value.as_bytes());
        if text.trim() == "*" {
            return Some(EtagMatcher::Any);
        }
        tags.extend(text.split(',').map(tag).map(str::to_owned));
    }
    Some(EtagMatcher::Tags(tags))
}

/// An entity tag without its quotes and without `W/`.
pub(super) fn tag(text: &str) -> &str {
    let text = text.trim();
    let text = text.strip_prefix("W/").unwrap_or(text);
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn since(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    fn read(name: HeaderName, value: &[u8]) -> Conditions {
        conditions(&HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())]))
    }

    #[test]
    fn entity_tags_lose_their_quotes() {
        let tags = |tags: &[&str]| Some(EtagMatcher::Tags(tags.iter().map(|&tag| tag.to_owned()).collect()));
        assert_eq!(read(IF_MATCH, b"\"a\", W/\"b\",c").if_match, tags(&["a", "b", "c"]));
        assert_eq!(read(IF_NONE_MATCH, b" * ").if_none_match, Some(EtagMatcher::Any));
        assert!(conditions(&HeaderMap::new()).is_empty());
    }

    #[test]
    fn dates_decode_to_seconds() {
        let date = b"Thu, 01 Jan 1970 00:01:40 GMT";
        assert_eq!(read(IF_MODIFIED_SINCE, date).if_modified_since, Some(100));
        assert_eq!(read(IF_UNMODIFIED_SINCE, date).if_unmodified_since, Some(100));
        assert_eq!(read(IF_MODIFIED_SINCE, b"garbage").if_modified_since, None);
    }

    #[test]
    fn contexts_are_base64() {
        let headers = |value| HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_static(value))]);
        assert_eq!(context(&headers("AQI="), "if-match").unwrap(), Some(Bytes::from_static(&[1, 2])));
        assert!(context(&headers("!!!"), "if-match").is_err());
        assert_eq!(context(&headers(""), "x-none").unwrap(), None);
    }

    proptest! {
        #[test]
        fn arbitrary_conditions_decode_without_a_panic(value in proptest::collection::vec(b' '..=b'~', 0..40)) {
            for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
                let _ = read(name, &value);
            }
        }
    }
}
