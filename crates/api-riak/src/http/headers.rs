//! Decoders of a request's headers: its conditions (Riak KV HTTP reference §0.1), its context, and the description of a put's
//! value; and the headers of an answer with a value. The model evaluates the conditions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
};
use larder_core::Error;
use larder_kv::rules::causality::{Conditions, ContextError, EtagMatcher};
use larder_kv::rules::terms::TermError;
use larder_net::joined;
use larder_rows::Timestamp;
use larder_rows::content::{KvContent, Term};

use super::errors::RiakFault;

/// A condition on the context of an object.
pub(super) const IF_NOT_MODIFIED: HeaderName = HeaderName::from_static("x-riak-if-not-modified");
/// The id of an update of a data type that is carried out once. Riak has no such header.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-larder-request-id");
pub(super) const META: &str = "x-riak-meta-";
pub(super) const INDEX: &str = "x-riak-index-";
/// The media type of a value without one.
pub(super) const OCTETS: &str = "application/octet-stream";

/// The conditions of a request; an invalid date counts as absent, as it may in a read. [`super::write_headers`] refuses it in a
/// write.
#[must_use]
pub(super) fn conditions(headers: &HeaderMap) -> Conditions {
    Conditions {
        if_match: matcher(headers, &IF_MATCH),
        if_unmodified_since: headers.get(IF_UNMODIFIED_SINCE).and_then(since),
        if_none_match: matcher(headers, &IF_NONE_MATCH),
        if_modified_since: headers.get(IF_MODIFIED_SINCE).and_then(since),
        if_not_modified: None,
    }
}

/// A context in a header.
///
/// # Errors
/// The header is not base64.
pub(super) fn context(headers: &HeaderMap, name: &str) -> Result<Option<Bytes>, Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    // A context is opaque to clients; one that is no base64 was changed on the way or is another server's.
    match STANDARD.decode(value.as_bytes()) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(_) => Err(ContextError::Foreign.into()),
    }
}

