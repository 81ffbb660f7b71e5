//! One value of the key-value store: its bytes and the metadata that the client sent with them.

use bytes::Bytes;

use crate::Timestamp;
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::limits::METADATA_BYTES_MAX;

/// A value of the key-value store with its metadata. Header values are stored byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvContent {
    /// Media type without parameters.
    pub content_type: Option<Bytes>,
    /// Value of the `charset` parameter, quotes included if it came with quotes.
    pub charset: Option<Bytes>,
    /// `Content-Encoding`.
    pub encoding: Option<Bytes>,
    /// User metadata: the full header name in the client's spelling, and the value.
    pub meta: Vec<(Bytes, Bytes)>,
    /// Links to other objects.
    pub links: Vec<Link>,
    /// Secondary-index terms.
    pub terms: Vec<Term>,
    /// The bytes of the value, inline or in a blob.
    pub body: KvBody,
}

/// A one-way, tagged reference to another object of the default type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Bucket of the target.
    pub bucket: Bytes,
    /// Key of the target.
    pub key: Bytes,
    /// The `riaktag`.
    pub tag: Bytes,
}

/// One secondary-index term. Integers are stored as canonical decimal text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// Field name, in lower case, with its `_bin` or `_int` suffix.
    pub field: Bytes,
    /// The term.
    pub value: Bytes,
}

/// The bytes of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvBody {
    /// Bytes in the row itself.
    Inline(Bytes),
    /// A blob outside of the rows, for large values.
    Blob(BlobRef),
}

/// A reference to a blob with its length and digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRef {
    /// Its identity.
    pub id: BlobId,
    /// Its length in bytes.
    pub length: u64,
    /// SHA-1 of its bytes: equal digests mean equal bytes in different blobs.
    pub digest: [u8; 20],
}

/// Identity of a blob: a hash of the partition and name of the row that owns it, then the stamp of that row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobId(pub [u8; 24]);

impl Default for KvBody {
    fn default() -> Self {
        Self::Inline(Bytes::new())
    }
}

impl KvBody {
    /// Length in bytes.
    #[must_use]
    #[inline]
    pub fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob(blob) => blob.length,
        }
    }

    /// The id of the blob; `None` for an inline body.
    #[must_use]
    #[inline]
    pub fn blob(&self) -> Option<BlobId> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(blob) => Some(blob.id),
        }
    }

    /// Whether both hold the same bytes, in the same blob or in two.
    #[must_use]
    #[inline]
    pub fn has_same_bytes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline(a), Self::Inline(b)) => a == b,
            (Self::Blob(a), Self::Blob(b)) => (a.length, a.digest) == (b.length, b.digest),
            _ => false,
        }
    }
}

impl BlobId {
    /// The blob of the row `name`@`stamp` in the partition with this key.
    #[must_use]
    #[inline]
    pub fn for_row(partition: &[u8], name: &[u8], stamp: Timestamp) -> Self {
        let mut id = [0; 24];
        let owner = crate::hash::id128(&[partition, name]);
        id[..16].copy_from_slice(&owner.to_be_bytes());
        id[16..].copy_from_slice(&stamp.0.to_be_bytes());
        Self(id)
    }

    /// The stamp of its owner: the time at which its body began to arrive, in microseconds since 1970.
    #[must_use]
    #[inline]
    pub fn stamp(&self) -> Timestamp {
        Timestamp(self.0[16..].iter().fold(0, |stamp, &byte| (stamp << 8) | u64::from(byte)))
    }

    /// Lower-case hexadecimal, as used for file names.
    #[must_use]
    #[inline]
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Reads [`Self::hex`] back.
    #[must_use]
    #[inline]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut id = [0; 24];
        hex::decode_to_slice(text, &mut id).ok()?;
        let id = Self(id);
        // Capital digits would be a second name of the same blob.
        (id.hex() == text).then_some(id)
    }
}

/// Bytes that an entry of metadata counts beyond its text.
const ENTRY_BYTES: usize = 2;

