//! What there is of each table: counts, and a checksum that does not depend on the order rows are met in.

use std::collections::BTreeMap;

use larder_model::content::BlobId;
use larder_store::{BlobOwner, Partition, Row, Stamp, Table};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::scope;

/// One table, or the blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Rows that stay, or blobs.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows that expire, and so are counted and copied, but not compared.
    pub expiring: u64,
    /// The sum of the digests of what stays, as 32 hexadecimal digits.
    #[serde(with = "hex")]
    pub sum: u128,
}

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// By the name of the table.
    pub tables: BTreeMap<String, Total>,
    /// The bodies beside the rows.
    pub blobs: Total,
    /// The greatest stamp of any row.
    pub greatest: Stamp,
    /// Partitions that were read.
    pub partitions: u64,
}

impl Totals {
    /// What there is of a table.
    #[must_use]
    pub fn of(&self, table: Table) -> Total {
        self.tables.get(table.name()).copied().unwrap_or_default()
    }

    /// Counts a row.
    pub(crate) fn row(&mut self, partition: &Partition, row: &Row) {
        let table = partition.table;
        if !self.tables.contains_key(table.name()) {
            self.tables.insert(table.name().to_owned(), Total::default());
        }
        let Some(total) = self.tables.get_mut(table.name()) else { return };
        if row.expires.is_some() {
            total.expiring += 1;
        } else {
            total.count += 1;
            total.bytes += (partition.key.len() + row.name.len() + row.value.len()) as u64;
            total.sum = total.sum.wrapping_add(digest_of(partition, row));
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

    /// A line for each table that is not the same in `found`.
    pub(crate) fn differences(&self, found: &Self) -> Vec<String> {
        let compared = scope::ORDER.into_iter().filter(|table| scope::is_compared(*table));
        let tables = compared.map(|table| (table, self.of(table), found.of(table)));
        // Without users in the export the target keeps its own.
        let tables = tables.filter(|(table, wanted, _)| *table != Table::Users || wanted.count > 0);
        let tables = tables.map(|(table, wanted, found)| (table.name(), wanted, found));
        let all = tables.chain([("blobs", self.blobs, found.blobs)]);
        all.filter_map(|(name, wanted, found)| difference(name, wanted, found)).collect()
    }

    /// A line for each table and the blobs, in columns.
    #[must_use]
    pub fn text(&self) -> String {
        let tables = scope::ORDER.iter().map(|table| (table.name(), self.of(*table)));
        let mut out = format!("{:<16}{:>12}{:>10}{:>16}  {}\n", "table", "rows", "expiring", "bytes", "checksum");
        for (name, total) in tables.chain([("blobs", self.blobs)]) {
            let Total { count, bytes, expiring, sum } = total;
            out.push_str(&format!("{name:<16}{count:>12}{expiring:>10}{bytes:>16}  {sum:032x}\n"));
        }
        out
    }
}

fn difference(name: &str, wanted: Total, found: Total) -> Option<String> {
    if (wanted.count, wanted.sum) == (found.count, found.sum) {
        return None;
    }
    let Total { count, sum, .. } = wanted;
    Some(format!("{name}: exported {count} with checksum {sum:032x}, found {} with {:032x}", found.count, found.sum))
}

/// The digest of a row at its place. The number of copies is not part of it: it follows from the type.
fn digest_of(partition: &Partition, row: &Row) -> u128 {
    let stamp = if scope::keeps_stamps(partition.table) { row.stamp } else { 0 };
    let mut digest = Sha256::new();
    digest.update([partition.table.code()]);
    for text in [&partition.key, &row.name, &row.value] {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    }
    digest.update(stamp.to_be_bytes());
    front(&digest.finalize())
}

/// The digest of a blob, made of its pieces.
pub(crate) struct BlobDigest(Sha256);

impl BlobDigest {
    /// Of a blob with this identity, owner and length.
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

    /// Takes the next piece.
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all of it.
    pub(crate) fn finish(self) -> u128 {
        front(&self.0.finalize())
    }
}

fn front(digest: &[u8]) -> u128 {
    digest.iter().take(16).fold(0, |sum, &byte| (sum << 8) | u128::from(byte))
}

/// JSON numbers do not hold 128 bits everywhere.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(sum: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{sum:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, value: &'static str, stamp: Stamp, expires: Option<u64>) -> Row {
        Row { name: name.into(), value: value.into(), stamp, expires }
    }

    fn totals<'a>(table: Table, rows: impl IntoIterator<Item = &'a Row>) -> Totals {
        let mut totals = Totals::default();
        rows.into_iter().for_each(|row| totals.row(&Partition::own(table, "p"), row));
        totals
    }

    #[test]
    fn the_order_does_not_matter_and_everything_else_does() {
        let rows = [row("a", "1", 1, None), row("b", "2", 2, None)];
        let whole = totals(Table::Objects, &rows);
        assert_eq!(whole, totals(Table::Objects, rows.iter().rev()));
        for other in [row("b", "3", 2, None), row("c", "2", 2, None), row("b", "2", 3, None), row("a", "1", 1, None)] {
            let found = totals(Table::Objects, [&rows[0], &other]);
            assert_eq!(whole.differences(&found).len(), 1, "{other:?}");
        }
        assert_eq!(whole.differences(&totals(Table::Keys, &rows)).len(), 2, "another table");
        assert_eq!(whole.greatest, 2);
    }

    #[test]
    fn what_expires_is_counted_and_not_compared() {
        let (stays, goes) = (row("a", "1", 1, None), row("b", "2", 2, Some(9)));
        let whole = totals(Table::Objects, [&stays, &goes]);
        assert_eq!(whole.of(Table::Objects).expiring, 1);
        assert_eq!(whole.differences(&totals(Table::Objects, [&stays])), Vec::<String>::new());
    }

    #[test]
    fn users_are_compared_without_their_stamps() {
        let of = |stamp| totals(Table::Users, [&row("u", "x", stamp, None)]);
        assert_eq!(of(1).differences(&of(2)), Vec::<String>::new());
        assert_eq!(of(1).greatest, 0);
    }

    #[test]
    fn totals_come_back_from_json() {
        let mut whole = totals(Table::Heads, [&row("", "v", 7, None)]);
        whole.blob(5, u128::MAX - 1);
        let json = serde_json::to_vec(&whole).unwrap();
        assert_eq!(serde_json::from_slice::<Totals>(&json).unwrap(), whole);
    }
}
