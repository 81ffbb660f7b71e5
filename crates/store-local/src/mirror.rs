//! The mirror: the server's own rows once more, in a tree of its own.
//!
//! No start can do without the bucket types, the S3 buckets and the users, and no write to a bucket without its row in the list
//! of buckets; sealed rows do not open without their data key. One damaged block could take them along. So every group writes
//! these rows twice, under the same keys: to the tree of their table and to the mirror, which shares no file with it. A read that
//! finds damage in the one takes them from the other.
//!
//! ```text
//! group ─┬─▶ wide, packed    rows of clients, and the server's own
//!        └─▶ mirror          the server's own
//! ```

use bytes::Bytes;
use larder_store::{Kind, Result, Table};

use crate::tree_id::TreeId;

/// The tables that have a mirror.
pub(crate) const TABLES: [Table; 6] =
    [Table::Buckets, Table::Catalogue, Table::Members, Table::Marks, Table::Users, Table::DataKeys];

/// Whether a table has a mirror.
pub(crate) fn holds(table: Table) -> bool {
    TABLES.contains(&table)
}

/// Whether the table of a key has a mirror.
pub(crate) fn holds_key(key: &[u8]) -> bool {
    mirrored_tree(key).is_some()
}

/// The tree of a key whose table has a mirror.
pub(crate) fn mirrored_tree(key: &[u8]) -> Option<TreeId> {
    let table = Table::from_code(*key.first()?).filter(|table| holds(*table))?;
    Some(TreeId::for_table(table))
}

/// Adds the writes of the mirror to those of a group.
pub(crate) fn add_copies(writes: &mut Vec<(TreeId, Bytes, Option<Bytes>)>) {
    let copied = writes.iter().filter(|(_, key, _)| holds_key(key));
    let copies: Vec<_> = copied.map(|(_, key, value)| (TreeId::Mirror, key.clone(), value.clone())).collect();
    writes.extend(copies);
}

/// Runs a read of a table in the tree of its rows, and once more in the mirror if that is damaged.
///
/// # Errors
/// The error of the first read if the second fails, too.
pub(crate) fn read<T>(table: Table, read: impl Fn(TreeId) -> Result<T>) -> Result<T> {
    // Damage: the other copy was written by the same groups [invariant 143].
    match read(TreeId::for_table(table)) {
        Err(error) if error.kind == Kind::Damaged && holds(table) => read(TreeId::Mirror).map_err(|_| error),
        done => done,
    }
}
