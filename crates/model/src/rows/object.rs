//! Rows of objects, and rows of the `$key` view.

use bytes::Bytes;

use crate::causality::{Cover, DotFlags, Slot};
use crate::codec::{DecodeError, Decoder, Encoder, put_ordered, take_ordered};
use crate::content::{Body, Content};
use crate::limits::COVERS_MAX;

const VERSION: u8 = 1;
/// The highest bit: of a tombstone and a value with one stamp the tombstone stays, as a removal does in the `$key` view.
const TOMBSTONE: u8 = 0x80;
const TERMS: u8 = 2;
const BLOB: u8 = 4;

/// The value of a row of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// Whether the row marks a deletion; then the content is empty.
    pub tombstone: bool,
    /// Hash of the dots the writer's context named, 0 when it named none: tells a retry from a second write.
    pub replaced: u64,
    /// Dead slots the writer knew of, each with its last dead clock.
    pub covers: Vec<Cover>,
    /// The value.
    pub content: Content,
}

impl ObjectRow {
    /// What a context needs to know about the row.
    #[must_use]
    pub fn flags(&self) -> DotFlags {
        DotFlags {
            tombstone: self.tombstone,
            terms: !self.content.terms.is_empty(),
            blob: matches!(self.content.body, Body::Blob(_)),
        }
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let body = match &self.content.body {
            Body::Inline(bytes) => bytes.len(),
            Body::Blob(_) => 40,
        };
        let mut out = Encoder::with_capacity(64 + self.content.metadata_bytes() + body);
        out.u8(VERSION);
        let flags = self.flags();
        out.u8(u8::from(flags.tombstone) * TOMBSTONE + u8::from(flags.terms) * TERMS + u8::from(flags.blob) * BLOB);
        out.u64(self.replaced);
        out.varint(self.covers.len() as u64);
        for cover in &self.covers {
            out.u64(cover.slot.actor);
            out.u64(cover.slot.birth);
            out.u64(cover.clock);
        }
        self.content.encode(&mut out);
        out.finish()
    }

    /// Reads the stored form; the body shares its memory.
    ///
    /// # Errors
    /// [`DecodeError`]: an unknown version is never guessed at.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = Decoder::new(value);
        rest.version(VERSION)?;
        let flags = rest.u8()?;
        if flags & !(TOMBSTONE | TERMS | BLOB) != 0 {
            return Err(DecodeError::Invalid("object flags"));
        }
        let replaced = rest.u64()?;
        let covers = (0..rest.count(COVERS_MAX)?)
            .map(|_| Ok(Cover { slot: Slot { actor: rest.u64()?, birth: rest.u64()? }, clock: rest.u64()? }))
            .collect::<Result<_, DecodeError>>()?;
        let content = Content::decode(rest)?;
        let row = Self { tombstone: flags & TOMBSTONE != 0, replaced, covers, content };
        let found = row.flags();
        if (found.terms, found.blob) != (flags & TERMS != 0, flags & BLOB != 0) {
            return Err(DecodeError::Invalid("object flags"));
        }
        Ok(row)
    }
}

/// Name of the `$key` row of `key` for the object row called `object_row`: sorts by key.
#[must_use]
pub fn view_row_name(key: &[u8], object_row: &[u8]) -> Bytes {
    let mut name = Vec::with_capacity(key.len() + object_row.len() + 8);
    put_ordered(&mut name, key);
    name.extend_from_slice(object_row);
    name.into()
}

/// What the names of all `$key` rows of `key` begin with.
#[must_use]
pub fn view_row_prefix(key: &[u8]) -> Bytes {
    view_row_name(key, &[])
}

/// The key a `$key` row names.
///
/// # Errors
/// [`DecodeError`] for a name of another form.
pub fn key_of_view_row(name: &[u8]) -> Result<Bytes, DecodeError> {
    take_ordered(name).map(|(key, _)| key.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::content::{BlobId, BlobRef, Link, Term};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    fn body() -> impl Strategy<Value = Body> {
        prop_oneof![
            vec(any::<u8>(), 0..200).prop_map(|bytes| Body::Inline(bytes.into())),
            (any::<[u8; 24]>(), any::<u64>(), any::<[u8; 20]>()).prop_map(|(id, length, digest)| Body::Blob(BlobRef {
                id: BlobId(id),
                length,
                digest
            })),
        ]
    }

    pub(crate) fn content() -> impl Strategy<Value = Content> {
        let header = || proptest::option::of(name());
        (
            header(),
            header(),
            header(),
            vec((name(), name()), 0..4),
            vec((name(), name(), name()), 0..3),
            vec((name(), name()), 0..4),
            body(),
        )
            .prop_map(|(content_type, charset, encoding, meta, links, terms, body)| Content {
                content_type,
                charset,
                encoding,
                meta,
                body,
                links: links.into_iter().map(|(bucket, key, tag)| Link { bucket, key, tag }).collect(),
                terms: terms.into_iter().map(|(field, value)| Term { field, value }).collect(),
            })
    }

    proptest! {
        #[test]
        fn object_rows_come_back(content in content(), tombstone: bool, replaced: u64,
            covers in vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..=COVERS_MAX)) {
            let covers = covers.into_iter()
                .map(|(actor, birth, clock)| Cover { slot: Slot { actor, birth }, clock }).collect();
            let row = ObjectRow { tombstone, replaced, covers, content };
            prop_assert_eq!(ObjectRow::decode(row.encode()), Ok(row));
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = ObjectRow::decode(bytes.clone().into());
            let _ = key_of_view_row(&bytes);
        }

        #[test]
        fn damaged_object_rows_fail_or_decode_without_panic(content in content(), at: usize, bit in 0..8_u8) {
            let row = ObjectRow { tombstone: false, replaced: 0, covers: Vec::new(), content };
            let mut bytes = row.encode().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let _ = ObjectRow::decode(bytes.into());
        }
    }

    #[test]
    fn a_tombstone_wins_a_tie_against_a_value_even_a_blob() {
        let value = |tombstone, body| {
            let content = Content { body, ..Content::default() };
            ObjectRow { tombstone, replaced: 0, covers: Vec::new(), content }.encode()
        };
        let blob = BlobRef { id: BlobId([0xff; 24]), length: u64::MAX, digest: [0xff; 20] };
        let tombstone = value(true, Body::default());
        assert!(tombstone > value(false, Body::Blob(blob)));
        assert!(tombstone > value(false, Body::Inline(Bytes::from_static(b"\xff\xff"))));
    }

    /// The stored form, byte for byte: a change here is a change of format and needs a new version.
    #[test]
    fn the_golden_object_row_still_opens() {
        let row = ObjectRow {
            tombstone: false,
            replaced: 7,
            covers: Vec::new(),
            content: Content {
                content_type: Some(Bytes::from_static(b"text/plain")),
                body: Body::Inline(Bytes::from_static(b"tea")),
                ..Content::default()
            },
        };
        let golden = b"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x0btext/plain\x00\x00\x00\x00\x00\x00tea";
        assert_eq!(row.encode().as_ref(), golden);
        assert_eq!(ObjectRow::decode(Bytes::from_static(golden)), Ok(row));
    }
}
