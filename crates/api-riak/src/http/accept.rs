//! Content negotiation with the rules of Riak's webmachine: it chooses the offer that the client prefers.

use hyper::StatusCode;
use hyper::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, HeaderMap, HeaderName};

use super::errors::RiakFault;

/// An item of an `Accept*` header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AcceptItem {
    /// Its name without parameters.
    name: String,
    /// Its parameters without the weight, sorted.
    params: Vec<String>,
    /// Its weight (`q`), in thousandths.
    weight: u16,
}

/// Whether the client takes every media type and prefers none.
#[must_use]
pub(super) fn takes_any(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_none_or(|value| value == "*/*")
}

/// The index of the offer that the `Accept` header prefers; the first offer without the header.
#[must_use]
pub(super) fn media(headers: &HeaderMap, offered: &[&str]) -> Option<usize> {
    if takes_any(headers) {
        return Some(0);
    }
    let items = accepted_items(headers, &ACCEPT);
    let offered: Vec<AcceptItem> = offered.iter().filter_map(|media| parse_item(media)).collect();
    // A weight of zero refuses a type even where a range accepts it.
    let refused = |media: &AcceptItem| items.iter().any(|item| item.weight == 0 && is_same(&item.name, &media.name));
    let accepted = items.iter().filter(|item| item.weight > 0);
    accepted.flat_map(|item| offered.iter().position(|media| fits(item, media) && !refused(media))).next()
}

/// As [`media`], for resources that negotiate nothing else.
///
/// # Errors
/// 406: the client takes no offer.
pub(super) fn require(headers: &HeaderMap, offered: &[&str]) -> Result<usize, RiakFault> {
    media(headers, offered).ok_or_else(|| RiakFault::page(StatusCode::NOT_ACCEPTABLE))
}

/// Whether the client accepts a value in this charset; a value without a charset always passes.
#[must_use]
pub(super) fn takes_charset(headers: &HeaderMap, charset: Option<&[u8]>) -> bool {
    let Some(charset) = charset.filter(|_| headers.contains_key(ACCEPT_CHARSET)) else { return true };
    let charset = String::from_utf8_lossy(charset);
    takes(headers, &ACCEPT_CHARSET, charset.trim_matches('"'), "iso-8859-1")
}

/// Whether the client accepts a value in this encoding; `None` is `identity`.
#[must_use]
pub(super) fn takes_encoding(headers: &HeaderMap, encoding: Option<&[u8]>) -> bool {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return true;
    }
    let encoding = String::from_utf8_lossy(encoding.unwrap_or(b"identity"));
    takes(headers, &ACCEPT_ENCODING, &encoding, "identity")
}

/// Whether the header names `value`, allows it by `*`, or need not name it because it is `default`.
fn takes(headers: &HeaderMap, header: &HeaderName, value: &str, default: &str) -> bool {
    let items = accepted_items(headers, header);
    let weight = |name: &str| items.iter().find(|item| item.name.eq_ignore_ascii_case(name)).map(|item| item.weight);
    match (weight(value), weight("*")) {
        (Some(weight), _) => weight > 0,
        (None, Some(weight)) => weight > 0,
        (None, None) => value.eq_ignore_ascii_case(default),
    }
}

/// Whether a media range such as `text/*` matches a media type. As in webmachine, `*` matches any type, and the parameters of
/// the range must equal those of the type.
fn fits(range: &AcceptItem, media: &AcceptItem) -> bool {
    let name = match range.name.strip_suffix("/*") {
        Some("*") if range.params.is_empty() => return true,
        Some("*") => true,
        Some(range_group) => media.name.split_once('/').is_some_and(|(group, _)| is_same(group, range_group)),
        None => range.name == "*" || is_same(&range.name, &media.name),
    };
    name && range.params == media.params
}

