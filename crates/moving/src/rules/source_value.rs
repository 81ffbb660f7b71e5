//! What a GET of an object at a source shows: its values with their metadata, from the headers of the answer or of its parts.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use larder_kv::rules::terms;
use larder_rows::Timestamp;
use larder_rows::content::{KvBody, KvContent, Link, Term};
use percent_encoding::percent_decode;

use super::multipart_parts::parts;
use super::riak_datatype::RiakDatatype;
use super::source_headers::{SourceHeaders, ValueError};

pub(super) const META: &str = "x-riak-meta-";
const INDEX: &str = "x-riak-index-";
/// The begin of the media type of a data type.
const DATATYPE_MEDIA: &[u8] = b"application/riak_";

/// A value of an object at its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceValue {
    /// The value, with its bytes inline.
    pub content: KvContent,
    /// Its last modification.
    pub modified: Timestamp,
    /// Its entity tag.
    pub vtag: Bytes,
}

/// An object as its source shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceObject {
    /// Its clock, byte by byte; empty for none.
    pub clock: Bytes,
    /// Its live values, in the order of their tags.
    pub values: Vec<SourceValue>,
}

impl SourceValue {
    /// The body of a data type, if it is one.
    #[must_use]
    pub fn datatype_body(&self) -> Option<Bytes> {
        let media = self.content.content_type.as_ref()?;
        match &self.content.body {
            KvBody::Inline(body) if media.starts_with(DATATYPE_MEDIA) && RiakDatatype::is_one(body) => {
                Some(body.clone())
            }
            _ => None,
        }
    }

    /// Whether it is a data type.
    #[must_use]
    pub fn is_datatype(&self) -> bool {
        self.datatype_body().is_some()
    }
}

impl SourceObject {
    /// An object from the headers and the body of an answer with one value or with several.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn from_answer(headers: &SourceHeaders, body: Bytes) -> Result<Self, ValueError> {
        let clock = headers.clock()?;
        let content_type = headers.get("content-type").map(AsRef::as_ref).unwrap_or_default();
        let is_several = content_type.starts_with(b"multipart/mixed") && is_siblings(&body, content_type);
        let parts = if is_several { parts(&body, content_type)? } else { vec![(headers.clone(), body)] };
        let live = parts.into_iter().filter(|(headers, _)| !headers.is_deleted());
        let mut values = live.map(|(headers, body)| value(&headers, body)).collect::<Result<Vec<_>, _>>()?;
        values.sort_by(|a, b| a.vtag.cmp(&b.vtag));
        Ok(Self { clock, values })
    }
}

/// Whether a body begins as that of siblings does. A client may have stored a value of this media type.
fn is_siblings(body: &Bytes, content_type: &[u8]) -> bool {
    body.starts_with(b"\r\n--") && content_type.windows(9).any(|word| word == b"boundary=")
}

fn value(headers: &SourceHeaders, body: Bytes) -> Result<SourceValue, ValueError> {
    let (content_type, charset) = media(headers);
    let content = KvContent {
        content_type,
        charset,
        encoding: headers.get("content-encoding").cloned(),
        meta: meta(headers),
        links: links(headers)?,
        terms: index_terms(headers)?,
        body: KvBody::Inline(body),
    };
    let vtag = headers.get("etag").map(unquoted).unwrap_or_default();
    Ok(SourceValue { content, modified: modified(headers), vtag })
}

fn media(headers: &SourceHeaders) -> (Option<Bytes>, Option<Bytes>) {
    let Some(header) = headers.get("content-type") else { return (None, None) };
    let mut words = header.split(|byte| matches!(byte, b';' | b' ')).filter(|word| !word.is_empty());
    let media = words.next().map(Bytes::copy_from_slice);
    (media, words.find_map(|word| word.strip_prefix(b"charset=")).map(Bytes::copy_from_slice))
}

fn modified(headers: &SourceHeaders) -> Timestamp {
    let text = headers.get("last-modified").and_then(|text| std::str::from_utf8(text).ok());
    let time = text.and_then(|text| httpdate::parse_http_date(text).ok());
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Timestamp(since.map_or(0, |since| since.as_secs().saturating_mul(1_000_000)))
}

