//! Rows of the moved keys: what a move knows of an address of its source.

use bytes::Bytes;

use crate::Timestamp;
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};

const VERSION: u8 = 1;
/// The flag of a clock that is concurrent with the one before it.
const CONCURRENT: u8 = 1;
/// The flag of an address of which all values are here.
const COMPLETE: u8 = 2;

coded! {
    /// What became of an address.
    pub enum MovedState {
        /// Its values are here.
        Here = 1, "here";
        /// The source has no value of it.
        Deleted = 2, "deleted";
        /// A client wrote it here, and that stays.
        Kept = 3, "kept";
    }
}

/// An address that a move brought: the clock of the source tells later whether it has changed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedRow {
    /// What became of it.
    pub state: MovedState,
    /// Whether the next look reads the key again: its clock was concurrent with the one before, so that the values of both are
    /// here, or the source showed an older state since.
    pub concurrent: bool,
    /// Whether all its values are here.
    pub complete: bool,
    /// The values of this clock that were written, in their order.
    pub written: u32,
    /// The stamp of its row, where rows have no slots. There it tells an imported row from that of a client.
    pub stamp: Timestamp,
    /// The clock that the source sent with it, byte by byte; empty for none.
    pub clock: Bytes,
}

impl MovedRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 24 + self.clock.len());
        out.u8(self.state.code());
        out.u8(u8::from(self.concurrent) * CONCURRENT + u8::from(self.complete) * COMPLETE);
        out.varint(self.written.into());
        out.u64(self.stamp.0);
        out.bytes(&self.clock);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let state = MovedState::from_code(rest.u8()?).ok_or(DecodeError::Invalid("state"))?;
        let flags = rest.u8()?;
        let written = u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("count"))?;
        let stamp = Timestamp(rest.u64()?);
        let clock = rest.bytes()?;
        rest.finish()?;
        let (concurrent, complete) = (flags & CONCURRENT != 0, flags & COMPLETE != 0);
        Ok(Self { state, concurrent, complete, written, stamp, clock })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_golden_row_still_decodes() {
        let row = MovedRow {
            state: MovedState::Here,
            concurrent: true,
            complete: true,
            written: 2,
            stamp: Timestamp(3),
            clock: "c".into(),
        };
        let golden = Bytes::from_static(b"\x01\x01\x03\x02\0\0\0\0\0\0\0\x03\x01c");
        assert_eq!(row.encode(), golden);
        assert_eq!(MovedRow::decode(golden), Ok(row));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = MovedRow::decode(bytes.clone().into());
            let _ = MovedRow::decode([&[VERSION, 1, 0], &bytes[..]].concat().into());
        }
    }
}
