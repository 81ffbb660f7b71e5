//! Clock marks: the upper bounds of the clocks that gateways have issued.

use bytes::Bytes;

use crate::Timestamp;
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = MarkRow::decode(bytes.into());
        }
    }

    #[test]
    fn the_golden_mark_row_still_decodes() {
        let golden = Bytes::from_static(b"\x01\0\0\0\0\0\0\x01\x02");
        assert_eq!(MarkRow { mark: Timestamp(258) }.encode(), golden);
        assert_eq!(MarkRow::decode(golden), Ok(MarkRow { mark: Timestamp(258) }));
    }
}
