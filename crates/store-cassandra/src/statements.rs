//! Every statement that is sent, in one place: `tests/cql.rs` checks each word against the documentation of both
//! engines.
//!
//! ```text
//! plain table      p blob, r blob, v blob                        the stamp is the cell's timestamp
//! guarded table    p blob, r blob, v blob, s bigint, w blob      the stamp is `s`: transactions choose their own timestamps
//!                                                                `w`, of heads: the ids of the last writers
//! layout           name text, value text                         the version of this layout, and the lock of its creator
//! ```
//! Rows are written by `UPDATE`, never by `INSERT`: a row then has no row marker that would outlive its cells.

use larder_store::{Partition, Table};

use crate::options::Replication;

/// A statement on rows, prepared once for each table that needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowStatement {
    /// One row: p, r.
    One,
    /// Rows from a name: p, r, limit.
    Forward,
    /// Rows from a name to another: p, r, r, limit.
    ForwardTo,
    /// As [`Self::Forward`], descending.
    Reverse,
    /// As [`Self::ForwardTo`], descending.
    ReverseTo,
    /// Writes a row of a plain table: stamp, ttl, v, p, r.
    Put,
    /// Removes a row of a plain table: stamp, p, r.
    Remove,
    /// Removes all rows of a partition of a plain table: stamp, p.
    Clear,
    /// Writes the head of a guarded partition: ttl, v, s, w, p, r, and the stamp it replaces.
    CompareAndSet,
    /// Writes another row with a head: ttl, v, s, p, r.
    PutBeside,
    /// Removes another row with a head: p, r.
    RemoveBeside,
    /// The first partitions of a table: limit.
    List,
    /// Partitions from a key: p, limit.
    ListFrom,
}

impl RowStatement {
    /// Every statement.
    pub const ALL: [Self; 13] = [
        Self::One,
        Self::Forward,
        Self::ForwardTo,
        Self::Reverse,
        Self::ReverseTo,
        Self::Put,
        Self::Remove,
        Self::Clear,
        Self::CompareAndSet,
        Self::PutBeside,
        Self::RemoveBeside,
        Self::List,
        Self::ListFrom,
    ];

    /// The text for a table of a keyspace.
    #[must_use]
    pub fn text(self, keyspace: &str, table: Table) -> String {
        let at = at(keyspace, table);
        let columns = if table.is_guarded() { "r, v, s, w" } else { "r, v, WRITETIME(v)" };
        let rows = format!("SELECT {columns} FROM {at} WHERE p = ?");
        match self {
            Self::One => format!("{rows} AND r = ?"),
            Self::Forward => format!("{rows} AND r >= ? ORDER BY r ASC LIMIT ?"),
            Self::ForwardTo => format!("{rows} AND r >= ? AND r < ? ORDER BY r ASC LIMIT ?"),
            Self::Reverse => format!("{rows} AND r >= ? ORDER BY r DESC LIMIT ?"),
            Self::ReverseTo => format!("{rows} AND r >= ? AND r < ? ORDER BY r DESC LIMIT ?"),
            Self::Put => format!("UPDATE {at} USING TIMESTAMP ? AND TTL ? SET v = ? WHERE p = ? AND r = ?"),
            Self::Remove => format!("DELETE FROM {at} USING TIMESTAMP ? WHERE p = ? AND r = ?"),
            Self::Clear => format!("DELETE FROM {at} USING TIMESTAMP ? WHERE p = ?"),
            Self::CompareAndSet => {
                format!("UPDATE {at} USING TTL ? SET v = ?, s = ?, w = ? WHERE p = ? AND r = ? IF s = ?")
            }
            Self::PutBeside => format!("UPDATE {at} USING TTL ? SET v = ?, s = ? WHERE p = ? AND r = ?"),
            Self::RemoveBeside => format!("DELETE FROM {at} WHERE p = ? AND r = ?"),
            Self::List => format!("SELECT p, TTL(v) FROM {at} PER PARTITION LIMIT 1 LIMIT ?"),
            Self::ListFrom => {
                format!("SELECT p, TTL(v) FROM {at} WHERE token(p) >= token(?) PER PARTITION LIMIT 1 LIMIT ?")
            }
        }
    }