impl KvContent {
    /// Bytes of metadata, which [`METADATA_BYTES_MAX`] limits. Each entry counts two more than its text: a row must be able
    /// to count its entries, also empty ones.
    #[must_use]
    #[inline]
    pub fn metadata_bytes(&self) -> usize {
        let headers = [&self.content_type, &self.charset, &self.encoding];
        let entry = |bytes: usize| bytes + ENTRY_BYTES;
        let meta: usize = self.meta.iter().map(|(name, value)| entry(name.len() + value.len())).sum();
        let links = self.links.iter().map(|link| entry(link.bucket.len() + link.key.len() + link.tag.len()));
        let terms: usize = self.terms.iter().map(|term| entry(term.field.len() + term.value.len())).sum();
        headers.into_iter().flatten().map(Bytes::len).sum::<usize>() + meta + links.sum::<usize>() + terms
    }

    /// Whether both have the same metadata and the same bytes, in the same blob or in two.
    #[must_use]
    #[inline]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let head = |content: &Self| (content.content_type.clone(), content.charset.clone(), content.encoding.clone());
        head(self) == head(other)
            && (&self.meta, &self.links, &self.terms) == (&other.meta, &other.links, &other.terms)
            && self.body.has_same_bytes(&other.body)
    }

    /// SHA-1 of the content: the row name of a `write_once` value.
    #[must_use]
    #[inline]
    pub fn sha1(&self) -> [u8; 20] {
        let mut out = FieldEncoder::default();
        // The head without body: a blob is hashed by its digest, so its bytes are not read again.
        let head = Self { body: KvBody::default(), ..self.clone() };
        head.encode(&mut out);
        match &self.body {
            KvBody::Inline(bytes) => crate::hash::sha1(&[out.written(), bytes]),
            KvBody::Blob(blob) => crate::hash::sha1(&[out.written(), &blob.digest]),
        }
    }

    /// Writes the content. The body comes last, so an inline body needs no length.
    #[inline]
    pub fn encode(&self, out: &mut FieldEncoder) {
        for header in [&self.content_type, &self.charset, &self.encoding] {
            // Length + 1, and 0 for an absent header: an empty value must differ from none.
            match header {
                None => out.varint(0),
                Some(value) => {
                    out.varint(value.len() as u64 + 1);
                    out.raw(value);
                }
            }
        }
        out.list(&self.meta, |out, (name, value)| {
            out.bytes(name);
            out.bytes(value);
        });
        out.list(&self.links, |out, link| {
            out.bytes(&link.bucket);
            out.bytes(&link.key);
            out.bytes(&link.tag);
        });
        out.list(&self.terms, |out, term| {
            out.bytes(&term.field);
            out.bytes(&term.value);
        });
        match &self.body {
            KvBody::Inline(bytes) => {
                out.u8(0);
                out.raw(bytes);
            }
            KvBody::Blob(blob) => {
                out.u8(1);
                out.raw(&blob.id.0);
                out.varint(blob.length);
                out.raw(&blob.digest);
            }
        }
    }

    /// Reads the value, which is all that is left.
    ///
    /// # Errors
    /// [`DecodeError`] for damaged bytes.
    #[inline]
    pub fn decode(mut rest: FieldDecoder) -> Result<Self, DecodeError> {
        let content_type = optional(&mut rest)?;
        let charset = optional(&mut rest)?;
        let encoding = optional(&mut rest)?;
        let meta = rest.list(|rest| Ok((rest.bytes()?, rest.bytes()?)))?;
        let links = rest.list(|rest| Ok(Link { bucket: rest.bytes()?, key: rest.bytes()?, tag: rest.bytes()? }))?;
        let terms = rest.list(|rest| Ok(Term { field: rest.bytes()?, value: rest.bytes()? }))?;
        let body = match rest.u8()? {
            // The inline body is the rest: it shares the memory of the row.
            0 => KvBody::Inline(rest.rest()),
            1 => {
                let blob = BlobRef { id: BlobId(rest.array()?), length: rest.varint()?, digest: rest.array()? };
                rest.finish()?;
                KvBody::Blob(blob)
            }
            _ => return Err(DecodeError::Invalid("body kind")),
        };
        Ok(Self { content_type, charset, encoding, meta, links, terms, body })
    }
}

fn optional(rest: &mut FieldDecoder) -> Result<Option<Bytes>, DecodeError> {
    match rest.count(METADATA_BYTES_MAX + 1)? {
        0 => Ok(None),
        length => rest.raw(length - 1).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_blob_holds_its_stamp() {
        for stamp in [0, 1, 1_800_000_000_000_000, u64::MAX] {
            assert_eq!(BlobId::for_row(b"partition", b"row", Timestamp(stamp)).stamp(), Timestamp(stamp));
        }
    }
}