fn is_same(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// The items of a header by falling weight; equal weights keep their order.
fn accepted_items(headers: &HeaderMap, header: &HeaderName) -> Vec<AcceptItem> {
    let mut items = Vec::new();
    for value in headers.get_all(header) {
        let text = String::from_utf8_lossy(value.as_bytes());
        items.extend(text.split(',').filter_map(parse_item));
    }
    items.sort_by_key(|item| std::cmp::Reverse(item.weight));
    items
}

fn parse_item(item: &str) -> Option<AcceptItem> {
    let mut parts = item.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let (mut weight, mut params) = (1000, Vec::new());
    for part in parts.filter(|part| !part.is_empty()) {
        match part.split_once('=').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim())) {
            Some((name, value)) if name == "q" => weight = thousandths(value),
            Some((name, value)) => params.push(format!("{name}={}", value.trim_matches('"'))),
            None => params.push(part.to_ascii_lowercase()),
        }
    }
    params.sort();
    Some(AcceptItem { name, params, weight })
}

/// A weight; an unreadable one counts as 1.
fn thousandths(text: &str) -> u16 {
    let weight: f32 = text.trim().parse().unwrap_or(1.0);
    // `nan` and `inf` parse as weights, too.
    let weight = if weight.is_finite() { weight.clamp(0.0, 1.0) } else { 1.0 };
    (weight * 1000.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    fn headers(name: &HeaderName, value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(name.clone(), HeaderValue::from_bytes(value).unwrap())])
    }

    #[track_caller]
    fn check(accept: &str, chosen: Option<&str>) {
        let offered = ["text/plain", "multipart/mixed"];
        let choice = media(&headers(&ACCEPT, accept.as_bytes()), &offered);
        assert_eq!(choice.map(|index| offered[index]), chosen, "{accept}");
    }

    #[test]
    fn the_preferred_offer_is_chosen() {
        check("*/*", Some("text/plain"));
        check("*", Some("text/plain"));
        check("", None);
        check("multipart/mixed", Some("multipart/mixed"));
        check("multipart/*", Some("multipart/mixed"));
        check("multipart/mixed, application/json, */*;q=0.5", Some("multipart/mixed"));
        check("multipart/mixed;q=0.1, text/plain", Some("text/plain"));
        check("text/plain;q=0, */*", Some("multipart/mixed"));
        check("text/html", None);
        check("garbage", None);
        check("TEXT/PLAIN; Q=0.5", Some("text/plain"));
        check("text/plain; charset=utf-8", None);
        check("*/*; a=b", None);
        assert_eq!(media(&HeaderMap::new(), &["a/b"]), Some(0));
        let stored = ["text/css; charset=utf-8; a=\"b\""];
        let takes = |accept: &str| media(&headers(&ACCEPT, accept.as_bytes()), &stored).is_some();
        assert!(
            takes("text/css;a=b;CHARSET=utf-8;q=0.1") && takes("*/*;q=0.1") && !takes("text/css") && !takes("text/*")
        );
    }

    #[test]
    fn encodings_and_charsets_are_accepted_by_their_headers() {
        let encoding = |accept: &str, stored: Option<&str>| {
            takes_encoding(&headers(&ACCEPT_ENCODING, accept.as_bytes()), stored.map(str::as_bytes))
        };
        assert!(!encoding("identity", Some("gzip")));
        assert!(encoding("gzip", Some("gzip")) && encoding("*", Some("gzip")));
        assert!(encoding("gzip", None) && encoding("", None));
        assert!(!encoding("gzip, identity;q=0", Some("identity")));
        let charset = |accept: &str, stored: &str| {
            takes_charset(&headers(&ACCEPT_CHARSET, accept.as_bytes()), Some(stored.as_bytes()))
        };
        assert!(!charset("iso-8859-1", "utf-8"));
        assert!(charset("UTF-8", "utf-8") && charset("utf-8", "\"utf-8\"") && charset("*", "x"));
        assert!(takes_charset(&headers(&ACCEPT_CHARSET, b"x"), None));
    }

    proptest! {
        #[test]
        fn arbitrary_headers_parse_without_a_panic(value in proptest::collection::vec(b' '..=b'~', 0..40), stored: Vec<u8>) {
            let _ = media(&headers(&ACCEPT, &value), &["text/plain", "multipart/mixed"]);
            let _ = takes_charset(&headers(&ACCEPT_CHARSET, &value), Some(&stored));
            let _ = takes_encoding(&headers(&ACCEPT_ENCODING, &value), Some(&stored));
        }
    }
}
