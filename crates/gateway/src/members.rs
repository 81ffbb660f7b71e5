//! Membership: the gateways that run, from their heartbeats ([`crate::heartbeats`] writes them).

use larder_model::{ActorId, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use larder_model::rows::{Batch, Change, MemberRow, Row};
use larder_store::{ConsistencyLevel, Partition, ReadQuery, micros_of};
use tokio::time::Instant;

use crate::clock_issuer::{ClockIssuer, SKEW_MICROS_MAX};
use crate::gateway_core::{GatewayCore, INTERNAL_CALL_TIMEOUT, internal_options};
use crate::membership_lease::MembershipLease;
use crate::types::CatalogueCopy;
use crate::{Error, Result};

/// Lifetime of a heartbeat.
const LIFETIME: Duration = Duration::from_secs(10);
/// Most gateways that are read.
pub(crate) const MEMBERS_MAX: usize = 1000;
/// A gateway without heartbeat for this many microseconds is dead or unable to write.
const SILENT_MICROS: u64 = 3_000_000;
/// Interval in which a starting gateway checks for another one of its name.
const NAME_POLL: Duration = Duration::from_millis(250);
/// Pause between two looks at a lapsed lease.
const LEASE_POLL: Duration = Duration::from_millis(50);
/// Longest wait of a change for the other gateways.
const PROPAGATION_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two looks at the numbers that they show.
const PROPAGATION_POLL: Duration = Duration::from_millis(50);

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
    pub(crate) core: Arc<GatewayCore>,
    pub(crate) issuer: Arc<ClockIssuer>,
    pub(crate) catalogue: Arc<CatalogueCopy>,
    pub(crate) lease: MembershipLease,
    known_names: ArcSwap<Vec<String>>,
    /// The catalogue number in the last written heartbeat.
    advertised_number: AtomicU64,
}

