//! Which tables are copied, in which order, and how.

use larder_store::Table;

/// How a table gets over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Row by row.
    Rows,
    /// Partition by partition, its head last.
    Guarded,
    /// Not at all: it comes with its heads. It is counted, so that it can be compared.
    Shadow,
    /// Not at all: it is about running processes.
    Left,
}

/// The tables that are looked at, owners before what they own: so no sweeper takes for waste what is on its way.
pub(crate) const ORDER: [Table; 13] = [
    Table::Catalogue,
    Table::Users,
    Table::Buckets,
    Table::Keys,
    Table::Objects,
    Table::Consistent,
    // Before the heads: looking at a shadow may make the engine settle it, and give its head a greater stamp.
    Table::Entries,
    Table::UploadEntries,
    Table::Heads,
    Table::Uploads,
    Table::Manifests,
    Table::Parts,
    Table::Usage,
];

/// How a table gets over. A new table has to be named here.
pub(crate) fn how(table: Table) -> How {
    match table {
        Table::Catalogue | Table::Users | Table::Consistent | Table::Heads | Table::Uploads => How::Guarded,
        Table::Objects | Table::Keys | Table::Buckets | Table::Manifests | Table::Parts | Table::Usage => How::Rows,
        Table::Entries | Table::UploadEntries => How::Shadow,
        Table::Members | Table::Marks | Table::Doomed => How::Left,
    }
}

/// Whether rows keep their stamps, so that these are compared too. Those of users do not: a new server has an admin already,
/// and its rows are replaced.
pub(crate) fn keeps_stamps(table: Table) -> bool {
    table != Table::Users
}

/// Whether a difference is one: a server goes on counting what its S3 users do.
pub(crate) fn is_compared(table: Table) -> bool {
    table != Table::Usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_looked_at_or_left_on_purpose() {
        for table in Table::ALL {
            assert_eq!(ORDER.contains(&table), how(table) != How::Left, "{table:?}");
            assert_eq!(how(table) == How::Guarded, table.is_guarded(), "{table:?}");
            assert_eq!(how(table) == How::Shadow, larder_store::Shadow::TABLES.contains(&table), "{table:?}");
        }
    }

    #[test]
    fn owners_go_first() {
        let at = |table| ORDER.iter().position(|one| *one == table).unwrap();
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
