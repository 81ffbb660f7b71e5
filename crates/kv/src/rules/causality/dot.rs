//! Slots and dots: the names of rows and of writes.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::{ActorId, Timestamp, hash};

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

/// An entity tag without quotes: 22 digits of base 62. The same value has the same tag on every gateway and after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vtag([u8; 22]);

impl Vtag {
    /// The tag of the row `name`@`stamp`. That of a `write_once` row depends on its name alone, a hash of the content.
    #[must_use]
    pub fn new(name: &[u8], stamp: Timestamp) -> Self {
        // Sixteen bytes are a slot; a `write_once` name is a SHA-1 of twenty.
        Self(hash::base62_digits(match <[u8; 16]>::try_from(name) {
            Ok(slot) => {
                let mut write = [0; 24];
                write[..16].copy_from_slice(&slot);
                write[16..].copy_from_slice(&stamp.0.to_be_bytes());
                hash::fast128(&write)
            }
            Err(_) => hash::fast128(name),
        }))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 22] {
        &self.0
    }
}

impl Deref for Vtag {
    type Target = str;

    fn deref(&self) -> &str {
        // Digits are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Vtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Vtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients keep entity tags: a change here makes every tag that they hold stale.
    #[test]
    fn the_golden_entity_tags_stay() {
        let slot = Slot { actor: ActorId(7), birth: Timestamp(100) }.row_name();
        assert_eq!(&*Vtag::new(&slot, Timestamp(140)), "8zSQNeOzyfQDRffKdscFPy");
        assert_eq!(&*Vtag::new(&[9; 20], Timestamp(140)), "INsiab4GpwFEcjJHuOk4P2");
        assert_eq!(Vtag::new(&[9; 20], Timestamp(140)), Vtag::new(&[9; 20], Timestamp(141)), "named by its content");
        assert_ne!(Vtag::new(&slot, Timestamp(140)), Vtag::new(&slot, Timestamp(141)));
    }
}
