//! The nodes that do not answer this gateway. Cassandra takes up to 20 seconds to call a killed node down, and lets requests
//! wait for it until then. A gateway that knows better asks fewer replicas at once, or refuses at once.
//!
//! ```text
//! answers ── not connected, or two probes without an answer ──> silent ── a read that needs it fails ──> confirmed
//!    ^                                                            │                                          │
//!    └──────────────────────────── a probe is answered ───────────┴──────────────────────────────────────────┘
//! silent       batches do without the batch log, which two other nodes would have to take
//! confirmed    a call that needs more replicas than answer fails unsent, with their number
//! ```
//! Race: a gateway that is cut off from nodes reaches them through others. So silence alone refuses nothing: beside each round of
//! probes, a read at the first level that the silent nodes would break goes through a node that answers. While it succeeds, nothing is
//! confirmed. Nor does a gateway believe what it saw while it stood still itself.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use larder_store::{Error, Kind};
use parking_lot::RwLock;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use crate::client::prepare;
use crate::errors;
use crate::session::statement_to;
use crate::statements::TIME;

/// Time between two rounds of probes.
const PERIOD: Duration = Duration::from_millis(250);
/// How long a probe, or the read that confirms, may take.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// How late a round may begin: later, this process stood still, and nothing that it saw tells of the nodes.
const LATE_MAX: Duration = Duration::from_millis(250);
/// Probes without an answer that make a connected node silent: a pause of the node's memory is shorter.
const UNANSWERED_MAX: u32 = 2;
/// Keys among which the read that confirms finds one with the fewest replicas that answer.
const KEYS_TRIED: u32 = 256;

/// The nodes that do not answer. Cheap to ask while all do.
#[derive(Debug, Default)]
pub(crate) struct SilentNodes {
    any_silent: AtomicBool,
    any_confirmed: AtomicBool,
    nodes: RwLock<NodeSets>,
    /// Probes, and reads that confirm, since the start.
    probes: AtomicU64,
}

/// Nodes by their ids in the cluster.
#[derive(Debug, Default)]
struct NodeSets {
    silent: HashSet<Uuid>,
    /// Those of `silent` that other nodes do not reach either.
    confirmed: HashSet<Uuid>,
}

/// A replica of a partition.
#[derive(Debug, Clone, Copy)]
struct WatchedReplica {
    node: Uuid,
    /// Whether it is in the datacenter of the gateway.
    is_local: bool,
}

/// What the watch of the nodes needs to know of the cluster.
#[derive(Debug)]
pub(crate) struct WatchScope {
    /// The datacenter of the gateway; `None` for all nodes.
    pub(crate) datacenter: Option<String>,
    /// A read of one row of a table with several copies: key, name.
    pub(crate) read: String,
}

impl SilentNodes {
    /// Whether a node is silent.
    pub(crate) fn is_any(&self) -> bool {
        self.any_silent.load(Ordering::Acquire)
    }

    /// Whether this node is silent.
    pub(crate) fn contains(&self, node: Uuid) -> bool {
        self.is_any() && self.nodes.read().silent.contains(&node)
    }

    /// Probes since the start of the process: the driver counts them among its requests.
    pub(crate) fn probes(&self) -> u64 {
        self.probes.load(Ordering::Relaxed)
    }

    /// Refuses a call that needs more replicas than answer. A statement without a partition is never refused.
    ///
    /// # Errors
    /// `Unavailable`, with the number of replicas that answer.
    pub(crate) fn check(
        &self,
        session: &Session,
        datacenter: Option<&str>,
        call: (&PreparedStatement, &impl SerializeRow, Consistency),
    ) -> Result<(), Error> {
        if !self.any_confirmed.load(Ordering::Acquire) {
            return Ok(());
        }
        let (prepared, values, consistency) = call;
        let replicas = replicas(session, datacenter, prepared, values);
        match missing(&replicas, &self.nodes.read().confirmed, consistency) {
            None => Ok(()),
            Some((alive, required)) => {
                let what = prepared.get_table_spec().map_or("a statement", |table| table.table_name());
                let text = format!("{what}: {alive} of {required} replicas answer");
                Err(Error::new(Kind::Unavailable { alive, required }, text))
            }
        }
    }

