//! Membership: the gateways that run, from their heartbeats ([`crate::heartbeats`] writes them).
//!
//! The membership lease says until when the other gateways wait for this one.
//!
//! ```text
//! heartbeat ──9 s──┐       heartbeat ──9 s──┐
//!       heartbeat ──9 s──┐  lapsed          │
//! ├── one span ──────────┤        ├── the next span: the catalogue is checked anew in it
//! ```
//! A gateway answers a change of the catalogue once every live heartbeat advertises it. A gateway whose heartbeats fail while its
//! reads succeed would rely on a catalogue that the others no longer wait for. So a write to a bucket needs a live heartbeat
//! from its check of the catalogue to its commit [invariant 81].
//!
//! The cluster as operators see it: running gateways and the engine's nodes. All commands that show it read it here, so they
//! agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use larder_rows::{ActorId, Batch, Change, MemberRow, Row, Timestamp};
use larder_store::{ConsistencyLevel, Partition, ReadQuery, as_micros};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock_issuer::ClockIssuer;
use crate::node_context::{INTERNAL_CALL_TIMEOUT, NodeContext, internal_options};
use crate::types::CatalogueCopy;
use crate::{EngineNode, Error, Result};

/// Lifetime of a heartbeat.
const LIFETIME: Duration = Duration::from_secs(10);
/// Most gateways that are read.
pub(crate) const MEMBERS_MAX: usize = 1000;
/// Pause between two looks at a lapsed lease.
const LEASE_POLL: Duration = Duration::from_millis(50);
/// Longest wait of a change for the other gateways.
const PROPAGATION_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two looks at the numbers that they show.
const PROPAGATION_POLL: Duration = Duration::from_millis(50);
/// A lease ends this much before its heartbeat: the clocks of the engine's nodes may differ, and the answer took time.
const MARGIN: Duration = Duration::from_secs(1);

/// A running gateway, from its heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The id of its run.
    pub actor: ActorId,
    /// Its heartbeat.
    pub row: MemberRow,
}

/// The gateways that run, and this one among them.
pub struct Members {
    /// Ports, settings, metrics, admission.
    pub context: Arc<NodeContext>,
    pub(crate) issuer: Arc<ClockIssuer>,
    /// The copy of the catalogue.
    pub catalogue: Arc<CatalogueCopy>,
    pub(crate) lease: MembershipLease,
    known_names: ArcSwap<Vec<String>>,
    /// The catalogue number in the last written heartbeat.
    advertised_number: AtomicU64,
}

impl Members {
    /// The members of `core`'s cluster; nothing is written yet.
    pub(crate) fn new(context: Arc<NodeContext>, issuer: Arc<ClockIssuer>, catalogue: Arc<CatalogueCopy>) -> Arc<Self> {
        Arc::new(Self {
            context,
            issuer,
            catalogue,
            lease: MembershipLease::default(),
            known_names: ArcSwap::default(),
            advertised_number: AtomicU64::new(0),
        })
    }

    /// Keeps the names of the gateways, as a heartbeat found them.
    pub(crate) fn note_names(&self, names: Vec<String>) {
        self.known_names.store(names.into());
    }

    /// Names of the gateways, as the last heartbeat found them.
    pub fn known_names(&self) -> Arc<Vec<String>> {
        self.known_names.load_full()
    }

    /// Writes a heartbeat now if the last one shows an older number than it may.
    pub(crate) async fn advertise_catalogue(&self) -> Result<()> {
        if self.catalogue.advertisable_number() > Timestamp(self.advertised_number.load(Ordering::Acquire)) {
            self.write_heartbeat().await
        } else {
            Ok(())
        }
    }

    /// Whether this gateway is the leader, which does the work that one must do for all: the first running one by actor. For
    /// moments there may be two leaders, or none.
    ///
    /// # Errors
    /// The store's.
    pub async fn is_leader(&self) -> Result<bool> {
        // Fallback: without any live heartbeat the work goes on, since two leaders do no harm.
        Ok(self.list().await?.first().is_none_or(|first| first.actor == self.context.ports.actor))
    }

    pub(crate) async fn member_rows(&self) -> Result<Vec<Row>> {
        let query = ReadQuery::all(MEMBERS_MAX);
        Ok(self.context.read_at_quorum(&Partition::members(), &query).await?.rows)
    }

