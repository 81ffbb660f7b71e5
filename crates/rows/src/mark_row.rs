//! Clock marks, the upper bounds of the clocks that gateways have issued, and beside them the actor of a single gateway.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::{ActorId, Timestamp};

const VERSION: u8 = 1;

/// The high-water mark of a gateway's clock: the gateway has issued no clock above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRow {
    /// The mark.
    pub mark: Timestamp,
}

impl MarkRow {
    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 9);
        out.u64(self.mark.0);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let mark = Timestamp(rest.u64()?);
        rest.finish()?;
        Ok(Self { mark })
    }
}

/// The actor under which the only gateway of a store writes data types, in all of its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastingActorRow {
    /// The actor: that of the first run.
    pub actor: ActorId,
}

impl LastingActorRow {
    /// The name of its row for the gateway of this name. No name of a gateway has a zero byte.
    #[must_use]
    pub fn name(node: &str) -> Bytes {
        [node.as_bytes(), b"\0actor"].concat().into()
    }

    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 9);
        out.u64(self.actor.0);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let actor = ActorId(rest.u64()?);
        rest.finish()?;
        Ok(Self { actor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            let _ = (MarkRow::decode(bytes.clone()), LastingActorRow::decode(bytes));
        }
    }

    #[test]
    fn the_golden_row_of_an_actor_still_decodes() {
        let golden = Bytes::from_static(b"\x01\0\0\0\0\0\0\x01\x02");
        assert_eq!(LastingActorRow { actor: ActorId(258) }.encode(), golden);
        assert_eq!(LastingActorRow::decode(golden), Ok(LastingActorRow { actor: ActorId(258) }));
        assert_eq!(LastingActorRow::name("n1"), "n1\0actor");
    }

    #[test]
    fn the_golden_mark_row_still_decodes() {
        let golden = Bytes::from_static(b"\x01\0\0\0\0\0\0\x01\x02");
        assert_eq!(MarkRow { mark: Timestamp(258) }.encode(), golden);
        assert_eq!(MarkRow::decode(golden), Ok(MarkRow { mark: Timestamp(258) }));
    }
}