    /// Whether executing the statement twice is the same as once.
    pub(crate) fn is_idempotent(self) -> bool {
        // A second transaction would get a new timestamp, perhaps after another writer's.
        !matches!(self, Self::CompareAndSet | Self::PutBeside | Self::RemoveBeside)
    }

    /// Whether the statement only reads.
    pub(crate) fn is_read(self) -> bool {
        !matches!(
            self,
            Self::Put | Self::Remove | Self::Clear | Self::CompareAndSet | Self::PutBeside | Self::RemoveBeside
        )
    }

    /// Whether the statement is used for a table.
    #[must_use]
    pub fn fits(self, table: Table) -> bool {
        match self {
            Self::Put | Self::Remove | Self::Clear => !table.is_guarded(),
            Self::CompareAndSet | Self::PutBeside | Self::RemoveBeside => table.is_guarded(),
            _ => true,
        }
    }
}

/// The cluster's time, by the node that answers.
pub const TIME: &str = "SELECT toTimestamp(now()) FROM system.local";
/// Tables of a keyspace.
pub const TABLES: &str = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
/// Keyspaces of the cluster.
pub const KEYSPACES: &str = "SELECT keyspace_name FROM system_schema.keyspaces";
/// Settings of a Cassandra node. ScyllaDB has no such table.
pub const SETTINGS: &str = "SELECT name, value FROM system_views.settings";

/// How long each table keeps its tombstones.
pub const TABLE_OPTIONS: &str = "SELECT keyspace_name, table_name, gc_grace_seconds FROM system_schema.tables";
/// The repairs of the last month, [`REPAIRS_MAX`] at most. ScyllaDB has another table.
pub const REPAIRS: &str = "SELECT started_at, keyspace_name, columnfamily_names, successful_ranges \
     FROM system_distributed.parent_repair_history LIMIT 10000";
/// Most repairs that are read.
pub const REPAIRS_MAX: usize = 10_000;
/// Hints that wait on a Cassandra node.
pub const HINTS: &str = "SELECT address, files, oldest FROM system_views.pending_hints";
/// The largest partition of each table on a Cassandra node.
pub const PARTITIONS: &str = "SELECT keyspace_name, table_name, mebibytes FROM system_views.max_partition_size";

/// How long a node waits for a replica before it reads another one. By default as long as 99 of 100 reads take: for a table with
/// few reads that is 2.5 seconds, and a node that has just died makes it more.
pub const SPECULATION: &str = "speculative_retry = '100ms'";

/// Creates the keyspace of `copies` copies, in each named datacenter.
#[must_use]
pub fn create_keyspace(keyspace: &str, replication: &Replication, copies: impl Fn(Option<&str>) -> usize) -> String {
    let places = match replication {
        Replication::Simple => format!("'class': 'SimpleStrategy', 'replication_factor': {}", copies(None)),
        Replication::Datacenters { all, .. } => {
            let each = all.iter().map(|name| format!(", '{}': {}", name.replace('\'', "''"), copies(Some(name))));
            format!("'class': 'NetworkTopologyStrategy'{}", each.collect::<String>())
        }
    };
    format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{places}}}")
}

/// Creates a table.
#[must_use]
pub fn create_table(keyspace: &str, table: Table) -> String {
    let more = if table.is_guarded() { ", s bigint, w blob" } else { "" };
    let options = if is_derived(table) {
        " AND gc_grace_seconds = 86400 AND compaction = {'class': 'LeveledCompactionStrategy'}"
    } else {
        ""
    };
    let at = at(keyspace, table);
    let columns = format!("p blob, r blob, v blob{more}, PRIMARY KEY (p, r)");
    format!("CREATE TABLE IF NOT EXISTS {at} ({columns}) WITH {SPECULATION}{options}")
}

/// The name of a table in statements, quoted because some names are words of CQL.
fn at(keyspace: &str, table: Table) -> String {
    format!("{keyspace}.\"{}\"", table.name())
}

/// The statements on the table of the layout version and its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutStatement {
    /// Creates the table.
    Create,
    /// Reads the version of the layout.
    Version,
    /// Writes the version: value.
    SetVersion,
    /// Takes the lock for a minute: value.
    Lock,
    /// Releases the lock: value.
    Unlock,
}

