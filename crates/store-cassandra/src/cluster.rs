//! The connected cluster: prepared statements, and how one is sent within its deadline.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use scylla::client::session::Session;
use scylla::cluster::metadata::Strategy;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use larder_store::{Clock, Error, Level, Options, Partition, Table};

use crate::encoding::Value;
use crate::errors;
use crate::figures::Counters;
use crate::hedge::hedged;
use crate::levels::{Copies, Deed, consistency};
use crate::options::Replication;
use crate::prepare::prepare;
use crate::statements::{self, Statement};
use crate::undecided::Undecided;
use crate::writers::{Heads, Ids};

/// Everything that the verbs share.
pub(crate) struct Cluster {
    pub(crate) session: Arc<Session>,
    pub(crate) prefix: String,
    pub(crate) replication: Replication,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
    pub(crate) heads: Heads,
    pub(crate) ids: Ids,
    pub(crate) undecided: Undecided,
    /// Whether nodes sync before they answer.
    pub(crate) syncs: bool,
    /// Keyspaces that are known to be there.
    made: Mutex<BTreeMap<u8, Arc<OnceCell<()>>>>,
    prepared: RwLock<HashMap<(u8, Table, Statement), PreparedStatement>>,
}

/// Why a statement was not answered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The deadline passed; it may have been done.
    Late(&'static str),
    /// The driver reports an error about a table.
    Driver(&'static str, Box<ExecutionError>),
    /// Something else, already in the store's words.
    Store(Error),
}

/// A statement with what it binds.
pub(crate) struct Bound<'a> {
    pub(crate) statement: Statement,
    pub(crate) partition: &'a Partition,
    pub(crate) values: Vec<Value<'a>>,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Late(what) => errors::late(what),
            Failure::Driver(what, error) => errors::of(what, *error),
            Failure::Store(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    /// An error of the driver; `in_doubt`: the same write was sent more than once, and may be carried out.
    fn of(what: &'static str, error: ExecutionError, in_doubt: bool) -> Self {
        if in_doubt { Self::Store(errors::in_doubt(what, error)) } else { Self::Driver(what, Box::new(error)) }
    }

    /// Whether replicas gave a read up.
    pub(crate) fn is_read_failure(&self) -> bool {
        matches!(self, Self::Driver(_, error) if errors::is_read_failure(error))
    }
}

impl Cluster {
    pub(crate) fn new(
        session: Arc<Session>,
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
            heads: Heads::default(),
            ids: Ids::default(),
            undecided: Undecided::default(),
            syncs,
            made: Mutex::default(),
            prepared: RwLock::default(),
        }
    }

    /// Name of the keyspace of a number of copies.
    pub(crate) fn keyspace(&self, n_val: u8) -> String {
        statements::keyspace(&self.prefix, n_val)
    }

    /// What stands for "the keyspace of `n_val` is there", filled by whoever makes it.
    pub(crate) fn made(&self, n_val: u8) -> Arc<OnceCell<()>> {
        self.made.lock().entry(n_val).or_default().clone()
    }

    /// The consistency of a deed on a partition.
    pub(crate) fn consistency(&self, partition: &Partition, level: Level, write: bool) -> Consistency {
        let deed = match (partition.table.is_guarded(), write) {
            // With most copies down the gateways still look at the number of their catalogue.
            (true, false) if level < Level::Quorum => Deed::Read,
            (true, _) => Deed::Guarded,
            (false, true) => Deed::Write,
            (false, false) => Deed::Read,
        };
        consistency(level, deed, self.copies(partition.n_val))
    }

    /// Copies that a keyspace really has: as many as it was made for unless the driver knows better.
    pub(crate) fn copies(&self, n_val: u8) -> Copies {
        let state = self.session.get_cluster_state();
        let asked = usize::from(n_val);
        match state.get_keyspace(self.keyspace(n_val)).map(|keyspace| &keyspace.strategy) {
            Some(Strategy::SimpleStrategy { replication_factor: copies }) => {
                Copies { local: *copies, everywhere: *copies, apart: false }
            }
            Some(Strategy::NetworkTopologyStrategy { datacenter_repfactors: all }) => {
                let everywhere = all.values().sum();
                let local = self.replication.local().and_then(|local| all.get(local)).copied().unwrap_or(everywhere);
                Copies { local, everywhere, apart: all.len() > 1 }
            }
            _ => match &self.replication {
                Replication::Simple => Copies { local: asked, everywhere: asked, apart: false },
                Replication::Datacenters { all, .. } => {
                    Copies { local: asked, everywhere: asked * all.len(), apart: all.len() > 1 }
                }
            },
        }
    }

    /// Nodes of the datacenter that the driver is connected to, and all it knows there.
    pub(crate) fn nodes(&self, datacenter: Option<&str>) -> (usize, usize) {
        let all = self.node_states(datacenter);
        (all.iter().filter(|(_, up)| *up).count(), all.len())
    }

    /// The nodes of a datacenter that the driver knows, by address: whether it is connected to each.
    pub(crate) fn node_states(&self, datacenter: Option<&str>) -> Vec<(String, bool)> {
        let state = self.session.get_cluster_state();
        let here = |name: &Option<String>| datacenter.is_none_or(|wanted| name.as_deref() == Some(wanted));
        let nodes = state.get_nodes_info().iter().filter(|node| here(&node.datacenter));
        let mut all: Vec<_> = nodes.map(|node| (node.address.to_string(), node.is_connected())).collect();
        all.sort_unstable();
        all
    }

    /// A statement for a table, ready to be sent at a consistency.
    pub(crate) async fn prepared(
        &self,
        statement: Statement,
        partition: &Partition,
    ) -> Result<PreparedStatement, Failure> {
        let key = (partition.n_val, partition.table, statement);
        if let Some(prepared) = self.prepared.read().get(&key) {
            return Ok(prepared.clone());
        }
        let text = statement.text(&self.keyspace(partition.n_val), partition.table);
        let prepared = prepare(&self.session, &text).await;
        let mut prepared =
            prepared.map_err(|error| errors::of_prepare(partition.table.name(), error)).map_err(Failure::Store)?;
        prepared.set_is_idempotent(statement.is_idempotent());
        prepared.set_serial_consistency(Some(SerialConsistency::Serial));
        prepared.set_request_timeout(None);
        self.prepared.write().insert(key, prepared.clone());
        Ok(prepared)
    }

    /// Sends one statement.
    pub(crate) async fn execute(
        &self,
        bound: &Bound<'_>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<QueryResult, Failure> {
        let what = bound.partition.table.name();
        within(what, deadline, async {
            let mut prepared = self.prepared(bound.statement, bound.partition).await?;
            prepared.set_consistency(consistency);
            let send = || self.session.execute_unpaged(&prepared, &bound.values[..]);
            // Several transactions at once would undo each other.
            let may_repeat = bound.statement.is_idempotent() && consistency != Consistency::Serial;
            let (answer, sent) = ask(may_repeat, send).await;
            let in_doubt = sent > 1 && !bound.statement.is_read();
            answer.map_err(|error| Failure::of(what, error, in_doubt))
        })
        .await
    }

    /// Sends several statements as one batch.
    pub(crate) async fn batch(
        &self,
        kind: BatchType,
        all: &[Bound<'_>],
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<QueryResult, Failure> {
        let what = all.first().map_or("nothing", |bound| bound.partition.table.name());
        within(what, deadline, async {
            let mut batch = Batch::new(kind);
            for bound in all {
                batch.append_statement(self.prepared(bound.statement, bound.partition).await?);
            }
            batch.set_consistency(consistency);
            batch.set_serial_consistency(Some(SerialConsistency::Serial));
            batch.set_request_timeout(None);
            let is_idempotent = all.iter().all(|bound| bound.statement.is_idempotent());
            batch.set_is_idempotent(is_idempotent);
            let values: Vec<&[Value<'_>]> = all.iter().map(|bound| &bound.values[..]).collect();
            let send = || self.session.batch(&batch, &values);
            let (answer, sent) = ask(is_idempotent, send).await;
            answer.map_err(|error| Failure::of(what, error, sent > 1))
        })
        .await
    }
}

/// Sends a request, again and again while it hangs if it `may_repeat`; answers also how often.
async fn ask<T, F>(may_repeat: bool, send: impl Fn() -> F) -> (Result<T, ExecutionError>, usize)
where
    F: Future<Output = Result<T, ExecutionError>>,
{
    if may_repeat { hedged(send, errors::is_unavailable).await } else { (send().await, 1) }
}

/// Gives a future up at its deadline; does not begin behind it.
async fn within<T>(
    what: &'static str,
    deadline: Instant,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    if Instant::now() >= deadline {
        return Err(Failure::Late(what));
    }
    timeout_at(deadline, answer).await.unwrap_or(Err(Failure::Late(what)))
}

/// Refuses what comes after its deadline.
pub(crate) fn in_time(options: &Options, what: &str) -> larder_store::Result<()> {
    if Instant::now() >= options.deadline { Err(errors::late(what)) } else { Ok(()) }
}
