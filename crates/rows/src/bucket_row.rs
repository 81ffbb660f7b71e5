//! Rows of the `$bucket` index: one per bucket that has or had keys.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::limits::KEY_VIEW_SHARDS;

const VERSION: u8 = 1;

/// The value of a row of the `$bucket` index: the shards of the bucket's first epoch. The catalogue has those that opened since
/// ([`super::BucketEpochs`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketRow;

impl BucketRow {
    /// The stored form.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 3);
        out.bytes(&[KEY_VIEW_SHARDS]);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let shards = rest.bytes()?;
        rest.finish()?;
        if shards[..] == [KEY_VIEW_SHARDS] { Ok(Self) } else { Err(DecodeError::Invalid("shards")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = BucketRow::decode(bytes.into());
        }
    }

    #[test]
    fn the_golden_bucket_row_still_decodes() {
        let golden = Bytes::from_static(b"\x01\x01\x04");
        assert_eq!(BucketRow.encode(), golden);
        assert_eq!(BucketRow::decode(golden), Ok(BucketRow));
    }
}