impl LayoutStatement {
    /// Every statement.
    pub const ALL: [Self; 5] = [Self::Create, Self::Version, Self::SetVersion, Self::Lock, Self::Unlock];

    /// The text for a keyspace.
    #[must_use]
    pub fn text(self, keyspace: &str) -> String {
        let at = format!("{keyspace}.layout");
        match self {
            Self::Create => format!("CREATE TABLE IF NOT EXISTS {at} (name text PRIMARY KEY, value text)"),
            Self::Version => format!("SELECT value FROM {at} WHERE name = 'version'"),
            Self::SetVersion => format!("INSERT INTO {at} (name, value) VALUES ('version', ?) IF NOT EXISTS"),
            Self::Lock => format!("INSERT INTO {at} (name, value) VALUES ('lock', ?) IF NOT EXISTS USING TTL 60"),
            Self::Unlock => format!("DELETE FROM {at} WHERE name = 'lock' IF value = ?"),
        }
    }
}

/// Tables that can be rebuilt from others, or whose rows live for hours: their tombstones last a day, and they are
/// compacted so that a read meets few of them. Not less than a day: hints and logged batches last that long at most.
#[must_use]
pub fn is_derived(table: Table) -> bool {
    match table {
        Table::Keys | Table::Buckets | Table::Index | Table::Members | Table::Entries | Table::UploadEntries => true,
        Table::Parts | Table::Manifests | Table::GcMarks | Table::Usage | Table::Outbox => true,
        Table::Objects | Table::Consistent | Table::DataTypes | Table::Catalogue | Table::Marks => false,
        Table::Heads | Table::Uploads | Table::Users | Table::Moves | Table::DataKeys => false,
    }
}

/// The tables of a keyspace: all of them for the product's own number of copies, otherwise those of bucket types.
#[must_use]
pub fn tables(n_val: u8) -> &'static [Table] {
    if n_val == Partition::DEFAULT_COPIES {
        &Table::ALL
    } else {
        &[Table::Objects, Table::Consistent, Table::Keys, Table::Buckets, Table::DataTypes, Table::Index]
    }
}

/// Name of the keyspace of a number of copies.
#[must_use]
pub fn keyspace(prefix: &str, n_val: u8) -> String {
    format!("{prefix}_n{n_val}")
}

/// The number of copies in the name of a keyspace of ours.
#[must_use]
pub fn n_val_of_keyspace(prefix: &str, name: &str) -> Option<u8> {
    name.strip_prefix(prefix)?.strip_prefix("_n")?.parse().ok().filter(|n_val| keyspace(prefix, *n_val) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspace_names_decode_to_their_number_of_copies() {
        assert_eq!(keyspace("larder", 3), "larder_n3");
        assert_eq!(n_val_of_keyspace("larder", "larder_n3"), Some(3));
        assert_eq!(n_val_of_keyspace("larder", "larder_n255"), Some(255));
        for name in
            ["larder", "larder_n", "larder_n03", "larder_n256", "larder_n-1", "other_n3", "larder_n3x", "larder2_n3"]
        {
            assert_eq!(n_val_of_keyspace("larder", name), None, "{name}");
        }
    }

    #[test]
    fn replication_names_each_datacenter() {
        let simple = create_keyspace("k_n3", &Replication::Simple, |_| 2);
        assert!(simple.ends_with("= {'class': 'SimpleStrategy', 'replication_factor': 2}"), "{simple}");
        let all = vec!["east".to_owned(), "o'west".to_owned()];
        let per_datacenter = create_keyspace("k_n3", &Replication::Datacenters { local: "east".into(), all }, |name| {
            if name == Some("east") { 3 } else { 1 }
        });
        assert!(
            per_datacenter.ends_with("= {'class': 'NetworkTopologyStrategy', 'east': 3, 'o''west': 1}"),
            "{per_datacenter}"
        );
    }

    #[test]
    fn every_table_of_a_bucket_type_is_in_every_keyspace() {
        for table in Table::ALL {
            let of_types = Partition { table, copies: 2, key: "\x01t".into() }.bucket_type().is_some();
            assert_eq!(tables(2).contains(&table), of_types, "{table:?}");
        }
        assert_eq!(tables(Partition::DEFAULT_COPIES).len(), Table::ALL.len());
    }
}
