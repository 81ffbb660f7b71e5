//! An object of a replication queue in the form that a GET of its key would show, so that both ways of a move bring the same rows.
//!
//! Where the two might differ, the element decides nothing and the key is read: metadata that HTTP changes on its way, values
//! that are terms, and data types.

use bytes::Bytes;
use larder_kv::rules::terms;
use larder_rows::Timestamp;
use larder_rows::content::{KvBody, KvContent, Link, Term};

use super::riak_datatype::RiakDatatype;
use super::riak_object::{RiakObject, RiakSibling};
use super::source_value::{META, SourceObject, SourceValue, capitalised};

/// The media type that a GET shows for a value without one.
const DEFAULT_MEDIA: &[u8] = b"application/octet-stream";
/// The encoding that is none: a GET does not show it.
const IDENTITY: &[u8] = b"identity";

impl RiakObject {
    /// The object as a GET shows it; `None`: the element does not tell.
    #[must_use]
    pub fn to_source(&self) -> Option<SourceObject> {
        let live = self.siblings.iter().filter(|sibling| !sibling.deleted);
        let mut values = live.map(RiakSibling::to_source).collect::<Option<Vec<_>>>()?;
        values.sort_by(|a, b| a.vtag.cmp(&b.vtag));
        Some(SourceObject { clock: self.clock.to_deflated(), values })
    }
}

impl RiakSibling {
    fn to_source(&self) -> Option<SourceValue> {
        if self.is_term || !self.unknown.is_empty() || self.is_datatype() {
            return None;
        }
        let KvContent { content_type, charset, encoding, meta, links, terms, body } = &self.content;
        let is_shown = |text: &Option<Bytes>| text.as_ref().is_none_or(|text| is_token(text));
        if !is_shown(content_type) || !is_shown(charset) || !is_shown(encoding) {
            return None;
        }
        let content = KvContent {
            content_type: Some(content_type.clone().unwrap_or(Bytes::from_static(DEFAULT_MEDIA))),
            charset: charset.clone(),
            encoding: encoding.clone().filter(|encoding| encoding != IDENTITY),
            meta: shown_meta(meta)?,
            links: shown_links(links)?,
            terms: shown_terms(terms)?,
            body: body.clone(),
        };
        // A GET shows whole seconds, and both ways have to make the same row of a value.
        let modified = Timestamp(self.modified.0 / 1_000_000 * 1_000_000);
        Some(SourceValue { content, modified, vtag: self.vtag.clone() })
    }

    /// Data types are left to the read of their key, which names them.
    fn is_datatype(&self) -> bool {
        let is_media = self.content.content_type.as_ref().is_some_and(|media| media.starts_with(b"application/riak_"));
        is_media && matches!(&self.content.body, KvBody::Inline(body) if RiakDatatype::is_one(body))
    }
}

fn shown_meta(meta: &[(Bytes, Bytes)]) -> Option<Vec<(Bytes, Bytes)>> {
    let mut shown: Vec<(Bytes, Bytes)> = Vec::new();
    for (name, value) in meta {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        if !name.starts_with(META) || !is_token(name.as_bytes()) || !is_line(value) {
            return None;
        }
        let name = Bytes::from(capitalised(&name));
        if shown.iter().any(|(other, _)| *other == name) {
            return None;
        }
        shown.push((name, value.clone()));
    }
    Some(shown)
}

fn shown_links(links: &[Link]) -> Option<Vec<Link>> {
    let is_plain = |name: &Bytes| !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric());
    let all = links.iter().all(|link| is_plain(&link.bucket) && is_plain(&link.key) && is_plain(&link.tag));
    all.then(|| links.to_vec())
}

fn shown_terms(all: &[Term]) -> Option<Vec<Term>> {
    let mut shown = Vec::with_capacity(all.len());
    for term in all {
        let is_split = memchr::memmem::find(&term.value, b", ").is_some();
        if is_split || !is_line(&term.value) || !is_token(&term.field) || term.field.iter().any(u8::is_ascii_uppercase)
        {
            return None;
        }
        shown.push(terms::parse(&term.field, &term.value).ok()?);
    }
    shown.sort_by(terms::order);
    shown.dedup();
    Some(shown)
}

/// Whether a header has it as it is: visible characters.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b','))
}

