//! Rows of objects, and rows of the `$key` index.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, put_ordered, take_ordered};
use larder_rows::content::{KvBody, KvContent};
use larder_rows::limits::VECTOR_ENTRIES_MAX;
use larder_rows::{ActorId, Timestamp};

use crate::rules::causality::{DotFlags, Slot, VectorEntry, VersionVector};

const VERSION: u8 = 1;
/// The highest bit, so that a tombstone is the greater value and wins over a value with its stamp, as a removal does.
const TOMBSTONE: u8 = 0x80;
const TERMS: u8 = 2;
const BLOB: u8 = 4;

/// The value of a row of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// Whether the row marks a deletion; then the content is empty.
    pub tombstone: bool,
    /// Hash of the dots in the writer's context, 0 without dots. It tells a retry from a second write.
    pub context_hash: u64,
    /// The slots that the writer knew to be superseded.
    pub vector: VersionVector,
    /// The value.
    pub content: KvContent,
}

impl ObjectRow {
    /// The properties of the row that a context carries.
    #[must_use]
    pub fn flags(&self) -> DotFlags {
        DotFlags {
            tombstone: self.tombstone,
            terms: !self.content.terms.is_empty(),
            blob: matches!(self.content.body, KvBody::Blob(_)),
        }
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let body = match &self.content.body {
            KvBody::Inline(bytes) => bytes.len(),
            KvBody::Blob(_) => 40,
        };
        let mut out = FieldEncoder::versioned(VERSION, 64 + self.content.metadata_bytes() + body);
        let flags = self.flags();
        out.u8(u8::from(flags.tombstone) * TOMBSTONE + u8::from(flags.terms) * TERMS + u8::from(flags.blob) * BLOB);
        out.u64(self.context_hash);
        out.varint(self.vector.len() as u64);
        for entry in self.vector.iter() {
            out.u64(entry.slot.actor.0);
            out.u64(entry.slot.birth.0);
            out.u64(entry.clock.0);
        }
        self.content.encode(&mut out);
        out.finish()
    }

    /// Reads the stored form. The body shares its memory.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let flags = rest.u8()?;
        // A flag of a newer program changes the meaning of the row [invariant 72].
        if flags & !(TOMBSTONE | TERMS | BLOB) != 0 {
            return Err(DecodeError::Invalid("object flags"));
        }
        let context_hash = rest.u64()?;
        let vector = (0..rest.count(VECTOR_ENTRIES_MAX)?)
            .map(|_| {
                Ok(VectorEntry {
                    slot: Slot { actor: ActorId(rest.u64()?), birth: Timestamp(rest.u64()?) },
                    clock: Timestamp(rest.u64()?),
                })
            })
            .collect::<Result<_, DecodeError>>()?;
        let content = KvContent::decode(rest)?;
        let row = Self { tombstone: flags & TOMBSTONE != 0, context_hash, vector, content };
        let content_flags = row.flags();
        // Flags and content agree in every row that was written: otherwise the row is damaged.
        if (content_flags.terms, content_flags.blob) != (flags & TERMS != 0, flags & BLOB != 0) {
            return Err(DecodeError::Invalid("object flags"));
        }
        Ok(row)
    }
}

/// Name of the `$key` row of `key` for the object row named `object_row`. It sorts by key.
#[must_use]
pub fn view_row_name(key: &[u8], object_row: &[u8]) -> Bytes {
    let mut name = Vec::with_capacity(key.len() + object_row.len() + 8);
    put_ordered(&mut name, key);
    name.extend_from_slice(object_row);
    name.into()
}

/// The common prefix of the names of all `$key` rows of `key`.
#[must_use]
pub fn view_row_prefix(key: &[u8]) -> Bytes {
    view_row_name(key, &[])
}

/// The key of a `$key` row.
///
/// # Errors
/// [`DecodeError`] for a name of another form.
pub fn key_of_view_row(name: &[u8]) -> Result<Bytes, DecodeError> {
    take_ordered(name).map(|(key, _)| key.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use larder_rows::content::{BlobId, BlobRef, Link, Term};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    fn body() -> impl Strategy<Value = KvBody> {
        prop_oneof![
            vec(any::<u8>(), 0..200).prop_map(|bytes| KvBody::Inline(bytes.into())),
            (any::<[u8; 24]>(), any::<u64>(), any::<[u8; 20]>())
                .prop_map(|(id, length, digest)| KvBody::Blob(BlobRef { id: BlobId(id), length, digest })),
        ]
    }

    pub(crate) fn content() -> impl Strategy<Value = KvContent> {
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
            .prop_map(|(content_type, charset, encoding, meta, links, terms, body)| KvContent {
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
        fn object_rows_decode_to_themselves(content in content(), tombstone: bool, context_hash: u64,
            vector in vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..=VECTOR_ENTRIES_MAX)) {
            let vector = vector.into_iter()
                .map(|(actor, birth, clock)| VectorEntry { slot: Slot { actor: ActorId(actor), birth: Timestamp(birth) }, clock: Timestamp(clock) }).collect();
            let row = ObjectRow { tombstone, context_hash, vector, content };
            prop_assert_eq!(ObjectRow::decode(row.encode()), Ok(row));
        }

        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = ObjectRow::decode(bytes.clone().into());
            let _ = key_of_view_row(&bytes);
        }

        #[test]
        fn damaged_object_rows_fail_or_decode_without_panic(content in content(), at: usize, bit in 0..8_u8) {
            let row = ObjectRow { tombstone: false, context_hash: 0, vector: VersionVector::default(), content };
            let mut bytes = row.encode().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let _ = ObjectRow::decode(bytes.into());
        }
    }

    #[test]
    fn a_tombstone_wins_a_tie_against_a_value_even_a_blob() {
        let value = |tombstone, body| {
            let content = KvContent { body, ..KvContent::default() };
            ObjectRow { tombstone, context_hash: 0, vector: VersionVector::default(), content }.encode()
        };
        let blob = BlobRef { id: BlobId([0xff; 24]), length: u64::MAX, digest: [0xff; 20] };
        let tombstone = value(true, KvBody::default());
        assert!(tombstone > value(false, KvBody::Blob(blob)));
        assert!(tombstone > value(false, KvBody::Inline(Bytes::from_static(b"\xff\xff"))));
    }

    /// The stored form, byte for byte: a change here is a change of format and needs a new version.
    #[test]
    fn the_golden_object_row_still_decodes() {
        let row = ObjectRow {
            tombstone: false,
            context_hash: 7,
            vector: VersionVector::default(),
            content: KvContent {
                content_type: Some(Bytes::from_static(b"text/plain")),
                body: KvBody::Inline(Bytes::from_static(b"tea")),
                ..KvContent::default()
            },
        };
        let golden = b"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x0btext/plain\x00\x00\x00\x00\x00\x00tea";
        assert_eq!(row.encode().as_ref(), golden);
        assert_eq!(ObjectRow::decode(Bytes::from_static(golden)), Ok(row));
    }
}