impl Members {
    /// The members of `core`'s cluster; nothing is written yet.
    pub(crate) fn new(core: Arc<GatewayCore>, issuer: Arc<ClockIssuer>, catalogue: Arc<CatalogueCopy>) -> Arc<Self> {
        Arc::new(Self {
            core,
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
    pub(crate) fn known_names(&self) -> Arc<Vec<String>> {
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

    /// Waits until no other process runs under this name. A killed one stops its heartbeats; a live one writes its next within
    /// four seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it runs.
    pub(crate) async fn claim_name(&self) -> Result<()> {
        let Some(mut last) = self.namesake_heartbeat().await? else { return Ok(()) };
        // A late heartbeat of a killed process may arrive only now. It was stamped before this moment, within the clock skew,
        // so only a later stamp proves a live process.
        let begun =
            last.max(self.core.ports.store.now(&internal_options(ConsistencyLevel::One)).await? + SKEW_MICROS_MAX);
        loop {
            let now = self.core.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
            let Some(heard) = self.namesake_heartbeat().await? else { return Ok(()) };
            last = last.max(heard);
            if heard > begun {
                let name = &self.core.config.node;
                return Err(Error::NotReady(format!(
                    "a gateway named {name} runs already: give each its own --node-name"
                )));
            }
            if now.since(last) > SILENT_MICROS {
                return Ok(());
            }
            tokio::time::sleep(NAME_POLL).await;
        }
    }

    /// Stamp of the newest heartbeat of another process under this name.
    async fn namesake_heartbeat(&self) -> Result<Option<Timestamp>> {
        let page = self.member_rows().await?.into_iter().map(|row| Ok((row.stamp, decode_member(row)?)));
        let members = page.collect::<Result<Vec<_>>>()?;
        let other = |member: &Member| member.actor != self.core.ports.actor && member.row.node == self.core.config.node;
        Ok(members.iter().filter(|(_, member)| other(member)).map(|(stamp, _)| *stamp).max())
    }

    /// Whether this gateway is the leader, which does the work that one must do for all: the first running one by actor. For
    /// moments there may be two leaders, or none.
    ///
    /// # Errors
    /// The store's.
    pub async fn is_leader(&self) -> Result<bool> {
        Ok(self.list().await?.first().is_none_or(|first| first.actor == self.core.ports.actor))
    }

    async fn member_rows(&self) -> Result<Vec<Row>> {
        let query = ReadQuery::all(MEMBERS_MAX);
        Ok(self
            .core
            .ports
            .store
            .read(&Partition::members(), &query, &internal_options(ConsistencyLevel::Quorum))
            .await?
            .rows)
    }

    /// The running gateways, with this one, in the order of their actors.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<Member>> {
        self.member_rows().await?.into_iter().map(decode_member).collect()
    }

    /// Waits until every running node serves from a catalogue of this number and no guarded write relies on an older one.
    pub(crate) async fn await_propagation(&self, number: Timestamp) -> Result<()> {
        if self.is_propagated_within(number, PROPAGATION_TIMEOUT).await? { Ok(()) } else { Err(Error::TimedOut) }
    }

    /// As [`Self::await_propagation`], but gives up after `within`: `false`.
    pub(crate) async fn is_propagated_within(&self, number: Timestamp, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        loop {
            // The last guarded write on an older catalogue may have ended since the last heartbeat: no wait for the next one.
            self.advertise_catalogue().await?;
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
        let begun = self.core.monotonic();
        let now = self.core.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        // No await between number and stamp: of two concurrent heartbeats the greater stamp never carries the smaller number.
        let catalogue = self.catalogue.advertisable_number();
        let row = MemberRow {
            node: self.core.config.node.clone(),
            address: self.core.config.address.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            catalogue,
        };
        let row = Row {
            name: Bytes::copy_from_slice(&self.core.ports.actor.0.to_be_bytes()),
            value: row.encode(),
            stamp: self.issuer.clock.current(self.core.now()).max(now).max(Timestamp(1)),
            expires: Some(now + micros_of(LIFETIME)),
        };
        let batch = Batch::of(Partition::members(), vec![Change::Put(row)]);
        self.core.write_internal_table(batch).await?;
        self.lease.extend(begun, self.core.monotonic(), LIFETIME);
        self.advertised_number.fetch_max(catalogue.0, Ordering::AcqRel);
        Ok(())
    }

    /// Waits for a fresh catalogue under a live heartbeat, and answers the end of the lease. A lone gateway needs none.
    ///
    /// # Errors
    /// [`Error::NotReady`] while heartbeats fail, or the catalogue cannot be checked.
    pub(crate) async fn await_lease(&self) -> Result<Option<Instant>> {
        let give_up = Instant::now() + INTERNAL_CALL_TIMEOUT;
        loop {
            self.catalogue.fresh().await?;
            if self.core.config.alone {
                return Ok(None);
            }
            let now = self.core.monotonic();
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

    /// Deletes the heartbeat. A lone gateway also stores its exact clock, so that the next start need not jump ahead to the
    /// mark.
    pub(crate) async fn delete_heartbeat(&self) -> Result<()> {
        let name = Bytes::copy_from_slice(&self.core.ports.actor.0.to_be_bytes());
        let clock = self.issuer.clock.current(self.core.now());
        // Newer than every heartbeat, which may carry the stamp of an engine with a faster clock; else it would stay.
        let now = self.core.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        let gone = Change::Remove { name, stamp: clock.max(now) + 1 };
        self.core
            .ports
            .store
            .apply(Batch::of(Partition::members(), vec![gone]), &internal_options(ConsistencyLevel::Quorum))
            .await?;
        if self.core.config.alone { self.issuer.store_exact(clock).await } else { Ok(()) }
    }

    /// Deletes the heartbeats of dead processes: the directory's lock proves that this process is alone.
    pub(crate) async fn drop_others(&self) -> Result<()> {
        let others: Vec<_> =
            self.list().await?.into_iter().filter(|member| member.actor != self.core.ports.actor).collect();
        let gone = |member: &Member| Change::Remove {
            name: Bytes::copy_from_slice(&member.actor.0.to_be_bytes()),
            stamp: Timestamp::MAX,
        };
        let changes: Vec<_> = others.iter().map(gone).collect();
        if !changes.is_empty() {
            self.core
                .ports
                .store
                .apply(Batch::of(Partition::members(), changes), &internal_options(ConsistencyLevel::Quorum))
                .await?;
        }
        Ok(())
    }
}

pub(crate) fn decode_member(row: Row) -> Result<Member> {
    let damaged = |error: &dyn std::fmt::Display| Error::Damaged(format!("a heartbeat: {error}"));
    let actor = row.name.as_ref().try_into().map(u64::from_be_bytes).map_err(|error| damaged(&error))?;
    Ok(Member { actor: ActorId(actor), row: MemberRow::decode(row.value).map_err(|error| damaged(&error))? })
}
