//! The tables of a transfer, their order, and how each one is copied.

use std::sync::Arc;

use larder_store::{Blobs, Store, Table};

/// How a transfer copies a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferMethod {
    /// Row by row.
    Rows,
    /// Partition by partition, its head last.
    Guarded,
    /// Not copied: the heads rebuild these rows. They are counted for the comparison.
    Derived,
    /// Not copied: these rows belong to running processes.
    Skipped,
}

/// The tables in order, owners before what they own: a sweeper never takes rows of a running import for waste.
pub(crate) const ORDER: [Table; 15] = [
    Table::Catalogue,
    Table::Users,
    Table::Buckets,
    Table::Keys,
    Table::Objects,
    Table::DataTypes,
    Table::Index,
    Table::Consistent,
    // Before the heads: a read of a derived row may make the engine settle it, which raises its head's stamp.
    Table::Entries,
    Table::UploadEntries,
    Table::Heads,
    Table::Uploads,
    Table::Manifests,
    Table::Parts,
    Table::Usage,
];

/// How a transfer copies this table. The match has no wildcard, so a new table must choose.
pub(crate) fn transfer_method(table: Table) -> TransferMethod {
    match table {
        Table::Catalogue | Table::Users | Table::Consistent | Table::Heads | Table::Uploads => TransferMethod::Guarded,
        Table::Objects | Table::Keys | Table::Buckets | Table::DataTypes | Table::Index => TransferMethod::Rows,
        Table::Manifests | Table::Parts | Table::Usage => TransferMethod::Rows,
        Table::Entries | Table::UploadEntries => TransferMethod::Derived,
        Table::Members | Table::Marks | Table::GcMarks | Table::Outbox | Table::Moves => TransferMethod::Skipped,
        // The target seals its rows with keys of its own.
        Table::DataKeys => TransferMethod::Skipped,
    }
}

/// Whether rows keep their stamps, so that a comparison includes them. User rows do not: they replace the target's admin under
/// new stamps.
pub(crate) fn keeps_stamps(table: Table) -> bool {
    table != Table::Users
}

/// Whether a comparison includes the table. Usage is left out: the target's server goes on counting.
pub(crate) fn is_compared(table: Table) -> bool {
    table != Table::Usage
}

/// A store and its blobs.
#[derive(Clone)]
pub struct StorePair {
    /// The rows.
    pub store: Arc<dyn Store>,
    /// The large bodies.
    pub blobs: Arc<dyn Blobs>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_copied_or_skipped_on_purpose() {
        for table in Table::ALL {
            assert_eq!(ORDER.contains(&table), transfer_method(table) != TransferMethod::Skipped, "{table:?}");
            assert_eq!(transfer_method(table) == TransferMethod::Guarded, table.is_guarded(), "{table:?}");
            assert_eq!(
                transfer_method(table) == TransferMethod::Derived,
                larder_store::DerivedRow::TABLES.contains(&table),
                "{table:?}"
            );
        }
    }

    #[test]
    fn owners_come_before_what_they_own() {
        let at = |table| ORDER.iter().position(|entry| *entry == table).unwrap();
        for (owner, owned) in [
            (Table::Catalogue, Table::Objects),
            (Table::Catalogue, Table::Uploads),
            (Table::Heads, Table::Manifests),
            (Table::Uploads, Table::Parts),
            (Table::Entries, Table::Heads),
            (Table::UploadEntries, Table::Uploads),
        ] {
            assert!(at(owner) < at(owned), "{owner:?} {owned:?}");
        }
    }
}
