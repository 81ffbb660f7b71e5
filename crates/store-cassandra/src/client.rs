//! The connected cluster: prepared statements, and sending one of them within its deadline.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use larder_store::{CallOptions, Clock, ConsistencyLevel, Error, Partition, Table};
use parking_lot::{Mutex, RwLock};
use scylla::client::session::Session;
use scylla::cluster::metadata::Strategy;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout_at};

use crate::encoding::BoundValue;
use crate::errors;
use crate::hedge::{CallEnd, CallLimits, hedged};
use crate::in_doubt::InDoubt;
use crate::levels::{ReplicaCounts, TableAccess, consistency};
use crate::metrics::Counters;
use crate::options::Replication;
use crate::partitions::{CasIds, HeadCache};
use crate::session::ClusterSession;
use crate::statements::{self, RowStatement};

/// State that all calls of the store share.
pub(crate) struct ClusterClient {
    pub(crate) session: ClusterSession,
    pub(crate) prefix: String,
    pub(crate) replication: Replication,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
    pub(crate) heads: HeadCache,
    pub(crate) cas_ids: CasIds,
    pub(crate) in_doubt: InDoubt,
    /// Whether nodes sync before they answer.
    pub(crate) syncs: bool,
    /// Keyspaces that exist, or are being created.
    keyspaces: Mutex<BTreeMap<u8, Arc<OnceCell<()>>>>,
    prepared: RwLock<HashMap<(u8, Table, RowStatement), PreparedStatement>>,
}

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The deadline passed, or too few replicas answer; the statement may have been executed.
    DeadlinePassed(&'static str),
    /// The driver reports an error about a table.
    Driver(&'static str, Box<ExecutionError>),
    /// Another failure, already as an error of the store.
    Store(Error),
}

/// A statement with its bound values.
pub(crate) struct BoundStatement<'a> {
    pub(crate) statement: RowStatement,
    pub(crate) partition: &'a Partition,
    pub(crate) values: Vec<BoundValue<'a>>,
}

impl From<RequestFailure> for Error {
    fn from(failure: RequestFailure) -> Self {
        match failure {
            RequestFailure::DeadlinePassed(what) => errors::deadline_passed(what),
            RequestFailure::Driver(what, error) => errors::from_driver(what, *error),
            RequestFailure::Store(error) => error,
        }
    }
}

impl From<Error> for RequestFailure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl RequestFailure {
    /// An error of the driver. `in_doubt`: the same write was sent more than once, and may still be executed.
    fn from_driver(what: &'static str, error: ExecutionError, in_doubt: bool) -> Self {
        if in_doubt { Self::Store(errors::in_doubt(what, error)) } else { Self::Driver(what, Box::new(error)) }
    }

    /// A call without an answer.
    pub(crate) fn from_end(what: &'static str, end: CallEnd, is_read: bool) -> Self {
        match end {
            CallEnd::DeadlinePassed => Self::DeadlinePassed(what),
            // Race: a conditional write may still be finished, by a node that comes back [invariant 159].
            CallEnd::GivenUp(_) if !is_read => Self::DeadlinePassed(what),
            CallEnd::Unsent(error) | CallEnd::GivenUp(error) => Self::Store(error),
        }
    }

    /// Whether replicas gave up a read.
    pub(crate) fn is_read_failure(&self) -> bool {
        matches!(self, Self::Driver(_, error) if errors::is_read_failure(error))
    }
}

impl ClusterClient {
    pub(crate) fn new(
        session: ClusterSession,
        prefix: String,
        replication: Replication,
        clock: Arc<dyn Clock>,
        syncs: bool,
    ) -> Self {
        Self {
            session,
            prefix,
            replication,
            clock,
            counters: Counters::default(),
            heads: HeadCache::default(),
            cas_ids: CasIds::default(),
            in_doubt: InDoubt::default(),
            syncs,
            keyspaces: Mutex::default(),
            prepared: RwLock::default(),
        }
    }

    /// Name of the keyspace of a number of copies.
    pub(crate) fn keyspace(&self, n_val: u8) -> String {
        statements::keyspace(&self.prefix, n_val)
    }

    /// The cell that is set once the keyspace of `n_val` exists.
    pub(crate) fn keyspace_cell(&self, n_val: u8) -> Arc<OnceCell<()>> {
        self.keyspaces.lock().entry(n_val).or_default().clone()
    }

