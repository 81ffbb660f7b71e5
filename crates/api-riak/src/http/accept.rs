//! Content negotiation as Riak's server does it: of what is offered, the one the client wants most.

use hyper::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, HeaderMap, HeaderName};

/// An item of an `Accept*` header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    /// Its name without parameters.
    name: String,
    /// Its parameters but the weight, sorted.
    params: Vec<String>,
    /// How much it is wanted, in thousandths.
    weight: u16,
}

/// The one of `offered` that the `Accept` header wants most; the first one without the header.
#[must_use]
pub(super) fn media(headers: &HeaderMap, offered: &[&str]) -> Option<usize> {
    let wishes = match headers.get(ACCEPT).map(|value| value.as_bytes()) {
        None | Some(b"*/*") => return Some(0),
        Some(_) => wishes(headers, &ACCEPT),
    };
    let offered: Vec<Wish> = offered.iter().filter_map(|media| wish(media)).collect();
    let refused = |media: &Wish| wishes.iter().any(|wish| wish.weight == 0 && is_same(&wish.name, &media.name));
    let wanted = wishes.iter().filter(|wish| wish.weight > 0);
    wanted.flat_map(|wish| offered.iter().position(|media| fits(wish, media) && !refused(media))).next()
}

/// Whether a value in this charset is wanted; one without a charset always is.
#[must_use]
pub(super) fn takes_charset(headers: &HeaderMap, charset: Option<&[u8]>) -> bool {
    let Some(charset) = charset.filter(|_| headers.contains_key(ACCEPT_CHARSET)) else { return true };
    let charset = String::from_utf8_lossy(charset);
    takes(headers, &ACCEPT_CHARSET, charset.trim_matches('"'), "iso-8859-1")
}

/// Whether a value in this encoding is wanted; `None` is as it is.
#[must_use]
pub(super) fn takes_encoding(headers: &HeaderMap, encoding: Option<&[u8]>) -> bool {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return true;
    }
    let encoding = String::from_utf8_lossy(encoding.unwrap_or(b"identity"));
    takes(headers, &ACCEPT_ENCODING, &encoding, "identity")
}

/// Whether `one` is named, or let pass by `*`, or is the `default` that need not be named.
fn takes(headers: &HeaderMap, header: &HeaderName, one: &str, default: &str) -> bool {
    let wishes = wishes(headers, header);
    let weight = |name: &str| wishes.iter().find(|wish| wish.name.eq_ignore_ascii_case(name)).map(|wish| wish.weight);
    match (weight(one), weight("*")) {
        (Some(weight), _) => weight > 0,
        (None, Some(weight)) => weight > 0,
        (None, None) => one.eq_ignore_ascii_case(default),
    }
}

/// Whether a media range such as `text/*` takes in a media type. As webmachine compares them: `*` is any, and the parameters
/// of a range are those of the type, no more and no fewer.
fn fits(range: &Wish, media: &Wish) -> bool {
    let name = match range.name.strip_suffix("/*") {
        Some("*") if range.params.is_empty() => return true,
        Some("*") => true,
        Some(wanted) => media.name.split_once('/').is_some_and(|(group, _)| is_same(group, wanted)),
        None => range.name == "*" || is_same(&range.name, &media.name),
    };
    name && range.params == media.params
}

fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The items of a header, the most wanted first, equals in their order.
fn wishes(headers: &HeaderMap, header: &HeaderName) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for value in headers.get_all(header) {
        let text = String::from_utf8_lossy(value.as_bytes());
        wishes.extend(text.split(',').filter_map(wish));
    }
    wishes.sort_by_key(|wish| std::cmp::Reverse(wish.weight));
    wishes
}

fn wish(item: &str) -> Option<Wish> {
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
    Some(Wish { name, params, weight })
}

/// A weight; one that cannot be read counts as full.
fn thousandths(text: &str) -> u16 {
    let weight: f32 = text.trim().parse().unwrap_or(1.0);
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
        let found = media(&headers(&ACCEPT, accept.as_bytes()), &offered);
        assert_eq!(found.map(|index| offered[index]), chosen, "{accept}");
    }

    #[test]
    fn the_most_wanted_is_chosen() {
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
    fn encodings_and_charsets_are_taken_or_not() {
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
        fn any_header_is_read(value in proptest::collection::vec(b' '..=b'~', 0..40), stored: Vec<u8>) {
            let _ = media(&headers(&ACCEPT, &value), &["text/plain", "multipart/mixed"]);
            let _ = takes_charset(&headers(&ACCEPT_CHARSET, &value), Some(&stored));
            let _ = takes_encoding(&headers(&ACCEPT_ENCODING, &value), Some(&stored));
        }
    }
}
