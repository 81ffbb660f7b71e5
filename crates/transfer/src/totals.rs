//! Counts and checksums of each table. A checksum does not depend on the order of the rows.

use std::collections::BTreeMap;

use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Partition, Row, Table, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::scope;

/// The total of one table, or of the blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableTotal {
    /// Rows without an expiry, or blobs.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows with an expiry: copied, but not compared.
    pub expiring: u64,
    /// The sum of the digests of rows without an expiry, as 32 hexadecimal digits.
    #[serde(with = "hex")]
    pub sum: u128,
}

/// Totals of a whole store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Totals by table name.
    pub tables: BTreeMap<String, TableTotal>,
    /// The total of the blobs.
    pub blobs: TableTotal,
    /// The greatest stamp of any row.
    pub greatest: Timestamp,
    /// Partitions read.
    pub partitions: u64,
}

impl Totals {
    /// The total of a table.
    #[must_use]
    pub fn table(&self, table: Table) -> TableTotal {
        self.tables.get(table.name()).copied().unwrap_or_default()
    }

    /// Counts a row.
    pub(crate) fn row(&mut self, partition: &Partition, row: &Row) {
        let table = partition.table;
        if !self.tables.contains_key(table.name()) {
            self.tables.insert(table.name().to_owned(), TableTotal::default());
        }
        let Some(total) = self.tables.get_mut(table.name()) else { return };
        // Rows with an expiry may be gone at the comparison, so their digests do not count.
        if row.expires.is_some() {
            total.expiring += 1;
        } else {
            total.count += 1;
            total.bytes += (partition.key.len() + row.name.len() + row.value.len()) as u64;
            total.sum = total.sum.wrapping_add(partition_digest(partition, row));
        }
        if scope::keeps_stamps(table) {
            self.greatest = self.greatest.max(row.stamp);
        }
    }

    /// Counts a blob.
    pub(crate) fn blob(&mut self, length: u64, digest: u128) {
        self.blobs.count += 1;
        self.blobs.bytes += length;
        self.blobs.sum = self.blobs.sum.wrapping_add(digest);
    }

    /// Rows of all tables.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.tables.values().map(|total| total.count + total.expiring).sum()
    }

    /// Bytes of rows and blobs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.values().map(|total| total.bytes).sum::<u64>() + self.blobs.bytes
    }

    /// A line for each table whose total differs in `actual`.
    pub(crate) fn differences(&self, actual: &Self) -> Vec<String> {
        let compared = scope::ORDER.into_iter().filter(|table| scope::is_compared(*table));
        let tables = compared.map(|table| (table, self.table(table), actual.table(table)));
        // An export without users leaves the target's own users in place.
        let tables = tables.filter(|(table, expected, _)| *table != Table::Users || expected.count > 0);
        let tables = tables.map(|(table, expected, actual)| (table.name(), expected, actual));
        let all = tables.chain([("blobs", self.blobs, actual.blobs)]);
        all.filter_map(|(name, expected, actual)| difference(name, expected, actual)).collect()
    }

    /// A line for each table and the blobs, in columns.
    #[must_use]
    pub fn text(&self) -> String {
        let tables = scope::ORDER.iter().map(|table| (table.name(), self.table(*table)));
        let mut out = format!("{:<16}{:>12}{:>10}{:>16}  {}\n", "table", "rows", "expiring", "bytes", "checksum");
        for (name, total) in tables.chain([("blobs", self.blobs)]) {
            let TableTotal { count, bytes, expiring, sum } = total;
            out.push_str(&format!("{name:<16}{count:>12}{expiring:>10}{bytes:>16}  {sum:032x}\n"));
        }
        out
    }
}

fn difference(name: &str, expected: TableTotal, actual: TableTotal) -> Option<String> {
    if (expected.count, expected.sum) == (actual.count, actual.sum) {
        return None;
    }
    let TableTotal { count, sum, .. } = expected;
    Some(format!("{name}: exported {count} with checksum {sum:032x}, found {} with {:032x}", actual.count, actual.sum))
}

