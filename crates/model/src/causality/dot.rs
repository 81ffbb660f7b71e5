//! Slots and dots: the names of writes.

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::hash;

/// One run of one gateway process; drawn anew at every start.
pub type Actor = u64;

/// A hybrid clock in microseconds: never behind the wall clock by more than its skew, never twice the same.
pub type Clock = u64;

/// Where a write lives: the row name inside its object's partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Who made the slot.
    pub actor: Actor,
    /// The clock at which it was made.
    pub birth: Clock,
}

/// The one slot of a `last_write_wins` bucket and of `consistent` and `write_once` values.
pub const ANY_SLOT: Slot = Slot { actor: 0, birth: 0 };

/// What a context remembers of a write besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DotFlags {
    /// It is a tombstone.
    pub tombstone: bool,
    /// It has secondary-index terms.
    pub terms: bool,
    /// Its body is a blob.
    pub blob: bool,
}

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dot {
    /// Its row.
    pub slot: Slot,
    /// Its stamp.
    pub clock: Clock,
    /// What else is known of it.
    pub flags: DotFlags,
}

/// A dead slot: nothing of it up to `clock` is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cover {
    /// Which slot.
    pub slot: Slot,
    /// Up to which clock.
    pub clock: Clock,
}

impl Slot {
    /// The row name: 16 bytes.
    #[must_use]
    pub fn row_name(self) -> Bytes {
        let mut name = Encoder::with_capacity(16);
        name.u64(self.actor);
        name.u64(self.birth);
        name.finish()
    }

    /// Reads a row name.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not 16 bytes.
    pub fn from_row_name(name: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = Decoder::new(name.clone());
        let slot = Self { actor: rest.u64()?, birth: rest.u64()? };
        rest.finish()?;
        Ok(slot)
    }
}

/// The entity tag of the row `name`@`stamp`. A `write_once` row is named by its content, which is all its tag depends on.
#[must_use]
pub fn vtag(name: &[u8], stamp: Clock) -> String {
    let id = if name.len() == 16 { hash::id128(&[name, &stamp.to_be_bytes()]) } else { hash::id128(&[name]) };
    hash::base62(id)
}
