//! Every statement about blobs, and the two tables they are about.
//!
//! ```text
//! blob_records   first byte of the id | id, run      what there is: one row for each time somebody wrote the blob
//! blob_blocks    id, run, group       | number       the bytes, 64 blocks of 256 KiB in a group
//! ```
//! Records die by removal of their row, so their table keeps tombstones a day: what a node that slept longer brings back is a
//! record nobody names, which is swept again. Blocks die by removal of whole groups, and nothing looks for blocks without a
//! record: there tombstones stay the default time, within which a cluster is repaired.

use std::sync::Arc;
use std::time::Duration;

use larder_store::{Error, Kind, Result};
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::errors;
use crate::prepare::prepare;

/// What errors say was being done.
const BLOBS: &str = "blobs";

/// What makes the tables, by whoever makes those of rows; `{k}` is the keyspace.
pub const SCHEMA: [(&str, &str); 2] = [
    (
        "blob_records",
        "CREATE TABLE IF NOT EXISTS {k}.blob_records (shard int, id blob, run blob, head blob, groups int, \
         length bigint, finished bigint, removed bigint, abandoned bigint, lease boolean, PRIMARY KEY (shard, id, run)) \
         WITH gc_grace_seconds = 86400 AND compaction = {'class': 'LeveledCompactionStrategy'}",
    ),
    (
        "blob_blocks",
        "CREATE TABLE IF NOT EXISTS {k}.blob_blocks (id blob, run blob, grp int, n int, crc int, data blob, \
         PRIMARY KEY ((id, run, grp), n)) WITH compaction = {'class': 'SizeTieredCompactionStrategy'}",
    ),
];

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A statement. All are idempotent: who sends one twice sends the same stamps twice.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Cql { $($(#[$doc])* $name),* }

        impl Cql {
            /// Every statement, in the order of their numbers, with its text; `{k}` is the keyspace.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

statements! {
    /// A record of a blob to be.
    Begin = "INSERT INTO {k}.blob_records (shard, id, run, head, groups) VALUES (?, ?, ?, ?, 1) USING TIMESTAMP ?",
    /// Takes or renews a lease.
    Hold = "UPDATE {k}.blob_records USING TTL ? AND TIMESTAMP ? SET lease = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Gives a lease up.
    Release = "DELETE lease FROM {k}.blob_records USING TIMESTAMP ? WHERE shard = ? AND id = ? AND run = ?",
    /// Announces one group more.
    Grow = "UPDATE {k}.blob_records USING TIMESTAMP ? SET groups = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Makes a blob readable.
    Finish = "UPDATE {k}.blob_records USING TIMESTAMP ? SET length = ?, finished = ? WHERE shard = ? AND id = ? AND run = ?",
    /// The records of a blob.
    Find = "SELECT id, run, head, groups, length, finished, removed, abandoned, lease FROM {k}.blob_records \
            WHERE shard = ? AND id = ?",
    /// Records behind an id.
    Page = "SELECT id, run, head, groups, length, finished, removed, abandoned, lease FROM {k}.blob_records \
            WHERE shard = ? AND id > ? LIMIT ?",
    /// Notes that a blob was removed.
    MarkRemoved = "UPDATE {k}.blob_records USING TIMESTAMP ? SET removed = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Notes that nobody goes on writing a blob.
    MarkAbandoned = "UPDATE {k}.blob_records USING TIMESTAMP ? SET abandoned = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Removes a record.
    Forget = "DELETE FROM {k}.blob_records USING TIMESTAMP ? WHERE shard = ? AND id = ? AND run = ?",
    /// Writes a block.
    PutBlock = "INSERT INTO {k}.blob_blocks (id, run, grp, n, crc, data) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
    /// Reads a block.
    GetBlock = "SELECT crc, data FROM {k}.blob_blocks WHERE id = ? AND run = ? AND grp = ? AND n = ?",
    /// Removes a group of blocks.
    DropGroup = "DELETE FROM {k}.blob_blocks USING TIMESTAMP ? WHERE id = ? AND run = ? AND grp = ?",
}

/// The prepared statements of one session.
pub(super) struct Statements {
    session: Arc<Session>,
    prepared: Vec<PreparedStatement>,
    /// [`Cql::Begin`] and [`Cql::Hold`] on one row.
    begin: Batch,
}

impl Statements {
    /// Prepares everything. Each call ends within `timeout`.
    pub(super) async fn open(session: Arc<Session>, keyspace: &str, timeout: Duration) -> Result<Self> {
        let mut prepared = Vec::with_capacity(Cql::ALL.len());
        for (_, text) in Cql::ALL {
            let one = prepare(&session, &text.replace("{k}", keyspace)).await;
            let mut one = one.map_err(|error| errors::of_prepare(BLOBS, error))?;
            one.set_consistency(Consistency::LocalQuorum);
            one.set_is_idempotent(true);
            one.set_request_timeout(Some(timeout));
            prepared.push(one);
        }
        let mut begin = Batch::new(BatchType::Unlogged);
        begin.append_statement(prepared[Cql::Begin as usize].clone());
        begin.append_statement(prepared[Cql::Hold as usize].clone());
        begin.set_consistency(Consistency::LocalQuorum);
        begin.set_is_idempotent(true);
        begin.set_request_timeout(Some(timeout));
        Ok(Self { session, prepared, begin })
    }

    /// Runs a statement.
    pub(super) async fn run(&self, cql: Cql, values: impl SerializeRow) -> Result<QueryResult> {
        let prepared = &self.prepared[cql as usize];
        self.session.execute_unpaged(prepared, values).await.map_err(failed)
    }

    /// Runs a statement that reads what never changes once it is there: a replica that has it will do where too few are up.
    /// What that one does not have may be elsewhere.
    pub(super) async fn read(&self, cql: Cql, values: impl SerializeRow) -> Result<QueryResult> {
        let prepared = &self.prepared[cql as usize];
        let refused = match self.session.execute_unpaged(prepared, &values).await.map_err(failed) {
            Err(error) if matches!(error.kind, Kind::Unavailable { .. } | Kind::TimedOut) => error,
            other => return other,
        };
        let mut prepared = prepared.clone();
        prepared.set_consistency(Consistency::LocalOne);
        let answer = self.session.execute_unpaged(&prepared, &values).await.map_err(failed)?;
        let is_there = answer.is_rows() && answer.clone().into_rows_result().is_ok_and(|rows| rows.rows_num() > 0);
        if is_there { Ok(answer) } else { Err(refused) }
    }

    /// Writes a record and takes its lease.
    pub(super) async fn begin(&self, record: impl SerializeRow, lease: impl SerializeRow) -> Result<()> {
        self.session.batch(&self.begin, (record, lease)).await.map_err(failed)?;
        Ok(())
    }
}

/// A statement that failed.
fn failed(error: ExecutionError) -> Error {
    errors::of(BLOBS, error)
}

/// An answer that is not of the form its statement has.
pub(super) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    errors::unreadable(BLOBS, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_by_their_number() {
        for (at, (cql, text)) in Cql::ALL.iter().enumerate() {
            assert_eq!(*cql as usize, at, "{text}");
        }
    }
}