/// The digest of a row and its address. It leaves out the number of copies, which follows from the type.
fn partition_digest(partition: &Partition, row: &Row) -> u128 {
    // An import gives such rows new stamps, so their stamps are not compared.
    let stamp = if scope::keeps_stamps(partition.table) { row.stamp } else { Timestamp::ZERO };
    let mut digest = Sha256::new();
    digest.update([partition.table.code()]);
    for text in [&partition.key, &row.name, &row.value] {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    digest.update(stamp.0.to_be_bytes());
    front(&digest.finalize())
}

/// The digest of a blob, built from its pieces.
pub(crate) struct BlobDigest(Sha256);

impl BlobDigest {
    /// The digest of a blob with this identity, owner and length.
    pub(crate) fn new(id: BlobId, owner: &BlobOwner, length: u64) -> Self {
        let mut digest = Sha256::new();
        digest.update(id.0);
        digest.update([owner.partition.table.code()]);
        for text in [&owner.partition.key, &owner.row] {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
        digest.update(length.to_be_bytes());
        Self(digest)
    }

    /// Adds the next piece.
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of the whole blob.
    pub(crate) fn finish(self) -> u128 {
        front(&self.0.finalize())
    }
}

fn front(digest: &[u8]) -> u128 {
    digest.iter().take(16).fold(0, |sum, &byte| (sum << 8) | u128::from(byte))
}

/// Hexadecimal text: not every JSON reader holds 128-bit numbers.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(sum: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{sum:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
    }
}

/// The phase of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Store to folder.
    Export,
    /// Folder to store.
    Import,
    /// Comparison of a store with a folder.
    Verify,
}

/// The progress of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferProgress {
    /// The phase.
    pub phase: Phase,
    /// The table being read, or `blobs`.
    pub table: &'static str,
    /// Rows so far.
    pub rows: u64,
    /// Blobs so far.
    pub blobs: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// The part of the whole that is done, from 0 to 1, where the whole is known.
    pub fraction: Option<f64>,
}

impl TransferProgress {
    /// The progress that these totals show.
    pub(crate) fn new(phase: Phase, table: &'static str, totals: &Totals, fraction: Option<f64>) -> Self {
        Self { phase, table, rows: totals.rows(), blobs: totals.blobs.count, bytes: totals.bytes(), fraction }
    }
}

/// The function that receives progress.
pub(crate) type ProgressCallback<'a> = &'a (dyn Fn(TransferProgress) + Send + Sync);

impl Phase {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Import => "import",
            Self::Verify => "verify",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, value: &'static str, stamp: Timestamp, expires: Option<u64>) -> Row {
        Row { name: name.into(), value: value.into(), stamp, expires: expires.map(Timestamp) }
    }

    fn totals<'a>(table: Table, rows: impl IntoIterator<Item = &'a Row>) -> Totals {
        let mut totals = Totals::default();
        rows.into_iter().for_each(|row| totals.row(&Partition::new(table, "p"), row));
        totals
    }

    #[test]
    fn a_checksum_ignores_the_order_and_sees_every_other_change() {
        let rows = [row("a", "1", Timestamp(1), None), row("b", "2", Timestamp(2), None)];
        let whole = totals(Table::Objects, &rows);
        assert_eq!(whole, totals(Table::Objects, rows.iter().rev()));
        for other in [
            row("b", "3", Timestamp(2), None),
            row("c", "2", Timestamp(2), None),
            row("b", "2", Timestamp(3), None),
            row("a", "1", Timestamp(1), None),
        ] {
            let changed = totals(Table::Objects, [&rows[0], &other]);
            assert_eq!(whole.differences(&changed).len(), 1, "{other:?}");
        }
        assert_eq!(whole.differences(&totals(Table::Keys, &rows)).len(), 2, "another table");
        assert_eq!(whole.greatest, Timestamp(2));
    }

    #[test]
    fn expiring_rows_are_counted_and_not_compared() {
        let (stays, goes) = (row("a", "1", Timestamp(1), None), row("b", "2", Timestamp(2), Some(9)));
        let whole = totals(Table::Objects, [&stays, &goes]);
        assert_eq!(whole.table(Table::Objects).expiring, 1);
        assert_eq!(whole.differences(&totals(Table::Objects, [&stays])), Vec::<String>::new());
    }

    #[test]
    fn users_are_compared_without_their_stamps() {
        let of = |stamp| totals(Table::Users, [&row("u", "x", stamp, None)]);
        assert_eq!(of(Timestamp(1)).differences(&of(Timestamp(2))), Vec::<String>::new());
        assert_eq!(of(Timestamp(1)).greatest, Timestamp::ZERO);
    }

    #[test]
    fn totals_decode_from_their_json() {
        let mut whole = totals(Table::Heads, [&row("", "v", Timestamp(7), None)]);
        whole.blob(5, u128::MAX - 1);
        let json = serde_json::to_vec(&whole).unwrap();
        assert_eq!(serde_json::from_slice::<Totals>(&json).unwrap(), whole);
    }
}
