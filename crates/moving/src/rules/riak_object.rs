//! Riak's object in its form v1, as vnodes store it and queues carry it.
//!
//! ```text
//! 35 01 · u32 length · clock · u32 siblings · sibling…
//! sibling   u32 length · u8 tag · value · u32 length · metadata
//! metadata  3 × u32 last modified · u8 length · vtag · u8 deleted · (u32 length · tag+key · u32 length · tag+value)…
//! tag       1 bytes, 0 an Erlang term, another number: kept as it is
//! ```

use bytes::Bytes;
use larder_core::rules::external_term::TermWriter;
use larder_rows::content::{KvBody, KvContent, Link, Term};
use larder_rows::{Timestamp, hash};

use super::erlang_term::{ErlangTerm, RiakTerm as _};
use super::riak_bytes::{RiakBytes, RiakFormError, put_sized, put_time};
use super::vector_clock::{VectorClock, VectorClockEntry};

/// The first byte of a stored object.
const OBJECT_TAG: u8 = 53;
/// The version of its form.
const OBJECT_VERSION: u8 = 1;
/// The tag of bytes; 0 is that of a term.
const BYTES_TAG: u8 = 1;
/// The tag of an external term.
const TERM_TAG: u8 = 0;
/// Names of metadata.
const CONTENT_TYPE: &[u8] = b"content-type";
const CHARSET: &[u8] = b"charset";
const ENCODING: &[u8] = b"content-encoding";
const META: &[u8] = b"X-Riak-Meta";
const INDEX: &[u8] = b"index";
const LINKS: &[u8] = b"Links";
const DOT: &[u8] = b"dot";
/// The end of the name of an index of numbers.
const NUMBERS: &[u8] = b"_int";
/// Most siblings of an object.
const SIBLINGS_MAX: u32 = 10_000;

/// An object of Riak.
#[derive(Debug, Clone, PartialEq)]
pub struct RiakObject {
    /// The writes that it descends from.
    pub clock: VectorClock,
    /// Its values, tombstones among them.
    pub siblings: Vec<RiakSibling>,
}

/// One value of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct RiakSibling {
    /// The value and the metadata that Larder has, too.
    pub content: KvContent,
    /// Whether the value is an external term and not the bytes of a client.
    pub is_term: bool,
    /// Last modification.
    pub modified: Timestamp,
    /// The entity tag.
    pub vtag: Bytes,
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The write that made it, where the bucket keeps dots.
    pub dot: Option<VectorClockEntry>,
    /// Names of metadata that have no place in a Larder.
    pub unknown: Vec<Bytes>,
}

impl RiakObject {
    /// Decodes an object of the form v1.
    ///
    /// # Errors
    /// [`RiakFormError`]; the form v0, a term of the record itself, is named as such.
    pub fn decode(bytes: Bytes) -> Result<Self, RiakFormError> {
        let mut rest = RiakBytes(bytes);
        match rest.u8("version")? {
            OBJECT_TAG => {}
            131 => return Err(RiakFormError::Invalid("form v0 (a cluster that was upgraded from Riak 1.x)")),
            _ => return Err(RiakFormError::Invalid("version")),
        }
        if rest.u8("version")? != OBJECT_VERSION {
            return Err(RiakFormError::Invalid("version"));
        }
        let clock = VectorClock::decode(rest.sized("clock")?)?;
        let count = rest.u32("number of siblings")?;
        if count > SIBLINGS_MAX {
            return Err(RiakFormError::TooLarge("number of siblings"));
        }
        let mut siblings = Vec::new();
        for _ in 0..count {
            siblings.push(RiakSibling::decode(&mut rest)?);
        }
        rest.finish()?;
        Ok(Self { clock, siblings })
    }

    /// The form v1.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![OBJECT_TAG, OBJECT_VERSION];
        put_sized(&mut out, &[&self.clock.encode()]);
        out.extend(u32::try_from(self.siblings.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.siblings.iter().for_each(|sibling| sibling.encode(&mut out));
        out
    }

    /// Whether all of it is deleted.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.siblings.iter().all(|sibling| sibling.deleted)
    }
}

impl RiakSibling {
    /// The tombstone of this time.
    #[must_use]
    pub fn tombstone(modified: Timestamp) -> Self {
        let vtag = Bytes::copy_from_slice(&hash::base62_digits(hash::fast128(&modified.0.to_be_bytes())));
        let content = KvContent::default();
        Self { content, is_term: false, modified, vtag, deleted: true, dot: None, unknown: Vec::new() }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let value = match &self.content.body {
            KvBody::Inline(value) => value.clone(),
            // A value that is not in memory is of no form of Riak.
            KvBody::Blob(_) => Bytes::new(),
        };
        put_sized(out, &[&[if self.is_term { TERM_TAG } else { BYTES_TAG }], &value]);
        let mut metadata = Vec::new();
        put_time(&mut metadata, self.modified);
        metadata.push(u8::try_from(self.vtag.len()).unwrap_or(u8::MAX));
        metadata.extend(self.vtag.iter().take(u8::MAX.into()));
        metadata.push(u8::from(self.deleted));
        for (name, term) in self.metadata() {
            put_sized(&mut metadata, &[&[BYTES_TAG], name]);
            put_sized(&mut metadata, &[&[TERM_TAG], &term]);
        }
        put_sized(out, &[&metadata]);
    }