    /// Records a round of probes: these nodes were silent in it.
    fn set_silent(&self, silent: HashSet<Uuid>) {
        let mut nodes = self.nodes.write();
        nodes.confirmed.retain(|node| silent.contains(node));
        nodes.silent = silent;
        self.publish(&nodes);
    }

    /// Records the outcome of a read that needs one of the nodes that were `silent` when it was sent.
    fn set_confirmed(&self, silent: &HashSet<Uuid>, failed: bool) {
        let mut nodes = self.nodes.write();
        nodes.confirmed = match failed {
            // A node that answered since then is not silent any more [invariant 157].
            true => nodes.silent.intersection(silent).copied().collect(),
            false => HashSet::new(),
        };
        self.publish(&nodes);
    }

    fn publish(&self, nodes: &NodeSets) {
        self.any_silent.store(!nodes.silent.is_empty(), Ordering::Release);
        self.any_confirmed.store(!nodes.confirmed.is_empty(), Ordering::Release);
    }
}

/// The replicas of the partition that a statement names; none if it names no partition.
fn replicas(
    session: &Session,
    datacenter: Option<&str>,
    prepared: &PreparedStatement,
    values: &impl SerializeRow,
) -> Vec<WatchedReplica> {
    let (Ok(Some(token)), Some(table)) = (prepared.calculate_token(values), prepared.get_table_spec()) else {
        return Vec::new();
    };
    let endpoints = session.get_cluster_state().get_token_endpoints(table.ks_name(), table.table_name(), token);
    let is_local = |node: &Node| datacenter.is_none_or(|local| node.datacenter.as_deref() == Some(local));
    endpoints.iter().map(|(node, _)| WatchedReplica { node: node.host_id, is_local: is_local(node) }).collect()
}

/// The replicas that answer and those that the consistency requires, where they are too few. Nodes of other datacenters are not
/// watched, so a level that counts replicas there is not judged.
fn missing(replicas: &[WatchedReplica], confirmed: &HashSet<Uuid>, consistency: Consistency) -> Option<(u32, u32)> {
    let is_local = matches!(consistency, Consistency::LocalOne | Consistency::LocalQuorum);
    if replicas.is_empty() || !is_local && replicas.iter().any(|replica| !replica.is_local) {
        return None;
    }
    let counted = replicas.iter().filter(|replica| replica.is_local);
    let (all, alive) =
        counted.fold((0, 0), |(all, alive), replica| (all + 1, alive + u32::from(!confirmed.contains(&replica.node))));
    let required = match consistency {
        Consistency::Any => 0,
        Consistency::One | Consistency::LocalOne => 1,
        Consistency::Two => 2,
        Consistency::Three => 3,
        Consistency::All => all,
        _ => all / 2 + 1,
    };
    (alive < required).then_some((alive, required))
}

/// The first level that fails while only `alive` of `all` replicas of the datacenter answer; `several`: others have replicas, too.
/// `None` if all answer, or no level lies right above.
fn level_above(alive: usize, all: usize, several: bool) -> Option<Consistency> {
    let majority = all / 2 + 1;
    match alive + 1 {
        required if required > all => None,
        required if several => (required == majority).then_some(Consistency::LocalQuorum),
        1 => Some(Consistency::One),
        2 => Some(Consistency::Two),
        3 => Some(Consistency::Three),
        required if required == majority => Some(Consistency::Quorum),
        required if required == all => Some(Consistency::All),
        _ => None,
    }
}

/// Probes the nodes until the session or the store is dropped.
pub(crate) fn watch(session: &Arc<Session>, silent: &Arc<SilentNodes>, scope: WatchScope) {
    tokio::spawn(watch_until_dropped(Arc::downgrade(session), Arc::downgrade(silent), scope));
}

