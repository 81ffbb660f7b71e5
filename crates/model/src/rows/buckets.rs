//! Rows of the `$bucket` index: one per bucket that has or had keys, with the shard counts of its `$key` index.

use bytes::Bytes;

use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};
use crate::limits::KEY_VIEW_SHARDS;

const VERSION: u8 = 1;
const EPOCHS_MAX: usize = 16;

/// The value of a row of the `$bucket` index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketRow {
    /// Shard count of the `$key` index in each epoch. Readers merge all epochs, writers use the last.
    pub epochs: Vec<u8>,
}

impl Default for BucketRow {
    fn default() -> Self {
        Self { epochs: vec![KEY_VIEW_SHARDS] }
    }
}

impl BucketRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 2 + self.epochs.len());
        out.bytes(&self.epochs);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let epochs = rest.bytes()?;
        rest.finish()?;
        if epochs.is_empty() || epochs.len() > EPOCHS_MAX || epochs.contains(&0) {
            return Err(DecodeError::Invalid("epochs"));
        }
        Ok(Self { epochs: epochs.into() })
    }

    /// The epoch and shard for new index rows of `key`.
    #[must_use]
    pub fn shard_of(&self, key: &[u8]) -> (u8, u8) {
        let epoch = self.epochs.len() - 1;
        let shards = u64::from(self.epochs[epoch]);
        (epoch as u8, (crate::hash::id64(&[key]) % shards) as u8)
    }

    /// Every (epoch, shard) that a reader has to merge.
    pub fn shards(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        self.epochs.iter().enumerate().flat_map(|(epoch, &shards)| (0..shards).map(move |shard| (epoch as u8, shard)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>, key: Vec<u8>) {
            if let Ok(row) = BucketRow::decode(bytes.into()) {
                prop_assert!(row.shards().any(|shard| shard == row.shard_of(&key)));
            }
        }
    }

    #[test]
    fn the_golden_bucket_row_still_decodes() {
        let golden = Bytes::from_static(b"\x01\x01\x04");
        assert_eq!(BucketRow::default().encode(), golden);
        assert_eq!(BucketRow::decode(golden), Ok(BucketRow::default()));
        assert_eq!(BucketRow::default().shards().count(), 4);
    }
}
