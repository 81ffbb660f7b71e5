//! Every statement on blobs, and their two tables.
//!
//! ```text
//! blob_records   first byte of the id | id, run      a row for each run that wrote the blob
//! blob_blocks    id, run, group       | number       the bytes, 64 blocks of 256 KiB in a group
//! ```
//! A record is removed row by row, so its table keeps tombstones for a day. A node that was down longer may bring a
//! record back; no row names it, and it is swept again. Blocks are removed by whole groups, and no reader looks for
//! blocks without a record: that table keeps tombstones for the default time, within which a cluster is repaired.

use std::pin::pin;
use std::time::Duration;

use larder_store::{Error, Kind, Result};
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use tokio::time::{Instant, timeout};

use crate::client::{RequestFailure, prepare};
use crate::errors;
use crate::hedge::{CallLimits, hedged};
use crate::session::ClusterSession;

/// Time of the replicas that are asked first: many times what a healthy cluster takes.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The subject of error texts.
const BLOBS: &str = "blobs";

/// The tables and the statements that create them; `{k}` is the keyspace.
pub const SCHEMA: [(&str, &str); 2] = [
    (
        "blob_records",
        "CREATE TABLE IF NOT EXISTS {k}.blob_records (shard int, id blob, run blob, head blob, groups int, \
         length bigint, finished bigint, removed bigint, abandoned bigint, lease boolean, PRIMARY KEY (shard, id, run)) \
         WITH speculative_retry = '100ms' AND gc_grace_seconds = 86400 AND compaction = {'class': 'LeveledCompactionStrategy'}",
    ),
    (
        "blob_blocks",
        "CREATE TABLE IF NOT EXISTS {k}.blob_blocks (id blob, run blob, grp int, n int, crc int, data blob, \
         PRIMARY KEY ((id, run, grp), n)) WITH speculative_retry = '100ms' AND compaction = {'class': 'SizeTieredCompactionStrategy'}",
    ),
];

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A statement. All are idempotent: a statement sent twice writes the same stamps.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum BlobStatement { $($(#[$doc])* $name),* }

        impl BlobStatement {
            /// Every statement with its text, in the order of the discriminants; `{k}` is the keyspace.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

statements! {
    /// Creates the record of a run.
    Begin = "INSERT INTO {k}.blob_records (shard, id, run, head, groups) VALUES (?, ?, ?, ?, 1) USING TIMESTAMP ?",
    /// Takes or renews a lease.
    Hold = "UPDATE {k}.blob_records USING TTL ? AND TIMESTAMP ? SET lease = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Releases a lease.
    Release = "DELETE lease FROM {k}.blob_records USING TIMESTAMP ? WHERE shard = ? AND id = ? AND run = ?",
    /// Announces a further group of blocks.
    Grow = "UPDATE {k}.blob_records USING TIMESTAMP ? SET groups = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Makes a blob readable.
    Finish = "UPDATE {k}.blob_records USING TIMESTAMP ? SET length = ?, finished = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Reads the records of a blob.
    Find = "SELECT id, run, head, groups, length, finished, removed, abandoned, lease FROM {k}.blob_records \
            WHERE shard = ? AND id = ?",
    /// Reads the records after an id.
    Page = "SELECT id, run, head, groups, length, finished, removed, abandoned, lease FROM {k}.blob_records \
            WHERE shard = ? AND id > ? LIMIT ?",
    /// Marks a blob as removed.
    MarkRemoved = "UPDATE {k}.blob_records USING TIMESTAMP ? SET removed = ? WHERE shard = ? AND id = ? AND run = ?",
    /// Marks a run as abandoned.
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
pub(super) struct PreparedBlobStatements {
    session: ClusterSession,
    prepared: Vec<PreparedStatement>,
    /// [`BlobStatement::Begin`] and [`BlobStatement::Hold`] on one row.
    begin: Batch,
    /// Longest wait for an answer.
    timeout: Duration,
}

impl PreparedBlobStatements {
    /// Prepares every statement. Each call ends within `timeout`.
    pub(super) async fn open(session: ClusterSession, keyspace: &str, timeout: Duration) -> Result<Self> {
        let mut prepared = Vec::with_capacity(BlobStatement::ALL.len());
        for (_, text) in BlobStatement::ALL {
            let statement = prepare(session.driver(), &text.replace("{k}", keyspace)).await;
            let mut statement = statement.map_err(|error| errors::from_prepare(BLOBS, error))?;
            statement.set_consistency(Consistency::LocalQuorum);
            statement.set_is_idempotent(true);
            statement.set_request_timeout(None);
            prepared.push(statement);
        }
        let mut begin = Batch::new(BatchType::Unlogged);
        begin.append_statement(prepared[BlobStatement::Begin as usize].clone());
        begin.append_statement(prepared[BlobStatement::Hold as usize].clone());
        begin.set_consistency(Consistency::LocalQuorum);
        begin.set_is_idempotent(true);
        begin.set_request_timeout(None);
        Ok(Self { session, prepared, begin, timeout })
    }

    /// Runs a statement.
    pub(super) async fn run(&self, cql: BlobStatement, values: impl SerializeRow) -> Result<QueryResult> {
        let prepared = &self.prepared[cql as usize];
        self.send(prepared, &values).await
    }

    /// Sends a statement that enough replicas can answer.
    async fn send(&self, prepared: &PreparedStatement, values: &impl SerializeRow) -> Result<QueryResult> {
        let consistency = prepared.get_consistency().unwrap_or(Consistency::LocalQuorum);
        let check = || self.session.check(prepared, values, consistency);
        self.answer(|| self.session.driver().execute_unpaged(prepared, values), check).await
    }

    /// Awaits the answer of a call that enough replicas can give, by `check`.
    async fn answer<F>(&self, send: impl Fn() -> F, check: impl Fn() -> Result<()>) -> Result<QueryResult>
    where
        F: Future<Output = std::result::Result<QueryResult, ExecutionError>>,
    {
        let limits = CallLimits { deadline: Instant::now() + self.timeout, may_repeat: false };
        let answer = hedged(send, limits, |_| false, check).await;
        let (answer, _) = answer.map_err(|end| RequestFailure::from_end(BLOBS, end, false))?;
        answer.map_err(|error| errors::from_driver(BLOBS, error))
    }

    /// Reads immutable rows from one replica and from a quorum, in this `order`. The second is asked if the first fails, is slow, or
    /// is one replica without the rows that `is_there` looks for.
    pub(super) async fn read(
        &self,
        cql: BlobStatement,
        values: impl SerializeRow,
        order: [Consistency; 2],
        is_there: impl Fn(&QueryResult) -> bool,
    ) -> Result<QueryResult> {
        let [mut first, mut second] = [(); 2].map(|()| self.prepared[cql as usize].clone());
        first.set_consistency(order[0]);
        second.set_consistency(order[1]);
        // A replica without the rows proves nothing: it may have missed the write.
        let decides = |consistency, answer: &QueryResult| consistency == Consistency::LocalQuorum || is_there(answer);
        let mut first_answer = pin!(self.send(&first, &values));
        let early = timeout(FIRST_WAIT, &mut first_answer).await;
        match early {
            Ok(Ok(answer)) if decides(order[0], &answer) => return Ok(answer),
            // Other errors would repeat at the second level.
            Ok(Err(error)) if !matches!(error.kind, Kind::Unavailable { .. } | Kind::TimedOut) => return Err(error),
            _ => {}
        }
        match (self.send(&second, &values).await, early) {
            (Ok(answer), _) if decides(order[1], &answer) => Ok(answer),
            (Err(error), Ok(Ok(_))) => Err(error),
            (_, Ok(refused)) => refused,
            // The first answer may still come after the second request failed.
            (_, Err(_)) => first_answer.await,
        }
    }

    /// Writes a record and takes its lease, in one mutation.
    pub(super) async fn begin(&self, record: impl SerializeRow, lease: impl SerializeRow) -> Result<()> {
        // Both statements write one partition.
        let first = &self.prepared[BlobStatement::Begin as usize];
        let check = || self.session.check(first, &record, Consistency::LocalQuorum);
        self.answer(|| self.session.driver().batch(&self.begin, (&record, &lease)), check).await.map(drop)
    }
}

/// The error of an answer with unexpected columns.
pub(super) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    errors::unreadable(BLOBS, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_indexed_by_their_discriminant() {
        for (at, (cql, text)) in BlobStatement::ALL.iter().enumerate() {
            assert_eq!(*cql as usize, at, "{text}");
        }
    }
}