async fn watch_until_dropped(session: Weak<Session>, silent: Weak<SilentNodes>, scope: WatchScope) {
    let mut unanswered: HashMap<Uuid, u32> = HashMap::new();
    let mut read = None;
    loop {
        let due = Instant::now() + PERIOD;
        sleep_until(due).await;
        // Weak references: this task must not keep a closed store alive.
        let (Some(session), Some(silent)) = (session.upgrade(), silent.upgrade()) else { return };
        if read.is_none() {
            // Prepared while all nodes answer: later it could wait for one that does not.
            read = timeout(PROBE_MAX, prepare(&session, &scope.read)).await.ok().and_then(Result::ok);
        }
        let before = silent.nodes.read().silent.clone();
        let (round, failed) = join(
            probe_nodes(&session, &silent, &scope, &unanswered),
            confirm(&session, &silent, &scope, read.as_ref(), &before),
        )
        .await;
        // A process that was held, or has no processor, sees its own answers late.
        if due.elapsed() > LATE_MAX + PROBE_MAX + LATE_MAX {
            continue;
        }
        unanswered = round;
        silent
            .set_silent(unanswered.iter().filter(|(_, count)| **count >= UNANSWERED_MAX).map(|(id, _)| *id).collect());
        silent.set_confirmed(&before, failed);
    }
}

/// Probes every node at once; returns how many probes in a row each did not answer.
async fn probe_nodes(
    session: &Session,
    silent: &SilentNodes,
    scope: &WatchScope,
    before: &HashMap<Uuid, u32>,
) -> HashMap<Uuid, u32> {
    let state = session.get_cluster_state();
    let here = |node: &&Arc<Node>| scope.datacenter.is_none() || node.datacenter == scope.datacenter;
    let nodes = state.get_nodes_info().iter().filter(here).filter(|node| node.is_enabled());
    let probes = nodes.map(|node| async {
        silent.probes.fetch_add(1, Ordering::Relaxed);
        let count = match probe(session, node).await {
            true => 0,
            // A closed connection needs no second probe: the driver has lost its last one to the node.
            false if !node.is_connected() => UNANSWERED_MAX,
            false => before.get(&node.host_id).copied().unwrap_or(0) + 1,
        };
        (node.host_id, count)
    });
    join_all(probes).await.into_iter().collect()
}

/// Whether a node answers in time.
async fn probe(session: &Session, node: &Arc<Node>) -> bool {
    is_answered(session.query_unpaged(statement_to(TIME, node), ())).await
}

/// Whether a request gets an answer in time. An error is one, unless too few replicas or no node could be asked.
async fn is_answered(request: impl Future<Output = Result<QueryResult, ExecutionError>>) -> bool {
    match timeout(PROBE_MAX, request).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            let kind = errors::from_driver("a probe", error).kind;
            !matches!(kind, Kind::Unavailable { .. } | Kind::TimedOut)
        }
        Err(_) => false,
    }
}

