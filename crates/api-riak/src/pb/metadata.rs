//! The metadata of a value as clients see it: fields 2 to 10 of `RpbContent`, written without a message in between.

use bytes::{BufMut as _, Bytes, BytesMut};
use larder_kv::rules::causality::{Sibling, Vtag};
use larder_rows::content::Link;
use prost::encoding::{WireType, encode_varint, encoded_len_varint};

const CONTENT_TYPE: u32 = 2;
const CHARSET: u32 = 3;
const ENCODING: u32 = 4;
const VTAG: u32 = 5;
const LINK: u32 = 6;
const LAST_MOD: u32 = 7;
const LAST_MOD_USECS: u32 = 8;
const USERMETA: u32 = 9;
const INDEX: u32 = 10;

/// The metadata of one value, and its length on the wire.
pub(super) struct ShownMetadata<'a> {
    sibling: &'a Sibling,
    vtag: Vtag,
    len: u64,
}

impl<'a> ShownMetadata<'a> {
    /// The metadata of this value.
    pub(super) fn new(sibling: &'a Sibling) -> Self {
        let mut shown = Self { sibling, vtag: sibling.vtag(), len: 0 };
        let mut len = 0;
        shown.each(&mut |field| len += field.len());
        shown.len = len;
        shown
    }

    /// Bytes that [`Self::put`] appends.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Appends the fields.
    pub(super) fn put(&self, output: &mut BytesMut) {
        self.each(&mut |field| field.put(output));
    }

    /// Passes on every field in the order of numbers.
    fn each(&self, to: &mut impl FnMut(MetadataField<'_>)) {
        let content = &self.sibling.content;
        let described =
            [(CONTENT_TYPE, &content.content_type), (CHARSET, &content.charset), (ENCODING, &content.encoding)];
        for (number, value) in described {
            if let Some(value) = value {
                to(MetadataField::Bytes(number, value));
            }
        }
        to(MetadataField::Bytes(VTAG, self.vtag.as_bytes()));
        for Link { bucket, key, tag } in &content.links {
            to(MetadataField::Message(LINK, &[bucket, key, tag]));
        }
        let modified = self.sibling.modified();
        to(MetadataField::Number(LAST_MOD, modified.as_secs().min(u32::MAX.into())));
        to(MetadataField::Number(LAST_MOD_USECS, modified.0 % 1_000_000));
        for (name, value) in &content.meta {
            to(MetadataField::Message(USERMETA, &[name, value]));
        }
        for term in &content.terms {
            to(MetadataField::Message(INDEX, &[&term.field, &term.value]));
        }
    }
}

/// A field with its number.
enum MetadataField<'a> {
    Bytes(u32, &'a [u8]),
    Number(u32, u64),
    /// A message with these fields of bytes, numbered from 1.
    Message(u32, &'a [&'a Bytes]),
}

impl MetadataField<'_> {
    // Every number is below 16: one byte holds it.
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(_, value) => bytes_len(value.len() as u64),
            Self::Number(_, value) => 1 + encoded_len_varint(*value) as u64,
            Self::Message(_, parts) => bytes_len(message_len(parts)),
        }
    }

    fn put(&self, output: &mut BytesMut) {
        match self {
            Self::Bytes(number, value) => {
                put_field(output, *number, value.len() as u64);
                output.extend_from_slice(value);
            }
            Self::Number(number, value) => {
                put_varint(output, u64::from(*number << 3 | WireType::Varint as u32));
                put_varint(output, *value);
            }
            Self::Message(number, parts) => {
                put_field(output, *number, message_len(parts));
                for (part, number) in parts.iter().zip(1..) {
                    put_field(output, number, part.len() as u64);
                    output.extend_from_slice(part);
                }
            }
        }
    }
}

fn message_len(parts: &[&Bytes]) -> u64 {
    parts.iter().map(|part| bytes_len(part.len() as u64)).sum()
}

/// Bytes of a field of this many bytes.
fn bytes_len(length: u64) -> u64 {
    1 + encoded_len_varint(length) as u64 + length
}

/// Appends the head of a field whose `length` bytes follow.
pub(super) fn put_field(output: &mut BytesMut, field: u32, length: u64) {
    put_varint(output, u64::from(field << 3 | WireType::LengthDelimited as u32));
    put_varint(output, length);
}

/// Appends a number. Most are lengths of names, which one byte holds.
#[inline]
fn put_varint(output: &mut BytesMut, number: u64) {
    if number < 0x80 { output.put_u8(number as u8) } else { encode_varint(number, output) }
}

#[cfg(test)]
mod tests {
    use larder_kv::rules::causality::{ConflictPolicy, KeyVersions, Slot, VersionVector};
    use larder_kv::rules::object_row::ObjectRow;
    use larder_rows::Row;
    use larder_rows::content::{KvContent, Term};
    use larder_rows::{ActorId, Timestamp};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::super::messages::{RpbContent, RpbLink, RpbPair};
    use super::*;

    fn name() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..200).prop_map(Bytes::from)
    }

    fn content() -> impl Strategy<Value = KvContent> {
        let text = || proptest::option::of(name());
        let links = vec((name(), name(), name()), 0..3);
        let pairs = || vec((name(), name()), 0..3);
        (text(), text(), text(), links, pairs(), pairs()).prop_map(
            |(content_type, charset, encoding, links, meta, terms)| KvContent {
                content_type,
                charset,
                encoding,
                meta,
                links: links.into_iter().map(|(bucket, key, tag)| Link { bucket, key, tag }).collect(),
                terms: terms.into_iter().map(|(field, value)| Term { field, value }).collect(),
                ..KvContent::default()
            },
        )
    }

    fn stored(content: KvContent, clock: Timestamp) -> Sibling {
        let row = ObjectRow { tombstone: false, context_hash: 0, vector: VersionVector::default(), content };
        let name = Slot { actor: ActorId(3), birth: Timestamp(4) }.row_name();
        let row = Row { name, value: row.encode(), stamp: clock, expires: None };
        KeyVersions::from_rows(vec![row], ConflictPolicy::Siblings).unwrap().siblings.remove(0)
    }

    proptest! {
        #[test]
        fn metadata_is_the_message_that_clients_decode(content in content(), clock: u64) {
            let sibling = stored(content, Timestamp(clock));
            let shown = ShownMetadata::new(&sibling);
            let mut wire = BytesMut::new();
            shown.put(&mut wire);
            prop_assert_eq!(wire.len() as u64, shown.len());
            let pair = |key: &Bytes, value: &Bytes| RpbPair { key: Some(key.clone()), value: Some(value.clone()) };
            let KvContent { content_type, charset, encoding, meta, links, terms, .. } = sibling.content.clone();
            let link = |Link { bucket, key, tag }| RpbLink { bucket: Some(bucket), key: Some(key), tag: Some(tag) };
            let message = RpbContent {
                value: None,
                content_type,
                charset,
                content_encoding: encoding,
                vtag: Some(Bytes::copy_from_slice(sibling.vtag().as_bytes())),
                links: links.into_iter().map(link).collect(),
                last_mod: Some(u32::try_from(clock / 1_000_000).unwrap_or(u32::MAX)),
                last_mod_usecs: Some((clock % 1_000_000) as u32),
                usermeta: meta.iter().map(|(key, value)| pair(key, value)).collect(),
                indexes: terms.iter().map(|term| pair(&term.field, &term.value)).collect(),
                deleted: None,
            };
            prop_assert_eq!(&wire[..], &message.encode_to_vec()[..], "byte for byte as a message of all fields");
        }
    }
}