    /// The running gateways, with this one, in the order of their actors.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<Member>> {
        self.member_rows().await?.into_iter().map(decode_member).collect()
    }

    /// Waits until every running node serves from a catalogue of this number and no guarded write relies on an older one.
    pub async fn await_propagation(&self, number: Timestamp) -> Result<()> {
        if self.is_propagated_within(number, PROPAGATION_TIMEOUT).await? { Ok(()) } else { Err(Error::TimedOut) }
    }

    /// As [`Self::await_propagation`], but gives up after `within`: `false`.
    pub(crate) async fn is_propagated_within(&self, number: Timestamp, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        loop {
            // The last guarded write on an older catalogue may have ended since the last heartbeat: no wait for the next one.
            self.advertise_catalogue().await?;
            // Race: a gateway that lacks the change would still answer from the old catalogue [invariant 70].
            if self.is_propagated(number).await? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::time::sleep(PROPAGATION_POLL).await;
        }
    }

    /// Whether the heartbeats of all running gateways show this number.
    pub(crate) async fn is_propagated(&self, number: Timestamp) -> Result<bool> {
        Ok(self.list().await?.iter().all(|member| member.row.catalogue >= number))
    }

    /// Writes the heartbeat now.
    pub(crate) async fn write_heartbeat(&self) -> Result<()> {
        // Race: the lease counts from before the engine's time is read, the heartbeat's life from that time [invariant 81].
        let begun = self.context.monotonic();
        // Race: the expiry counts from the store's clock; by a slow clock here a live heartbeat would expire [invariant 67].
        let now = self.context.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        // Race: no await between number and stamp, or of two heartbeats the newer could show less [invariant 102].
        let catalogue = self.catalogue.advertisable_number();
        let row = MemberRow {
            node: self.context.config.node.clone(),
            address: self.context.config.address.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            catalogue,
        };
        let row = Row {
            name: Bytes::copy_from_slice(&self.context.ports.actor.0.to_be_bytes()),
            value: row.encode(),
            stamp: self.issuer.clock.current(self.context.now()).max(now).max(Timestamp(1)),
            expires: Some(now + as_micros(LIFETIME)),
        };
        let batch = Batch::single(Partition::members(), vec![Change::Put(row)]);
        // Race: the others read the members at a quorum. They may miss a heartbeat whose answer was lost, or that fewer replicas
        // took, and delete a bucket without this gateway: only a quorum's answer extends the lease [invariant 107].
        if self.context.write_internal_table(batch).await? {
            self.lease.extend(begun, self.context.monotonic(), LIFETIME);
        }
        self.advertised_number.fetch_max(catalogue.0, Ordering::AcqRel);
        Ok(())
    }

    /// Waits for a fresh catalogue under a live heartbeat, and returns the end of the lease. A single gateway needs none.
    ///
    /// # Errors
    /// [`Error::NotReady`] while heartbeats fail, or the catalogue cannot be checked.
    pub async fn await_lease(&self) -> Result<Option<Instant>> {
        let give_up = Instant::now() + INTERNAL_CALL_TIMEOUT;
        loop {
            self.catalogue.fresh().await?;
            if self.context.config.single_process {
                return Ok(None);
            }
            let now = self.context.monotonic();
            // Race: while heartbeats failed, the others may have deleted the bucket without this gateway [invariant 81].
            if let Some(until) = self.lease.covers(self.catalogue.checked_at(), now) {
                return Ok(Some(Instant::now() + (until - now)));
            }
            if Instant::now() >= give_up {
                let why = "the heartbeat of this gateway cannot be written, so writes to buckets wait";
                return Err(Error::NotReady(why.into()));
            }
            // Race: in a gap other gateways may have answered a change that this one has not seen.
            if self.lease.has_lapsed(now) {
                tokio::time::sleep(LEASE_POLL).await;
            } else {
                self.catalogue.refresh().await?;
            }
        }
    }

    /// Deletes the heartbeat. A single gateway also stores its exact clock, so that the next start need not jump ahead to the
    /// mark.
    pub(crate) async fn delete_heartbeat(&self) -> Result<()> {
        let name = Bytes::copy_from_slice(&self.context.ports.actor.0.to_be_bytes());
        let clock = self.issuer.clock.current(self.context.now());
        // Race: a heartbeat may have the stamp of an engine with a faster clock, and would stay [invariant 104].
        let now = self.context.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        let gone = Change::Remove { name, stamp: clock.max(now) + 1 };
        self.context.apply_at_quorum(Batch::single(Partition::members(), vec![gone])).await?;
        if self.context.config.single_process { self.issuer.store_exact(clock).await } else { Ok(()) }
    }
}

/// The lease of one gateway, in its monotonic time.
#[derive(Debug, Default)]
pub(crate) struct MembershipLease(Mutex<Span>);

/// Heartbeats that followed each other without a gap.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    /// When the first of them was acknowledged.
    since: Duration,
    /// When the last of them expires at the earliest.
    until: Duration,
}

impl MembershipLease {
    /// Extends the lease by a heartbeat that lives for `lifetime`, was begun at `begun` and acknowledged at `acknowledged`.
    pub(crate) fn extend(&self, begun: Duration, acknowledged: Duration, lifetime: Duration) {
        let mut span = self.0.lock();
        // Race: in a gap the others go on without this gateway, so earlier checks of the catalogue are void [invariant 81].
        if acknowledged >= span.until {
            span.since = acknowledged;
        }
        // Race: of two concurrent heartbeats the older may be answered last, and must not shorten the lease.
        span.until = span.until.max(begun + lifetime.saturating_sub(MARGIN));
    }

    /// Whether the last heartbeat may have expired.
    pub(crate) fn has_lapsed(&self, now: Duration) -> bool {
        now >= self.0.lock().until
    }