    /// The consistency of a read or write of a partition.
    pub(crate) fn consistency(&self, partition: &Partition, level: ConsistencyLevel, write: bool) -> Consistency {
        let access = match (partition.table.is_guarded(), write) {
            // While most copies are down, the gateways still read the version of their catalogue.
            (true, false) if level < ConsistencyLevel::Quorum => TableAccess::Read,
            (true, _) => TableAccess::Guarded,
            (false, true) => TableAccess::Write,
            (false, false) => TableAccess::Read,
        };
        consistency(level, access, self.copies(partition.copies))
    }

    /// Replicas of a keyspace: as the driver reports them, otherwise as the keyspace was created.
    pub(crate) fn copies(&self, n_val: u8) -> ReplicaCounts {
        let state = self.session.driver().get_cluster_state();
        let asked = usize::from(n_val);
        match state.get_keyspace(self.keyspace(n_val)).map(|keyspace| &keyspace.strategy) {
            Some(Strategy::SimpleStrategy { replication_factor: copies }) => {
                ReplicaCounts { local: *copies, everywhere: *copies, multi_dc: false }
            }
            Some(Strategy::NetworkTopologyStrategy { datacenter_repfactors: all }) => {
                let everywhere = all.values().sum();
                let local = self.replication.local().and_then(|local| all.get(local)).copied().unwrap_or(everywhere);
                ReplicaCounts { local, everywhere, multi_dc: all.len() > 1 }
            }
            _ => match &self.replication {
                Replication::Simple => ReplicaCounts { local: asked, everywhere: asked, multi_dc: false },
                Replication::Datacenters { all, .. } => {
                    ReplicaCounts { local: asked, everywhere: asked * all.len(), multi_dc: all.len() > 1 }
                }
            },
        }
    }

    /// The prepared statement for a table; prepares it on first use.
    async fn prepared(
        &self,
        statement: RowStatement,
        partition: &Partition,
        deadline: Instant,
    ) -> Result<PreparedStatement, RequestFailure> {
        let key = (partition.copies, partition.table, statement);
        if let Some(prepared) = self.prepared.read().get(&key) {
            return Ok(prepared.clone());
        }
        // On the heap: every later call would carry the room of this one.
        let prepared = timeout_at(deadline, Box::pin(self.prepare_for(statement, partition))).await;
        prepared.map_err(|_| RequestFailure::DeadlinePassed(partition.table.name()))?
    }

    async fn prepare_for(
        &self,
        statement: RowStatement,
        partition: &Partition,
    ) -> Result<PreparedStatement, RequestFailure> {
        let text = statement.text(&self.keyspace(partition.copies), partition.table);
        // Two callers may prepare the same statement at once: both results are equal, and the last one is kept.
        let prepared = prepare(self.session.driver(), &text).await;
        let mut prepared = prepared
            .map_err(|error| errors::from_prepare(partition.table.name(), error))
            .map_err(RequestFailure::Store)?;
        prepared.set_is_idempotent(statement.is_idempotent());
        // The columns of our tables never change, so a node need not describe them in each answer.
        prepared.set_use_cached_result_metadata(statement.is_read());
        // Race: at LOCAL_SERIAL two datacenters could agree on different heads [invariant 22].
        prepared.set_serial_consistency(Some(SerialConsistency::Serial));
        // The call's deadline counts: the default timeout of the session would end a longer call early.
        prepared.set_request_timeout(None);
        self.prepared.write().insert((partition.copies, partition.table, statement), prepared.clone());
        Ok(prepared)
    }

    /// Sends one statement.
    pub(crate) async fn execute(
        &self,
        bound: &BoundStatement<'_>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<QueryResult, RequestFailure> {
        let what = bound.partition.table.name();
        let mut prepared = self.prepared(bound.statement, bound.partition, deadline).await?;
        prepared.set_consistency(consistency);
        let send = || self.session.driver().execute_unpaged(&prepared, &bound.values[..]);
        let check = || self.session.check(&prepared, &&bound.values[..], consistency);
        let is_read = bound.statement.is_read();
        // Concurrent transactions of one hedged request would abort each other.
        let may_repeat = bound.statement.is_idempotent() && consistency != Consistency::Serial;
        let answer = hedged(send, CallLimits { deadline, may_repeat }, errors::is_unavailable, check).await;
        let (answer, sent) = answer.map_err(|end| RequestFailure::from_end(what, end, is_read))?;
        // An error of one hedged request does not tell whether another one was executed.
        let in_doubt = sent > 1 && !is_read;
        answer.map_err(|error| RequestFailure::from_driver(what, error, in_doubt))
    }