/// Whether the line of a header has it as it is: no control characters, and no blanks around it.
fn is_line(text: &[u8]) -> bool {
    let is_trimmed = text.first() != Some(&b' ') && text.last() != Some(&b' ');
    is_trimmed && text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{SourceHeaders, VectorClock};

    fn sibling(content: KvContent) -> RiakSibling {
        RiakSibling {
            content,
            is_term: false,
            modified: Timestamp(1_795_347_486_804_538),
            vtag: "2irQ".into(),
            deleted: false,
            dot: None,
            unknown: Vec::new(),
        }
    }

    fn shown(sibling: RiakSibling) -> Option<SourceValue> {
        let object = RiakObject { clock: VectorClock::default(), siblings: vec![sibling] };
        object.to_source().map(|mut object| object.values.remove(0))
    }

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn an_element_shows_what_a_get_of_its_key_shows() {
        let content = KvContent {
            content_type: Some(text("text/plain")),
            charset: Some(text("utf-8")),
            encoding: Some(text("identity")),
            meta: vec![(text("X-Riak-Meta-Farm"), text("uji 3"))],
            links: vec![Link { bucket: text("teas"), key: text("matcha"), tag: text("kin") }],
            terms: vec![
                Term { field: text("year_int"), value: text("2026") },
                Term { field: text("origin_bin"), value: text("jp") },
            ],
            body: KvBody::Inline(text("green")),
        };
        let mut headers = SourceHeaders::default();
        for (name, value) in [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("ETag", "\"2irQ\""),
            ("Last-Modified", "Sun, 22 Nov 2026 11:38:06 GMT"),
            ("X-Riak-Meta-Farm", "uji 3"),
            ("x-riak-index-origin_bin", "jp"),
            ("x-riak-index-year_int", "2026"),
            ("Link", "</buckets/teas/keys/matcha>; riaktag=\"kin\", </buckets/teas>; rel=\"up\""),
        ] {
            headers.add(name.as_bytes(), value.as_bytes());
        }
        let read = SourceObject::from_answer(&headers, text("green")).unwrap();
        assert_eq!(shown(sibling(content)).unwrap(), read.values[0]);
    }

    #[test]
    fn a_value_without_a_media_type_has_the_one_that_a_get_shows() {
        let value = shown(sibling(KvContent::default())).unwrap();
        assert_eq!(value.content.content_type.as_deref(), Some(DEFAULT_MEDIA));
        assert_eq!(value.modified, Timestamp(1_795_347_486_000_000));
    }

    #[test]
    fn metadata_that_http_changes_is_left_to_a_get() {
        let plain = KvContent::default();
        let term = |field, value| Term { field: text(field), value: text(value) };
        for content in [
            KvContent { meta: vec![(text("farm"), text("uji"))], ..plain.clone() },
            KvContent { meta: vec![(text("x-riak-meta-a"), text(" uji"))], ..plain.clone() },
            KvContent { meta: vec![(text("x-riak-meta-a"), text("\u{e9}"))], ..plain.clone() },
            KvContent {
                meta: vec![(text("X-Riak-Meta-A"), text("1")), (text("x-riak-meta-a"), text("2"))],
                ..plain.clone()
            },
            KvContent { terms: vec![term("a_bin", "b, c")], ..plain.clone() },
            KvContent { terms: vec![term("A_bin", "b")], ..plain.clone() },
            KvContent { terms: vec![term("a_int", "b")], ..plain.clone() },
            KvContent { content_type: Some(text("a; b")), ..plain.clone() },
            KvContent { links: vec![Link { bucket: text("a/b"), key: text("k"), tag: text("t") }], ..plain.clone() },
        ] {
            assert_eq!(shown(sibling(content.clone())), None, "{content:?}");
        }
        assert_eq!(shown(RiakSibling { is_term: true, ..sibling(plain.clone()) }), None);
        assert_eq!(shown(RiakSibling { unknown: vec![text("n")], ..sibling(plain) }), None);
        let counter = KvContent {
            content_type: Some(text("application/riak_counter")),
            body: KvBody::Inline(text("E\u{2}")),
            ..KvContent::default()
        };
        assert_eq!(shown(sibling(counter)), None);
    }

    #[test]
    fn a_deleted_object_has_no_values_and_its_clock() {
        let tombstone = RiakSibling { deleted: true, ..sibling(KvContent::default()) };
        let object = RiakObject { clock: VectorClock::default(), siblings: vec![tombstone] };
        let source = object.to_source().unwrap();
        assert!(source.values.is_empty());
        assert_eq!(VectorClock::from_deflated(&source.clock), Ok(VectorClock::default()));
    }
}