    /// Until when a catalogue whose check began at `checked` may be relied on; `None` when it may not be.
    pub(crate) fn covers(&self, checked: Duration, now: Duration) -> Option<Duration> {
        let Span { since, until } = *self.0.lock();
        (checked >= since && now < until).then_some(until)
    }
}

pub(crate) fn decode_member(row: Row) -> Result<Member> {
    let damaged = |error: &dyn std::fmt::Display| Error::Damaged(format!("a heartbeat: {error}"));
    let actor = row.name.as_ref().try_into().map(u64::from_be_bytes).map_err(|error| damaged(&error))?;
    Ok(Member { actor: ActorId(actor), row: MemberRow::decode(row.value).map_err(|error| damaged(&error))? })
}

/// Age of the last heartbeat, in microseconds, above which a gateway counts as down: two heartbeats and the time to write one.
const UNHEARD_MICROS: u64 = 5_000_000;

/// A gateway and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// The gateway.
    pub member: Member,
    /// Whether its last heartbeat is younger than five seconds.
    pub up: bool,
}

/// The cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    /// The gateways that run, in the order of their actors.
    pub members: Vec<MemberState>,
    /// The nodes of the engine; none for an engine in the gateway's process.
    pub nodes: Vec<EngineNode>,
}

impl ClusterState {
    /// Names of the gateways and nodes that are down.
    #[must_use]
    pub fn unreachable(&self) -> Vec<&str> {
        let members = self.members.iter().filter(|state| !state.up).map(|state| state.member.row.node.as_str());
        members.chain(self.nodes.iter().filter(|node| !node.up).map(|node| node.address.as_str())).collect()
    }

    /// Names of the gateways with an older catalogue than others.
    #[must_use]
    pub fn behind(&self) -> Vec<&str> {
        let rows = || self.members.iter().map(|state| &state.member.row);
        let newest = rows().map(|row| row.catalogue).max().unwrap_or_default();
        rows().filter(|row| row.catalogue < newest).map(|row| row.node.as_str()).collect()
    }

    /// Whether all are up and have the same catalogue.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unreachable().is_empty() && self.behind().is_empty()
    }
}

impl Members {
    /// The current cluster, from the live nodes of the engine. Keeps the gateways' names for `/stats`.
    ///
    /// # Errors
    /// The store's, and damage of a heartbeat.
    pub async fn cluster(&self) -> Result<ClusterState> {
        let partition = larder_store::Partition::members();
        // Fallback: operators look at the cluster when nodes are down, so fewer replicas will do.
        let rows = self.context.read_internal_table(&partition, &ReadQuery::all(MEMBERS_MAX)).await?.rows;
        let now = self.context.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        let state = |row: larder_rows::Row| {
            let up = now.since(row.stamp) <= UNHEARD_MICROS;
            Ok(MemberState { member: decode_member(row)?, up })
        };
        let members = rows.into_iter().map(state).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = members.iter().map(|state| state.member.row.node.clone()).collect();
        self.note_names(names);
        Ok(ClusterState { members, nodes: self.context.ports.engine.nodes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_from_before_a_gap_is_not_relied_on_after_it() {
        let (lease, at) = (MembershipLease::default(), Duration::from_secs);
        lease.extend(at(10), at(11), LIFETIME);
        assert_eq!(lease.covers(at(10), at(12)), None, "the check began before the first heartbeat was there");
        assert_eq!(lease.covers(at(11), at(12)), Some(at(19)));
        lease.extend(at(17), at(18), LIFETIME);
        assert_eq!(lease.covers(at(11), at(25)), Some(at(26)), "heartbeats without a gap are one span");
        assert!(!lease.has_lapsed(at(25)) && lease.has_lapsed(at(26)));
        lease.extend(at(27), at(28), LIFETIME);
        assert_eq!(lease.covers(at(25), at(29)), None);
        assert_eq!(lease.covers(at(28), at(29)), Some(at(36)));
    }
}

#[cfg(test)]
mod cluster_tests {
    use larder_rows::MemberRow;
    use larder_rows::{ActorId, Timestamp};

    use super::*;

    fn member(node: &str, catalogue: u64, up: bool) -> MemberState {
        let row = MemberRow {
            node: node.into(),
            address: String::new(),
            version: String::new(),
            catalogue: Timestamp(catalogue),
        };
        MemberState { member: Member { actor: ActorId(1), row }, up }
    }

    #[test]
    fn a_cluster_is_ready_when_all_are_up_and_agree() {
        let node = |up| EngineNode { address: "127.0.0.2:9042".into(), up };
        let state = |members, nodes| ClusterState { members, nodes };
        assert!(state(vec![member("a", 2, true), member("b", 2, true)], vec![node(true)]).is_ready());
        let held = state(vec![member("a", 2, true), member("b", 2, false)], Vec::new());
        assert_eq!((held.unreachable(), held.is_ready()), (vec!["b"], false));
        let down = state(vec![member("a", 2, true)], vec![node(false)]);
        assert_eq!((down.unreachable(), down.is_ready()), (vec!["127.0.0.2:9042"], false));
        let late = state(vec![member("a", 1, true), member("b", 2, true)], Vec::new());
        assert_eq!((late.behind(), late.is_ready()), (vec!["a"], false));
    }
}