/// The context of a condition on it.
///
/// # Errors
/// The header is not base64, or empty: messages may state no context, over HTTP it is a damaged one.
pub(super) fn if_not_modified(headers: &HeaderMap) -> Result<Option<Bytes>, Error> {
    match context(headers, IF_NOT_MODIFIED.as_str())? {
        Some(bytes) if bytes.is_empty() => Err(ContextError::Foreign.into()),
        context => Ok(context),
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

/// A date in seconds since 1970.
pub(super) fn since(date: &HeaderValue) -> Option<u64> {
    let time = httpdate::parse_http_date(date.to_str().ok()?).ok()?;
    // A date before 1970 is older than every object.
    Some(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// The last second of the year 9999: later ones have no such form.
const LAST_SECOND: u64 = 253_402_300_799;

/// A time in HTTP's form.
#[must_use]
pub(super) fn http_date(at: Timestamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at.as_secs().min(LAST_SECOND)))
}

/// Media type and charset of a request.
///
/// # Errors
/// 400: there is no `Content-Type`.
pub(super) fn content_type(headers: &HeaderMap) -> Result<(Bytes, Option<Bytes>), RiakFault> {
    let header = headers.get(CONTENT_TYPE).ok_or_else(|| RiakFault::bad("Missing Content-Type request header"))?;
    let mut words = header.as_bytes().split(|byte| matches!(byte, b';' | b' ')).filter(|word| !word.is_empty());
    let media = words.next().unwrap_or_default();
    let charset = words.find_map(|word| word.strip_prefix(b"charset="));
    Ok((Bytes::copy_from_slice(media), charset.map(Bytes::copy_from_slice)))
}

/// Checks the form of a media type: two words and a slash.
///
/// # Errors
/// 415 with Riak's text.
pub(super) fn check_media(media: &[u8]) -> Result<(), RiakFault> {
    if media.iter().filter(|byte| **byte == b'/').count() == 1 {
        return Ok(());
    }
    let media = String::from_utf8_lossy(media);
    let text = format!("\"{media}\" is not a valid media type for the Content-type header.\n");
    Err(RiakFault::status_text(hyper::StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

/// User metadata. Names are capitalised word by word, as in Riak; repeated headers are joined.
#[must_use]
pub(super) fn meta(headers: &HeaderMap) -> Vec<(Bytes, Bytes)> {
    let names = headers.keys().filter(|name| name.as_str().starts_with(META));
    names.filter_map(|name| Some((capitalised(name.as_str()).into(), joined(headers, name.as_str(), b", ")?))).collect()
}

fn capitalised(name: &str) -> String {
    let mut start = true;
    let word = |char: char| {
        let upper = std::mem::replace(&mut start, char == '-');
        if upper { char.to_ascii_uppercase() } else { char }
    };
    name.chars().map(word).collect()
}

/// Secondary-index terms, each once, in the order of Riak's: fields, then values. A comma and a blank separate several values in one
/// header.
///
/// # Errors
/// 400 with a line for each invalid field or value.
pub(super) fn terms(headers: &HeaderMap) -> Result<Vec<Term>, RiakFault> {
    let mut terms = Vec::new();
    let mut bad = Vec::new();
    for name in headers.keys() {
        let Some(field) = name.as_str().strip_prefix(INDEX) else { continue };
        let value = joined(headers, name.as_str(), b", ").unwrap_or_default();
        read_terms(field, &value, &mut terms, &mut bad);
    }
    terms.sort_by(larder_kv::rules::terms::order);
    terms.dedup();
    if bad.is_empty() { Ok(terms) } else { Err(RiakFault::bad(bad)) }
}

fn read_terms(field: &str, value: &Bytes, terms: &mut Vec<Term>, bad: &mut Vec<u8>) {
    let name = Bytes::copy_from_slice(field.as_bytes());
    for item in values(value) {
        match larder_kv::rules::terms::parse(&name, &item) {
            Ok(term) => terms.push(term),
            Err(TermError::UnknownFieldType(_)) => {
                bad.extend_from_slice(format!("Unknown field type for field: '{field}'.\n").as_bytes());
                return;
            }
            Err(TermError::Unparsable { .. }) => {
                bad.extend_from_slice(format!("Could not parse field '{field}', value '").as_bytes());
                bad.extend_from_slice(&item);
                bad.extend_from_slice(b"'.\n");
            }
        }
    }
}

/// Splits at every comma before a blank; the blank belongs to the separator.
fn values(value: &Bytes) -> Vec<Bytes> {
    let mut values = Vec::new();
    let mut from = 0;
    while let Some(comma) = value[from..].windows(2).position(|pair| pair[0] == b',' && pair[1].is_ascii_whitespace()) {
        values.push(value.slice(from..from + comma));
        from += comma + 2;
    }
    values.push(value.slice(from..));
    values
}

/// `Content-Type` of a value: media type and charset.
#[must_use]
pub(super) fn media_header(content: &KvContent) -> Bytes {
    let media = content.content_type.clone().unwrap_or(Bytes::from_static(OCTETS.as_bytes()));
    match &content.charset {
        Some(charset) => [&media, b"; charset=".as_slice(), charset].concat().into(),
        None => media,
    }
}

/// `Content-Encoding` of a value; Riak leaves out `identity`.
#[must_use]
pub(super) fn encoding(content: &KvContent) -> Option<&Bytes> {
    content.encoding.as_ref().filter(|encoding| encoding.as_ref() != b"identity")
}

/// Whether only the server sets this header. Metadata with such a name, which other protocols can store, is not sent.
fn is_reserved(name: &HeaderName) -> bool {
    use hyper::header as h;
    let reserved = [
        h::CONTENT_TYPE,
        h::CONTENT_LENGTH,
        h::CONTENT_ENCODING,
        h::CONTENT_RANGE,
        h::TRANSFER_ENCODING,
        h::CONNECTION,
        h::UPGRADE,
        h::TE,
        h::TRAILER,
        h::DATE,
        h::ETAG,
        h::LAST_MODIFIED,
        h::LINK,
        h::VARY,
        h::LOCATION,
        h::SET_COOKIE,
        super::reply::VCLOCK,
        super::reply::DELETED,
    ];
    reserved.contains(name)
}

/// Adds the headers of a value: type, encoding, metadata, index terms. It leaves out values that no header can carry.
pub(super) fn add_content_headers(content: &KvContent, headers: &mut HeaderMap) {
    insert(headers, CONTENT_TYPE, media_header(content));
    if let Some(encoding) = encoding(content) {
        insert(headers, CONTENT_ENCODING, encoding.clone());
    }
    for (name, value) in &content.meta {
        // Metadata may come from other protocols: a name like `Content-Length` would break the answer.
        let name = HeaderName::from_bytes(name).ok().filter(|name| !is_reserved(name));
        if let Some(name) = name {
            insert(headers, name, value.clone());
        }
    }
    for (field, values) in by_field(&content.terms) {
        if let Ok(name) = HeaderName::from_bytes(&[INDEX.as_bytes(), field].concat()) {
            insert(headers, name, values);
        }
    }
}

/// Each field once, its values joined.
fn by_field(terms: &[Term]) -> BTreeMap<&[u8], Vec<u8>> {
    let mut fields = BTreeMap::<&[u8], Vec<u8>>::new();
    for term in terms {
        match fields.entry(&term.field) {
            Entry::Vacant(none) => {
                none.insert(term.value.to_vec());
            }
            Entry::Occupied(mut values) => {
                values.get_mut().extend_from_slice(b", ");
                values.get_mut().extend_from_slice(&term.value);
            }
        }
    }
    fields
}

/// Sets a header, if the value is valid for one.
pub(super) fn insert(headers: &mut HeaderMap, name: HeaderName, value: impl Into<Bytes>) {
    if let Ok(value) = HeaderValue::from_maybe_shared(value.into()) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests;
