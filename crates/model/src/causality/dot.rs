//! Slots and dots: the names of rows and of writes.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::hash;
use crate::{ActorId, Timestamp};

/// The row that one actor reuses for its versions of a key, like Riak's per-key actor epoch. It is the name of the row in the
/// partition of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The actor that writes to it.
    pub actor: ActorId,
    /// The clock of its first write.
    pub birth: Timestamp,
}

/// The slot that all actors share: of `last_write_wins` and `consistent` values, and of `write_once` tombstones.
pub const SHARED_SLOT: Slot = Slot { actor: ActorId(0), birth: Timestamp::ZERO };

/// Properties of a write that a context carries beside its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DotFlags {
    /// It is a tombstone.
    pub tombstone: bool,
    /// It has secondary-index terms.
    pub terms: bool,
    /// Its body is a blob.
    pub blob: bool,
}

/// The name of one write: `slot @ clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dot {
    /// The row it was written to.
    pub slot: Slot,
    /// The stamp of the row.
    pub clock: Timestamp,
    /// Properties of the write.
    pub flags: DotFlags,
}

impl Slot {
    /// The row name: 16 bytes.
    #[must_use]
    pub fn row_name(self) -> Bytes {
        let mut name = FieldEncoder::with_capacity(16);
        name.u64(self.actor.0);
        name.u64(self.birth.0);
        name.finish()
    }

    /// Reads a row name.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not 16 bytes.
    pub fn from_row_name(name: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::new(name.clone());
        let slot = Self { actor: ActorId(rest.u64()?), birth: Timestamp(rest.u64()?) };
        rest.finish()?;
        Ok(slot)
    }
}

/// The entity tag of the row `name`@`stamp`. The tag of a `write_once` row depends on its name alone, a hash of the content.
#[must_use]
pub fn vtag(name: &[u8], stamp: Timestamp) -> String {
    // Sixteen bytes are a slot; a `write_once` name is a SHA-1 of twenty.
    let id = if name.len() == 16 { hash::id128(&[name, &stamp.0.to_be_bytes()]) } else { hash::id128(&[name]) };
    hash::base62(id)
}
