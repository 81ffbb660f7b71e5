//! Answers of `GET /queuename/Q?object_format=internal`: what a node of Riak hands to the peer of its real-time replication.
//!
//! ```text
//! answer   00                                              nothing there
//!          01 · 00 · element
//!          01 · 01 · u32 length · clock of the tombstone · element
//! element  u32 CRC-32 of the rest · u8 version (high half), 8 zlib, 4 reap · u32 length · type · u32 length · bucket ·
//!          u32 length · key · object, or 3 × u32 time · clock
//! ```

use bytes::Bytes;
use larder_rows::Timestamp;

use super::riak_bytes::{INFLATED_BYTES_MAX, RiakBytes, RiakFormError, inflate_zlib, put_sized};
use super::riak_object::RiakObject;
use super::vector_clock::VectorClock;

/// The version in the high half of the flags.
const ELEMENT_VERSION: u8 = 1;
/// The flag of a compressed object.
const ZLIB: u8 = 8;
/// The flag of a reap.
const REAP: u8 = 4;

/// The answer of a queue.
#[derive(Debug, Clone, PartialEq)]
pub enum QueueAnswer {
    /// Nothing was there.
    Empty,
    /// The next element.
    Element(QueueElement),
}

/// The key of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementKey {
    /// The bucket type; empty for none.
    pub bucket_type: Bytes,
    /// The bucket.
    pub bucket: Bytes,
    /// The key.
    pub key: Bytes,
}

/// A change of one key at the source.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueElement {
    /// The key.
    pub key: ElementKey,
    /// The clock that is beside the element of a deleted object.
    pub tombstone: Option<VectorClock>,
    /// The change.
    pub change: ReplicatedChange,
}

/// What a Riak fetched of a key here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandedOut {
    /// The clock of the element.
    pub(crate) clock: VectorClock,
    /// Whether it was a deletion.
    pub(crate) is_deletion: bool,
}

/// What a queue replicates.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplicatedChange {
    /// The object as it was then.
    Object(RiakObject),
    /// The removal of a tombstone.
    Reap {
        /// Its time.
        time: Timestamp,
        /// The clock of the tombstone.
        clock: VectorClock,
    },
}

impl QueueAnswer {
    /// The answer of a queue with nothing in it.
    pub const EMPTY: &[u8] = &[0];

    /// Decodes the body of an answer, of which a compressed object inflates up to `max` bytes.
    ///
    /// # Errors
    /// [`RiakFormError`].
    pub fn decode(bytes: Bytes, max: usize) -> Result<Self, RiakFormError> {
        let mut rest = RiakBytes(bytes);
        if rest.u8("mark of an answer")? == 0 {
            rest.finish()?;
            return Ok(Self::Empty);
        }
        let tombstone = match rest.u8("mark of a tombstone")? {
            0 => None,
            1 => Some(VectorClock::decode(rest.sized("clock of a tombstone")?)?),
            _ => return Err(RiakFormError::Invalid("mark of a tombstone")),
        };
        let element = QueueElement::decode(rest.rest(), max)?;
        Ok(Self::Element(QueueElement { tombstone, ..element }))
    }

    /// The key of an element whose checksum is right, whatever follows; `None`: it does not tell.
    #[must_use]
    pub fn key_alone(bytes: Bytes) -> Option<ElementKey> {
        let mut rest = RiakBytes(bytes);
        if rest.u8("mark of an answer").ok()? == 0 {
            return None;
        }
        if rest.u8("mark of a tombstone").ok()? == 1 {
            rest.sized("clock of a tombstone").ok()?;
        }
        ElementHead::take(&mut rest).ok().map(|head| head.key)
    }
}

impl QueueElement {
    /// The answer of a queue with the object of a key, not compressed.
    #[must_use]
    pub fn answer(key: &ElementKey, object: &RiakObject) -> Bytes {
        let mut element = vec![ELEMENT_VERSION << 4];
        for name in [&key.bucket_type, &key.bucket, &key.key] {
            put_sized(&mut element, &[name]);
        }
        element.extend(object.encode());
        let mut answer = vec![1, u8::from(object.is_tombstone())];
        if object.is_tombstone() {
            put_sized(&mut answer, &[&object.clock.encode()]);
        }
        answer.extend(crc32fast::hash(&element).to_be_bytes());
        answer.extend(element);
        answer.into()
    }

    /// Decodes an element: its checksum first.
    ///
    /// # Errors
    /// [`RiakFormError`].
    pub fn decode(bytes: Bytes, max: usize) -> Result<Self, RiakFormError> {
        let mut rest = RiakBytes(bytes);
        let ElementHead { flags, key } = ElementHead::take(&mut rest)?;
        let body = match flags & ZLIB {
            0 => rest.rest(),
            _ => inflate_zlib(&rest.rest(), max.min(INFLATED_BYTES_MAX))?,
        };
        let change = match flags & REAP {
            0 => ReplicatedChange::Object(RiakObject::decode(body)?),
            _ => read_reap(body)?,
        };
        Ok(Self { key, tombstone: None, change })
    }
}

/// What an element begins with.
struct ElementHead {
    flags: u8,
    key: ElementKey,
}

impl ElementHead {
    /// Takes it from the front of an element with the right checksum.
    fn take(rest: &mut RiakBytes) -> Result<Self, RiakFormError> {
        let checksum = rest.u32("checksum")?;
        if crc32fast::hash(&rest.0) != checksum {
            return Err(RiakFormError::Checksum);
        }
        let flags = rest.u8("version of an element")?;
        if flags >> 4 != ELEMENT_VERSION {
            return Err(RiakFormError::Invalid("version of an element"));
        }
        let (bucket_type, bucket) = (rest.sized("type")?, rest.sized("bucket")?);
        Ok(Self { flags, key: ElementKey { bucket_type, bucket, key: rest.sized("key")? } })
    }
}

fn read_reap(body: Bytes) -> Result<ReplicatedChange, RiakFormError> {
    let mut rest = RiakBytes(body);
    let time = rest.time()?;
    Ok(ReplicatedChange::Reap { time, clock: VectorClock::decode(rest.rest())? })
}

#[cfg(test)]
mod tests;
