//! Rows of the keys that seal all other rows of a store.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};

const VERSION: u8 = 1;
/// Bytes of a wrapped data key: nonce, key, tag.
const WRAPPED_BYTES: usize = 60;

/// A data key, wrapped by a master key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataKeyRow {
    /// The id of the master key.
    pub master_key: [u8; 8],
    /// The wrapped data key.
    pub wrapped_key: [u8; WRAPPED_BYTES],
}

impl DataKeyRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 1 + 8 + WRAPPED_BYTES);
        out.raw(&self.master_key);
        out.raw(&self.wrapped_key);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let row = Self { master_key: rest.array()?, wrapped_key: rest.array()? };
        rest.finish()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_data_key_row_still_decodes() {
        let row = DataKeyRow { master_key: [1; 8], wrapped_key: [2; WRAPPED_BYTES] };
        let golden = Bytes::from([&[1][..], &[1; 8], &[2; WRAPPED_BYTES]].concat());
        assert_eq!(row.encode(), golden);
        assert_eq!(DataKeyRow::decode(golden.clone()), Ok(row));
        assert_eq!(DataKeyRow::decode(golden.slice(..60)), Err(DecodeError::Truncated));
    }
}