/// Whether a read that needs one of the `silent` nodes fails. False where no read of this kind can be made.
async fn confirm(
    session: &Session,
    nodes: &SilentNodes,
    scope: &WatchScope,
    read: Option<&PreparedStatement>,
    silent: &HashSet<Uuid>,
) -> bool {
    let Some(read) = read.filter(|_| !silent.is_empty()) else { return false };
    let datacenter = scope.datacenter.as_deref();
    let key = |number: u32| (number.to_be_bytes().to_vec(), Vec::<u8>::new());
    let counted = (0..KEYS_TRIED).map(|number| {
        let all: Vec<_> = replicas(session, datacenter, read, &key(number));
        let local = all.iter().filter(|replica| replica.is_local);
        let alive = local.clone().filter(|replica| !silent.contains(&replica.node)).count();
        (alive, local.count(), all.len(), number)
    });
    // The fewest replicas that answer: that number is the one that calls meet first.
    let Some((alive, local, all, number)) = counted.min() else { return false };
    let Some(level) = level_above(alive, local, local < all) else { return false };
    let mut read = read.clone();
    read.set_consistency(level);
    read.set_is_idempotent(true);
    nodes.probes.fetch_add(1, Ordering::Relaxed);
    !is_answered(session.execute_unpaged(&read, key(number))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(nodes: &[u128]) -> Vec<WatchedReplica> {
        nodes.iter().map(|node| WatchedReplica { node: Uuid::from_u128(*node), is_local: *node < 100 }).collect()
    }

    fn nodes(all: &[u128]) -> HashSet<Uuid> {
        all.iter().map(|node| Uuid::from_u128(*node)).collect()
    }

    #[test]
    fn a_call_is_refused_when_too_few_of_its_own_replicas_answer() {
        use Consistency::{All, Any, One, Quorum, Serial, Two};
        let all = replicas(&[1, 2, 3]);
        let refused = |silent: &[u128]| [Any, One, Two, Quorum, Serial, All].map(|c| missing(&all, &nodes(silent), c));
        assert_eq!(refused(&[4, 5]), [None; 6], "other nodes");
        assert_eq!(refused(&[1]), [None, None, None, None, None, Some((2, 3))]);
        let two = [None, None, Some((1, 2)), Some((1, 2)), Some((1, 2)), Some((1, 3))];
        assert_eq!(refused(&[1, 3]), two);
        let none = [None, Some((0, 1)), Some((0, 2)), Some((0, 2)), Some((0, 2)), Some((0, 3))];
        assert_eq!(refused(&[1, 2, 3]), none);
    }

    #[test]
    fn a_level_that_counts_other_datacenters_is_not_judged() {
        use Consistency::{LocalOne, LocalQuorum, Quorum, Serial};
        let all = replicas(&[1, 2, 3, 101, 102, 103]);
        let refused = [LocalOne, LocalQuorum, Quorum, Serial].map(|c| missing(&all, &nodes(&[1, 2]), c));
        assert_eq!(refused, [None, Some((1, 2)), None, None]);
    }

    #[test]
    fn a_statement_without_a_partition_is_sent() {
        assert_eq!(missing(&[], &nodes(&[1]), Consistency::All), None);
    }

    #[test]
    fn silence_is_confirmed_at_the_first_level_that_it_breaks() {
        use Consistency::{All, LocalQuorum, One, Quorum, Three, Two};
        let levels = |all| (0..=all).map(|alive| level_above(alive, all, false)).collect::<Vec<_>>();
        assert_eq!(levels(1), [Some(One), None]);
        assert_eq!(levels(3), [Some(One), Some(Two), Some(Three), None]);
        assert_eq!(levels(7), [Some(One), Some(Two), Some(Three), Some(Quorum), None, None, Some(All), None]);
        assert_eq!([0, 1, 2, 3].map(|alive| level_above(alive, 3, true)), [None, Some(LocalQuorum), None, None]);
    }

    #[test]
    fn a_gateway_that_was_cut_off_once_refused_what_others_could_reach() {
        let silent = SilentNodes::default();
        let confirmed = || silent.any_confirmed.load(Ordering::Relaxed);
        silent.set_silent(nodes(&[2, 3]));
        assert!(silent.is_any() && silent.contains(Uuid::from_u128(2)) && !confirmed(), "silence refuses nothing");
        silent.set_confirmed(&nodes(&[2, 3]), true);
        assert!(confirmed());
        silent.set_confirmed(&nodes(&[2, 3]), false);
        assert!(silent.is_any() && !confirmed(), "a read reached them");
    }

    #[test]
    fn a_node_that_answers_is_asked_at_once() {
        let silent = SilentNodes::default();
        silent.set_silent(nodes(&[2, 3]));
        silent.set_confirmed(&nodes(&[2, 3]), true);
        silent.set_silent(nodes(&[3]));
        assert_eq!(silent.nodes.read().confirmed, nodes(&[3]));
        silent.set_silent(nodes(&[1, 3]));
        assert_eq!(silent.nodes.read().confirmed, nodes(&[3]), "node 1 is silent, and nothing has confirmed that");
        silent.set_confirmed(&nodes(&[3]), true);
        assert_eq!(silent.nodes.read().confirmed, nodes(&[3]));
        silent.set_silent(nodes(&[]));
        assert!(!silent.is_any() && !silent.any_confirmed.load(Ordering::Relaxed));
    }
}
