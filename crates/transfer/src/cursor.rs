//! The position of a scan, stored at the end of each segment so that an export can resume.

use std::collections::VecDeque;

use bytes::Bytes;
use hex::FromHexError;
use larder_store::Partition;
use serde::{Deserialize, Serialize};

use crate::scope::ORDER;

/// A position between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScanCursor {
    /// The index of the table in [`ORDER`]. The blobs come after the last table, and the end after the blobs.
    pub(crate) step: usize,
    /// Whether the table's first page of partitions was listed.
    pub(crate) listed: bool,
    /// The engine's position in the table's partitions, or the last blob taken.
    pub(crate) next: Option<HexBytes>,
    /// Listed partitions that are still to be read.
    pub(crate) rest: VecDeque<PendingPartition>,
    /// The last row taken of the first of `rest`.
    pub(crate) within: Option<HexBytes>,
}

/// A partition of the cursor's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingPartition {
    n_val: u8,
    key: HexBytes,
}

/// Bytes, written as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct HexBytes(pub(crate) Bytes);

impl ScanCursor {
    /// The step of the blobs.
    pub(crate) const BLOBS: usize = ORDER.len();

    /// Begins the next step.
    pub(crate) fn begin_next_step(&mut self) {
        *self = Self { step: self.step + 1, ..Self::default() };
    }

    /// Whether the scan took everything.
    pub(crate) fn is_at_end(&self) -> bool {
        self.step > Self::BLOBS
    }

    /// The partition being read.
    pub(crate) fn partition(&self) -> Option<Partition> {
        self.rest.front().and_then(|pending| self.pending_partition(pending))
    }

    /// A listed partition.
    pub(crate) fn pending_partition(&self, pending: &PendingPartition) -> Option<Partition> {
        let table = *ORDER.get(self.step)?;
        Some(Partition { table, copies: pending.n_val, key: pending.key.0.clone() })
    }

    /// Stores a page of partitions.
    pub(crate) fn take_page(&mut self, partitions: Vec<Partition>, next: Option<Bytes>) {
        self.listed = true;
        self.next = next.map(HexBytes);
        self.rest = partitions
            .into_iter()
            .map(|partition| PendingPartition { n_val: partition.copies, key: HexBytes(partition.key) })
            .collect();
    }
}

impl From<HexBytes> for String {
    fn from(name: HexBytes) -> Self {
        hex::encode(name.0)
    }
}

impl TryFrom<String> for HexBytes {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = hex::decode(text).map_err(|error| match error {
            FromHexError::OddLength => "an odd number of digits",
            _ => "no digits",
        })?;
        Ok(Self(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::Table;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_decode_from_their_hex_digits(bytes: Vec<u8>) {
            let name = HexBytes(bytes.into());
            prop_assert_eq!(HexBytes::try_from(String::from(name.clone())), Ok(name));
        }

        #[test]
        fn arbitrary_text_decodes_or_fails_without_a_panic(text: String) {
            let _ = HexBytes::try_from(text);
        }
    }

    #[test]
    fn a_cursor_decodes_from_its_json() {
        let mut cursor = ScanCursor::default();
        cursor.take_page(vec![Partition { table: ORDER[0], copies: 5, key: "\u{1}k".into() }], Some("n".into()));
        cursor.within = Some(HexBytes("row".into()));
        let json = serde_json::to_vec(&cursor).unwrap();
        assert_eq!(serde_json::from_slice::<ScanCursor>(&json).unwrap(), cursor);
        assert_eq!(
            cursor.partition().map(|partition| (partition.table, partition.copies)),
            Some((Table::Catalogue, 5))
        );
        cursor.step = ScanCursor::BLOBS;
        assert_eq!(cursor.partition(), None);
        cursor.begin_next_step();
        assert!(cursor.is_at_end());
    }
}