    /// Refuses a batch that needs more replicas of one of its partitions than answer.
    fn check_batch(&self, batch: &Batch, all: &[BoundStatement<'_>], consistency: Consistency) -> Result<(), Error> {
        let mut statements = batch.statements.iter().zip(all);
        statements.try_for_each(|(statement, bound)| match statement {
            BatchStatement::PreparedStatement(prepared) => {
                self.session.check(prepared, &&bound.values[..], consistency)
            }
            _ => Ok(()),
        })
    }

    /// Sends several statements as one batch.
    pub(crate) async fn batch(
        &self,
        kind: BatchType,
        all: &[BoundStatement<'_>],
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<QueryResult, RequestFailure> {
        let what = all.first().map_or("nothing", |bound| bound.partition.table.name());
        let mut batch = Batch::new(kind);
        for bound in all {
            batch.append_statement(self.prepared(bound.statement, bound.partition, deadline).await?);
        }
        batch.set_consistency(consistency);
        batch.set_serial_consistency(Some(SerialConsistency::Serial));
        batch.set_request_timeout(None);
        let may_repeat = all.iter().all(|bound| bound.statement.is_idempotent());
        batch.set_is_idempotent(may_repeat);
        let values: Vec<&[BoundValue<'_>]> = all.iter().map(|bound| &bound.values[..]).collect();
        let send = || self.session.driver().batch(&batch, &values);
        let check = || self.check_batch(&batch, all, consistency);
        let answer = hedged(send, CallLimits { deadline, may_repeat }, errors::is_unavailable, check).await;
        let (answer, sent) = answer.map_err(|end| RequestFailure::from_end(what, end, false))?;
        answer.map_err(|error| RequestFailure::from_driver(what, error, sent > 1))
    }
}

/// Refuses a call after its deadline.
pub(crate) fn check_deadline(options: &CallOptions, what: &str) -> larder_store::Result<()> {
    if Instant::now() >= options.deadline { Err(errors::deadline_passed(what)) } else { Ok(()) }
}

/// How long a table may be missing.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Prepares a statement; tries again while a node does not know its table.
///
/// # Errors
/// After ten seconds, the node's last error; any other error at once.
pub(crate) async fn prepare(session: &Session, text: &str) -> Result<PreparedStatement, PrepareError> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match session.prepare(text).await {
            Err(error) if is_unknown(&error) && Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// Whether a node does not know the table of the statement. Both engines call such a statement invalid.
fn is_unknown(error: &PrepareError) -> bool {
    let PrepareError::AllAttemptsFailed { first_attempt } = error else { return false };
    matches!(first_attempt, RequestAttemptError::DbError(DbError::Invalid, _))
}

#[cfg(test)]
mod tests {
    use larder_store::Kind;

    use super::*;

    #[test]
    fn a_write_that_was_given_up_was_once_called_refused() {
        let silence = || Error::new(Kind::Unavailable { alive: 1, required: 2 }, "heads: 1 of 2 replicas answer");
        let kind = |end, is_read| Error::from(RequestFailure::from_end("heads", end, is_read)).kind;
        assert_eq!(kind(CallEnd::GivenUp(silence()), false), Kind::TimedOut);
        for unchanged in [(CallEnd::Unsent(silence()), false), (CallEnd::GivenUp(silence()), true)] {
            assert_eq!(kind(unchanged.0, unchanged.1), Kind::Unavailable { alive: 1, required: 2 });
        }
    }

    #[test]
    fn only_a_missing_table_is_retried() {
        let refused = |error| PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(error, "table blob_blocks does not exist".into()),
        };
        assert!(is_unknown(&refused(DbError::Invalid)));
        for error in [DbError::SyntaxError, DbError::Unauthorized, DbError::Overloaded] {
            assert!(!is_unknown(&refused(error)));
        }
    }
}
