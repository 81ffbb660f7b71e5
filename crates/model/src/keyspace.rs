//! The whole stored schema: every table, and how an address becomes a partition.
//!
//! ```text
//! table              partition                       row
//! objects            type, bucket, key               slot, or SHA-1 of the content (write_once)
//! consistent         type, bucket, key               the head alone
//! keys   ($key)      type, bucket, epoch, shard      key, slot
//! buckets ($bucket)  type                            bucket
//! catalogue          "catalogue"                     kind, type[, bucket]; the head is its number
//! members            "members"                       actor
//! marks              "marks"                         node name
//! ```
//! Plain and guarded tables never share rows. Numbers and layouts are part of the format: see `docs/format.md`.

use bytes::Bytes;

use crate::address::{Address, BucketAddress};
use crate::codec::Encoder;

/// How an engine may keep a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Few rows, always read whole: one entry.
    Packed,
    /// Any number of rows, read in ranges: an entry each.
    Wide,
}

/// A table. The number is its byte in every stored key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// Key-value objects.
    Objects = 1,
    /// Key-value objects of `consistent` types.
    Consistent = 2,
    /// The `$key` view: keys of a bucket.
    Keys = 3,
    /// The `$bucket` view: buckets of a type.
    Buckets = 4,
    /// Bucket types, own bucket properties, settings.
    Catalogue = 5,
    /// Heartbeats of running gateways.
    Members = 6,
    /// High-water marks of clocks.
    Marks = 7,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 7] =
        [Self::Objects, Self::Consistent, Self::Keys, Self::Buckets, Self::Catalogue, Self::Members, Self::Marks];

    /// How an engine may keep its partitions.
    #[must_use]
    pub fn layout(self) -> Layout {
        match self {
            Self::Objects | Self::Consistent | Self::Marks => Layout::Packed,
            Self::Keys | Self::Buckets | Self::Catalogue | Self::Members => Layout::Wide,
        }
    }

    /// Whether its partitions have a head and change by `apply_if` alone.
    #[must_use]
    pub fn is_guarded(self) -> bool {
        matches!(self, Self::Consistent | Self::Catalogue)
    }

    /// The byte in stored keys.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The table with this byte.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.code() == code)
    }

    /// Name for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Consistent => "consistent",
            Self::Keys => "keys",
            Self::Buckets => "buckets",
            Self::Catalogue => "catalogue",
            Self::Members => "members",
            Self::Marks => "marks",
        }
    }
}

/// One partition of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// The table.
    pub table: Table,
    /// Its key inside the table.
    pub key: Bytes,
}

impl Partition {
    /// Rows of a key-value object; `consistent` types have their own table.
    #[must_use]
    pub fn object(address: &Address, consistent: bool) -> Self {
        let mut key = bucket_prefix(&address.bucket, address.key.len());
        key.raw(&address.key);
        Self { table: if consistent { Table::Consistent } else { Table::Objects }, key: key.finish() }
    }

    /// One shard of the `$key` view of a bucket.
    #[must_use]
    pub fn keys(bucket: &BucketAddress, epoch: u8, shard: u8) -> Self {
        let mut key = bucket_prefix(bucket, 2);
        key.u8(epoch);
        key.u8(shard);
        Self { table: Table::Keys, key: key.finish() }
    }

    /// The `$bucket` view of a type.
    #[must_use]
    pub fn buckets(bucket_type: &Bytes) -> Self {
        Self { table: Table::Buckets, key: bucket_type.clone() }
    }

    /// The catalogue: there is one.
    #[must_use]
    pub fn catalogue() -> Self {
        Self { table: Table::Catalogue, key: Bytes::from_static(b"catalogue") }
    }

    /// The heartbeats: there is one.
    #[must_use]
    pub fn members() -> Self {
        Self { table: Table::Members, key: Bytes::from_static(b"members") }
    }

    /// The clock marks: there is one.
    #[must_use]
    pub fn marks() -> Self {
        Self { table: Table::Marks, key: Bytes::from_static(b"marks") }
    }
}

fn bucket_prefix(bucket: &BucketAddress, more: usize) -> Encoder {
    let mut key = Encoder::with_capacity(bucket.bucket_type.len() + bucket.bucket.len() + more + 4);
    key.bytes(&bucket.bucket_type);
    key.bytes(&bucket.bucket);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_codes_are_unique_and_come_back() {
        for table in Table::ALL {
            assert_eq!(Table::from_code(table.code()), Some(table));
        }
        assert_eq!(Table::from_code(0), None);
    }
}