/// User metadata, under the names that a put over HTTP would store.
fn meta(headers: &SourceHeaders) -> Vec<(Bytes, Bytes)> {
    let mut meta: Vec<(Bytes, Bytes)> = Vec::new();
    for (name, value) in headers.0.iter().filter(|(name, _)| name.starts_with(META)) {
        let name = Bytes::from(capitalised(name));
        match meta.iter_mut().find(|(other, _)| *other == name) {
            Some((_, joined)) => *joined = [joined, b", ".as_slice(), value].concat().into(),
            None => meta.push((name, value.clone())),
        }
    }
    meta
}

pub(super) fn capitalised(name: &str) -> String {
    let mut start = true;
    let letter = |char: char| {
        let upper = std::mem::replace(&mut start, char == '-');
        if upper { char.to_ascii_uppercase() } else { char }
    };
    name.chars().map(letter).collect()
}

/// Index terms. A comma and a blank separate several values of one header, as in a put.
fn index_terms(headers: &SourceHeaders) -> Result<Vec<Term>, ValueError> {
    let mut all = Vec::new();
    for (name, value) in &headers.0 {
        let Some(field) = name.strip_prefix(INDEX) else { continue };
        let field = Bytes::copy_from_slice(field.as_bytes());
        for item in split_values(value) {
            all.push(terms::parse(&field, &item).map_err(|_| ValueError::Term)?);
        }
    }
    all.sort_by(terms::order);
    all.dedup();
    Ok(all)
}

fn split_values(value: &Bytes) -> Vec<Bytes> {
    let mut values = Vec::new();
    let mut from = 0;
    while let Some(comma) = memchr::memmem::find(&value[from..], b", ") {
        values.push(value.slice(from..from + comma));
        from += comma + 2;
    }
    values.push(value.slice(from..));
    values
}

/// Links to other objects; that to the own bucket is none.
fn links(headers: &SourceHeaders) -> Result<Vec<Link>, ValueError> {
    let mut links = Vec::new();
    for (_, header) in headers.0.iter().filter(|(name, _)| name == "link") {
        let text = std::str::from_utf8(header).map_err(|_| ValueError::Form("link"))?;
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            links.extend(link(item)?);
        }
    }
    Ok(links)
}

fn link(item: &str) -> Result<Option<Link>, ValueError> {
    let wrong = ValueError::Form("link");
    let (path, attribute) = item.strip_prefix('<').and_then(|rest| rest.split_once('>')).ok_or(wrong)?;
    if attribute.contains("rel=\"up\"") {
        return Ok(None);
    }
    let tag = attribute.split_once("riaktag=\"").and_then(|(_, tag)| tag.strip_suffix('"')).ok_or(wrong)?;
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["", "buckets", bucket, "keys", key] | ["", "riak", bucket, key] => {
            Ok(Some(Link { bucket: form_name(bucket), key: form_name(key), tag: form_name(tag) }))
        }
        _ => Err(wrong),
    }
}

fn form_name(text: &str) -> Bytes {
    let spaced: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect::<Vec<u8>>().into()
}