    /// The names and terms of its metadata.
    fn metadata(&self) -> Vec<(&'static [u8], Vec<u8>)> {
        let KvContent { content_type, charset, encoding, meta, links, terms, .. } = &self.content;
        let text = |name, text: &Option<Bytes>| text.as_ref().map(|text| (name, written(|term| term.string(text))));
        let live = |name, term| (!self.deleted).then_some((name, term));
        // In the order of a node of Riak, so that both have the same bytes.
        let metadata = [
            text(CHARSET, charset),
            live(META, written(|term| write_pairs(term, meta))),
            Some((INDEX, written(|term| write_terms(term, terms)))),
            text(CONTENT_TYPE, content_type),
            text(ENCODING, encoding),
            self.dot.as_ref().map(|dot| (DOT, written(|term| dot.write(term)))),
            live(LINKS, written(|term| write_links(term, links))),
        ];
        metadata.into_iter().flatten().collect()
    }

    fn decode(rest: &mut RiakBytes) -> Result<Self, RiakFormError> {
        let (tag, value) = take_tagged(rest, "value")?;
        let mut metadata = RiakBytes(rest.sized("metadata")?);
        let modified = metadata.time()?;
        let length = metadata.u8("vtag")?.into();
        let vtag = metadata.take(length, "vtag")?;
        let deleted = metadata.u8("mark of a tombstone")? == 1;
        let content = KvContent { body: KvBody::Inline(value), ..KvContent::default() };
        let mut sibling =
            Self { content, is_term: tag == TERM_TAG, modified, vtag, deleted, dot: None, unknown: Vec::new() };
        while metadata.remaining() > 0 {
            let (_, name) = take_tagged(&mut metadata, "name of metadata")?;
            let (tag, value) = take_tagged(&mut metadata, "metadata")?;
            sibling.set(name, tag, value)?;
        }
        Ok(sibling)
    }

    fn set(&mut self, name: Bytes, tag: u8, value: Bytes) -> Result<(), RiakFormError> {
        let text = |value| metadata_text(tag, value);
        match &name[..] {
            CONTENT_TYPE => self.content.content_type = Some(text(value)?),
            CHARSET => self.content.charset = Some(text(value)?),
            ENCODING => self.content.encoding = Some(text(value)?),
            META => self.content.meta = read_pairs(value)?,
            INDEX => self.content.terms = read_terms(value)?,
            LINKS => self.content.links = read_links(value)?,
            DOT => self.dot = Some(VectorClockEntry::from_term(ErlangTerm::from_stored(value)?)?),
            _ => self.unknown.push(name),
        }
        Ok(())
    }
}

/// Bytes after their length and their tag.
fn take_tagged(rest: &mut RiakBytes, part: &'static str) -> Result<(u8, Bytes), RiakFormError> {
    let mut tagged = RiakBytes(rest.sized(part)?);
    // An empty value has no tag when its length is zero.
    if tagged.remaining() == 0 {
        return Ok((BYTES_TAG, Bytes::new()));
    }
    Ok((tagged.u8(part)?, tagged.rest()))
}

fn metadata_text(tag: u8, value: Bytes) -> Result<Bytes, RiakFormError> {
    if tag == TERM_TAG { ErlangTerm::from_stored(value)?.into_bytes("metadata") } else { Ok(value) }
}

fn read_pairs(value: Bytes) -> Result<Vec<(Bytes, Bytes)>, RiakFormError> {
    let pair = |term: ErlangTerm| {
        let [name, value] = term.into_tuple("user metadata")?;
        Ok((name.into_bytes("user metadata")?, value.into_bytes("user metadata")?))
    };
    ErlangTerm::from_stored(value)?.into_items("user metadata")?.into_iter().map(pair).collect()
}

fn read_terms(value: Bytes) -> Result<Vec<Term>, RiakFormError> {
    let term = |term: ErlangTerm| {
        let [field, value] = term.into_tuple("index term")?;
        let value = match value {
            ErlangTerm::Integer(_) | ErlangTerm::Big(..) => value.to_number::<i128>("index term")?.to_string().into(),
            other => other.into_bytes("index term")?,
        };
        Ok(Term { field: field.into_bytes("index term")?, value })
    };
    ErlangTerm::from_stored(value)?.into_items("index term")?.into_iter().map(term).collect()
}

fn read_links(value: Bytes) -> Result<Vec<Link>, RiakFormError> {
    let link = |term: ErlangTerm| {
        let [target, tag] = term.into_tuple("link")?;
        let [bucket, key] = target.into_tuple("link")?;
        Ok(Link { bucket: bucket.into_bytes("link")?, key: key.into_bytes("link")?, tag: tag.into_bytes("link")? })
    };
    ErlangTerm::from_stored(value)?.into_items("link")?.into_iter().map(link).collect()
}

fn written(write: impl FnOnce(&mut TermWriter)) -> Vec<u8> {
    let mut term = TermWriter::default();
    write(&mut term);
    term.finish()
}

fn write_pairs(term: &mut TermWriter, pairs: &[(Bytes, Bytes)]) {
    term.list(pairs.len(), |term| {
        for (name, value) in pairs {
            term.tuple(2);
            term.string(name);
            term.string(value);
        }
    });
}

fn write_terms(term: &mut TermWriter, terms: &[Term]) {
    term.list(terms.len(), |term| {
        for Term { field, value } in terms {
            term.tuple(2);
            term.binary(field);
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            match number.filter(|_| field.ends_with(NUMBERS)) {
                Some(number) => term.integer(number),
                None => term.binary(value),
            }
        }
    });
}

fn write_links(term: &mut TermWriter, links: &[Link]) {
    term.list(links.len(), |term| {
        for Link { bucket, key, tag } in links {
            term.tuple(2);
            term.tuple(2);
            term.binary(bucket);
            term.binary(key);
            term.binary(tag);
        }
    });
}
