//! Slots and dots: the names of rows and of writes.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::hash;

/// Identity of one run of one gateway process, drawn anew at every start.
pub type Actor = u64;

/// A timestamp of a hybrid clock, in microseconds. No actor issues one twice; it lags the wall clock by no more than the skew.
pub type Clock = u64;

/// The row that one actor reuses for its versions of a key, like Riak's per-key actor epoch. It is the name of the row in the
/// partition of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The actor that writes to it.
    pub actor: Actor,
    /// The clock of its first write.
    pub birth: Clock,
}

/// The slot that all actors share: of `last_write_wins` and `consistent` values, and of `write_once` tombstones.
pub const SHARED_SLOT: Slot = Slot { actor: 0, birth: 0 };

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
    pub clock: Clock,
    /// Properties of the write.
    pub flags: DotFlags,
}

impl Slot {
    /// The row name: 16 bytes.
    #[must_use]
    pub fn row_name(self) -> Bytes {
        let mut name = FieldEncoder::with_capacity(16);
        name.u64(self.actor);
        name.u64(self.birth);
        name.finish()
    }

    /// Reads a row name.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not 16 bytes.
    pub fn from_row_name(name: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::new(name.clone());
        let slot = Self { actor: rest.u64()?, birth: rest.u64()? };
        rest.finish()?;
        Ok(slot)
    }
}

/// The entity tag of the row `name`@`stamp`. The tag of a `write_once` row depends on its name alone, a hash of the content.
#[must_use]
pub fn vtag(name: &[u8], stamp: Clock) -> String {
    let id = if name.len() == 16 { hash::id128(&[name, &stamp.to_be_bytes()]) } else { hash::id128(&[name]) };
    hash::base62(id)
}