fn unquoted(tag: &Bytes) -> Bytes {
    let text = tag.strip_prefix(b"W/").unwrap_or(tag);
    let text = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(text);
    Bytes::copy_from_slice(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> SourceHeaders {
        let mut headers = SourceHeaders::default();
        lines.iter().for_each(|(name, value)| headers.add(name.as_bytes(), value.as_bytes()));
        headers
    }

    /// The answer of a node of Riak 3.2.3 to a GET of a key of which one sibling is deleted.
    #[test]
    fn the_golden_siblings_have_their_headers_and_a_tombstone_is_none_of_them() {
        let answer = headers(&[
            ("X-Riak-Vclock", "a85hYGBgymDKBVIcypz/fj7d5RyYwZTImMfKkB1Q/oQPIsUDlaoHsiWB0kww6SwA"),
            ("Last-Modified", "Sun, 22 Nov 2026 11:39:23 GMT"),
            ("ETag", "\"1v7UnC289bAYY8tMwnMdls\""),
            ("Content-Type", "multipart/mixed; boundary=HuCERgC9KCLr44VuWQMgI1PCjWb"),
        ]);
        let body = "\r\n--HuCERgC9KCLr44VuWQMgI1PCjWb\r\nContent-Type: application/octet-stream\r\nLink: </buckets/d>; \
                    rel=\"up\"\r\nEtag: KwfCLw1UHElAadUDVTJpZ\r\nLast-Modified: Sun, 22 Nov 2026 11:39:23 GMT\r\n\
                    X-Riak-Deleted: true\r\n\r\n\r\n--HuCERgC9KCLr44VuWQMgI1PCjWb\r\nContent-Type: text/plain\r\nLink: \
                    </buckets/d>; rel=\"up\"\r\nEtag: 7CBjJGQjleERO4MA8eswxY\r\nLast-Modified: Sun, 22 Nov 2026 11:39:23 \
                    GMT\r\n\r\ntwo\r\n--HuCERgC9KCLr44VuWQMgI1PCjWb--\r\n";
        let object = SourceObject::from_answer(&answer, Bytes::from(body)).unwrap();
        assert!(super::super::VectorClock::from_deflated(&object.clock).is_ok());
        let [value] = &object.values[..] else { panic!("one live value: {object:?}") };
        assert_eq!(value.content.body, KvBody::Inline("two".into()));
        assert_eq!(value.content.content_type, Some("text/plain".into()));
        assert_eq!((value.modified.as_secs(), &value.vtag[..]), (1_795_347_563, &b"7CBjJGQjleERO4MA8eswxY"[..]));
        let cut = Bytes::copy_from_slice(&body.as_bytes()[..body.len() - 40]);
        assert_eq!(SourceObject::from_answer(&answer, cut), Err(ValueError::Truncated));
    }

    #[test]
    fn one_value_has_all_its_metadata() {
        let answer = headers(&[
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Encoding", "gzip"),
            ("x-riak-meta-farm", "uji"),
            ("x-riak-index-year_int", "2026, 7"),
            ("x-riak-index-origin_bin", "jp"),
            ("Link", "</buckets/te%20as/keys/mat+cha>; riaktag=\"kin\", </buckets/b>; rel=\"up\""),
            ("ETag", "\"t\""),
        ]);
        let object = SourceObject::from_answer(&answer, "green".into()).unwrap();
        let content = &object.values[0].content;
        assert_eq!(
            (content.content_type.as_deref(), content.charset.as_deref()),
            (Some(&b"text/plain"[..]), Some(&b"utf-8"[..]))
        );
        assert_eq!(content.encoding.as_deref(), Some(&b"gzip"[..]));
        assert_eq!(content.meta, [(Bytes::from("X-Riak-Meta-Farm"), Bytes::from("uji"))]);
        let terms: Vec<_> = content.terms.iter().map(|term| (&term.field[..], &term.value[..])).collect();
        assert_eq!(terms, [(&b"origin_bin"[..], &b"jp"[..]), (b"year_int", b"7"), (b"year_int", b"2026")]);
        assert_eq!(content.links, [Link { bucket: "te as".into(), key: "mat cha".into(), tag: "kin".into() }]);
        assert_eq!(content.body, KvBody::Inline("green".into()));
    }

    #[test]
    fn what_is_no_object_is_refused_by_name() {
        let counter = headers(&[("Content-Type", "application/riak_counter")]);
        let body = Bytes::from_static(b"E\x02\0\0\0\x11riak");
        let read = SourceObject::from_answer(&counter, body.clone()).unwrap();
        assert_eq!(read.values[0].datatype_body(), Some(body.clone()));
        let plain = SourceObject::from_answer(&headers(&[("Content-Type", "text/plain")]), body).unwrap();
        assert!(!plain.values[0].is_datatype(), "bytes of a client");
        let term = headers(&[("x-riak-index-a_int", "no")]);
        assert_eq!(SourceObject::from_answer(&term, Bytes::new()), Err(ValueError::Term));
        let clock = headers(&[("x-riak-vclock", "***")]);
        assert_eq!(SourceObject::from_answer(&clock, Bytes::new()), Err(ValueError::Form("clock")));
        let link = headers(&[("link", "nonsense")]);
        assert_eq!(SourceObject::from_answer(&link, Bytes::new()), Err(ValueError::Form("link")));
    }

    proptest! {
        #[test]
        fn random_answers_never_panic(body: Vec<u8>, names in proptest::collection::vec("(link|etag|content-type|x-riak-vclock|x-riak-index-a_bin|x-riak-meta-a)", 0..4), value: String) {
            let mut headers = SourceHeaders::default();
            names.iter().for_each(|name| headers.add(name.as_bytes(), value.as_bytes()));
            let _ = SourceObject::from_answer(&headers, body.clone().into());
            let mut several = SourceHeaders::default();
            several.add(b"content-type", b"multipart/mixed; boundary=b");
            let body = [b"\r\n--b", &body[..], b"\r\n--b--"].concat();
            let _ = SourceObject::from_answer(&several, body.into());
        }
    }
}
