//! Membership: heartbeats of running gateways, and the clock mark of a lone gateway.
//!
//! Every gateway writes a row every two seconds; the store's clock alone expires it after ten. The row holds the number of the
//! gateway's catalogue, so one read tells whether every running node has a change. Between heartbeats a gateway polls for a
//! newer catalogue every half second and advertises it at once: a change reaches every gateway within a second, at the price of
//! one small read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use larder_model::causality::Clock;
use larder_model::rows::{Batch, Change, MarkRow, MemberRow, Row, Stamp};
use larder_store::{ConsistencyLevel, Partition, ReadQuery, micros_of};
use tokio::task::JoinHandle;

use crate::clock::{HybridClock, WallClockWatch};
use crate::gateway::internal_options;
use crate::metrics::Event;
use crate::{Config, Error, Gateway, GatewayPorts, Result};

/// Interval of polls for a newer catalogue.
const CATALOGUE_POLL: Duration = Duration::from_millis(500);
/// Polls per heartbeat: one heartbeat in two seconds.
const POLLS_PER_HEARTBEAT: u32 = 4;
/// Failures per warning: the first one is logged, then one a minute.
const FAILURES_PER_WARNING: u32 = 30;
/// Lifetime of a heartbeat.
const LIFETIME: Duration = Duration::from_secs(10);
/// A gateway whose clock differs from the engine's by more microseconds refuses writes.
pub(crate) const SKEW_MICROS_MAX: u64 = 500_000;
pub(crate) const MEMBERS_MAX: usize = 1000;
/// A gateway without heartbeat for this many microseconds is dead or unable to write.
const SILENT_MICROS: u64 = 3_000_000;
/// Interval in which a starting gateway checks for another one of its name.
const NAME_POLL: Duration = Duration::from_millis(250);

/// A running gateway, from its heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The id of its run.
    pub actor: u64,
    /// Its heartbeat.
    pub row: MemberRow,
}

/// The clock of a lone gateway, above the mark that the last run of its name stored, and the stamp of the mark's row.
pub(crate) async fn stored_clock(ports: &GatewayPorts, config: &Config) -> Result<(HybridClock, Stamp)> {
    if !config.alone {
        return Ok((HybridClock::unmarked(), 0));
    }
    let page = ports
        .store
        .read(&Partition::marks(), &ReadQuery::all(MEMBERS_MAX), &internal_options(ConsistencyLevel::Quorum))
        .await?;
    let Some(row) = page.rows.into_iter().find(|row| row.name == config.node.as_bytes()) else {
        return Ok((HybridClock::above(0), 0));
    };
    let found = MarkRow::decode(row.value).map_err(|error| Error::Damaged(format!("a clock mark: {error}")))?;
    Ok((HybridClock::above(found.mark), row.stamp))
}

/// Spawns the task that writes heartbeats, until the gateway is dropped or the task aborted.
pub(crate) fn spawn_heartbeats(gateway: &Arc<Gateway>) -> JoinHandle<()> {
    let mut watch = WallClockWatch::new(gateway.now(), gateway.monotonic());
    let gateway = Arc::downgrade(gateway);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(CATALOGUE_POLL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut failures = 0;
        for look in 1_u32.. {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            log_clock_jump(watch.check(gateway.now(), gateway.monotonic()));
            if look.is_multiple_of(POLLS_PER_HEARTBEAT) || gateway.lease.has_lapsed(gateway.monotonic()) {
                failures = log_heartbeat(gateway.run_heartbeat().await, failures);
            } else if let Err(error) = gateway.poll_catalogue().await {
                tracing::debug!(%error, "catalogue poll failed: the next one is in 500 ms");
            }
        }
    })
}

/// Logs a jump of the wall clock.
fn log_clock_jump(jump: Option<i128>) {
    let Some(jump) = jump else { return };
    let direction = if jump < 0 { "back" } else { "ahead" };
    let seconds = jump.unsigned_abs() / 1_000_000;
    tracing::warn!(
        seconds,
        "the wall clock of this machine jumped {direction}: expiry and dates follow it, the order of writes does not"
    );
}

/// Logs the result of a heartbeat; answers the number of failures in a row.
fn log_heartbeat(result: Result<()>, failures: u32) -> u32 {
    match result {
        Ok(()) => {
            if failures > 0 {
                tracing::info!(failures, "heartbeats succeed again");
            }
            0
        }
        Err(error) => {
            if failures.is_multiple_of(FAILURES_PER_WARNING) {
                tracing::warn!(
                    %error,
                    failures,
                    "heartbeat or catalogue refresh failed: retried in 2 s; requests are refused 5 s after the last check"
                );
            }
            failures + 1
        }
    }
}

impl Gateway {
    /// One heartbeat, even if the rest fails: a gateway that cannot refresh its catalogue advertises the one it has.
    async fn run_heartbeat(&self) -> Result<()> {
        let (skew, refreshed) = tokio::join!(self.check_skew(), self.refresh_catalogue());
        // After the refresh, so that the heartbeat advertises the new number without waiting for the next one.
        let written = self.write_heartbeat().await;
        if written.is_err() {
            self.metrics.count_event(Event::HeartbeatMissed);
        }
        let cluster = async { self.cluster().await.map(drop) };
        written.and(skew).and(refreshed).and(cluster.await).and(self.renew_mark().await)
    }

    /// Refreshes the catalogue and advertises it if it is newer.
    async fn poll_catalogue(&self) -> Result<()> {
        self.refresh_catalogue().await?;
        self.advertise_catalogue().await
    }

    /// Writes a heartbeat now if the last one shows an older number than it may.
    pub(crate) async fn advertise_catalogue(&self) -> Result<()> {
        if self.advertisable_number() > self.advertised_number.load(Ordering::Acquire) {
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
            last.max(self.ports.store.now(&self.internal_options(ConsistencyLevel::One)).await? + SKEW_MICROS_MAX);
        loop {
            let now = self.ports.store.now(&self.internal_options(ConsistencyLevel::One)).await?;
            let Some(heard) = self.namesake_heartbeat().await? else { return Ok(()) };
            last = last.max(heard);
            if heard > begun {
                let name = &self.config.node;
                return Err(Error::NotReady(format!(
                    "a gateway named {name} runs already: give each its own --node-name"
                )));
            }
            if now.saturating_sub(last) > SILENT_MICROS {
                return Ok(());
            }
            tokio::time::sleep(NAME_POLL).await;
        }
    }

    /// Stamp of the newest heartbeat of another process under this name.
    async fn namesake_heartbeat(&self) -> Result<Option<Stamp>> {
        let page = self.member_rows().await?.into_iter().map(|row| Ok((row.stamp, decode_member(row)?)));
        let members = page.collect::<Result<Vec<_>>>()?;
        let other = |member: &Member| member.actor != self.actor && member.row.node == self.config.node;
        Ok(members.iter().filter(|(_, member)| other(member)).map(|(stamp, _)| *stamp).max())
    }

    /// Whether this gateway is the leader, which does the work that one must do for all: the first running one by actor. For
    /// moments there may be two leaders, or none.
    ///
    /// # Errors
    /// The store's.
    pub async fn is_leader(&self) -> Result<bool> {
        Ok(self.members().await?.first().is_none_or(|first| first.actor == self.actor))
    }

    async fn member_rows(&self) -> Result<Vec<Row>> {
        let query = ReadQuery::all(MEMBERS_MAX);
        Ok(self
            .ports
            .store
            .read(&Partition::members(), &query, &self.internal_options(ConsistencyLevel::Quorum))
            .await?
            .rows)
    }

    /// The running gateways, with this one, in the order of their actors.
    ///
    /// # Errors
    /// The store's.
    pub async fn members(&self) -> Result<Vec<Member>> {
        self.member_rows().await?.into_iter().map(decode_member).collect()
    }

    /// Writes the heartbeat now.
    pub(crate) async fn write_heartbeat(&self) -> Result<()> {
        let begun = self.monotonic();
        let now = self.ports.store.now(&self.internal_options(ConsistencyLevel::One)).await?;
        // No await between number and stamp: of two concurrent heartbeats the greater stamp never carries the smaller number.
        let catalogue = self.advertisable_number();
        let row = MemberRow {
            node: self.config.node.clone(),
            address: self.config.address.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            catalogue,
        };
        let row = Row {
            name: Bytes::copy_from_slice(&self.actor.to_be_bytes()),
            value: row.encode(),
            stamp: self.clock.current(self.now()).max(now),
            expires: Some(now + micros_of(LIFETIME)),
        };
        let batch = Batch::of(Partition::members(), vec![Change::Put(row)]);
        self.write_internal_table(batch).await?;
        self.lease.extend(begun, self.monotonic(), LIFETIME);
        self.advertised_number.fetch_max(catalogue, Ordering::AcqRel);
        Ok(())
    }

    /// Deletes the heartbeat. A lone gateway also stores its exact clock, so that the next start need not jump ahead to the
    /// mark.
    pub(crate) async fn delete_heartbeat(&self) -> Result<()> {
        let name = Bytes::copy_from_slice(&self.actor.to_be_bytes());
        let clock = self.clock.current(self.now());
        // Newer than every heartbeat, which may carry the stamp of an engine with a faster clock; else it would stay.
        let now = self.ports.store.now(&self.internal_options(ConsistencyLevel::One)).await?;
        let gone = Change::Remove { name, stamp: clock.max(now) + 1 };
        self.ports
            .store
            .apply(Batch::of(Partition::members(), vec![gone]), &self.internal_options(ConsistencyLevel::Quorum))
            .await?;
        if !self.config.alone {
            return Ok(());
        }
        let mut stamp = self.mark_stamp.lock().await;
        self.write_mark(clock, &mut stamp).await
    }

    /// Deletes the heartbeats of dead processes: the directory's lock proves that this process is alone.
    pub(crate) async fn drop_other_members(&self) -> Result<()> {
        let others: Vec<_> = self.members().await?.into_iter().filter(|member| member.actor != self.actor).collect();
        let gone = |member: &Member| Change::Remove {
            name: Bytes::copy_from_slice(&member.actor.to_be_bytes()),
            stamp: Clock::MAX,
        };
        let changes: Vec<_> = others.iter().map(gone).collect();
        if !changes.is_empty() {
            self.ports
                .store
                .apply(Batch::of(Partition::members(), changes), &self.internal_options(ConsistencyLevel::Quorum))
                .await?;
        }
        Ok(())
    }

    /// Issues the next clock of this gateway; stores a new mark first if needed.
    pub(crate) async fn issue(&self) -> Result<Clock> {
        loop {
            match self.clock.issue(self.now()) {
                Some(clock) => return Ok(clock),
                None => self.store_mark().await?,
            }
        }
    }

    /// Stores a mark ahead of the clock, and only then lets the clock run up to it.
    pub(crate) async fn store_mark(&self) -> Result<()> {
        let mut stamp = self.mark_stamp.lock().await;
        // Stored first: after a crash the next run starts above the stored mark, so above every clock issued here.
        let mark = self.clock.next_mark(self.now());
        self.write_mark(mark, &mut stamp).await?;
        self.clock.note_stored_mark(mark);
        Ok(())
    }

    async fn write_mark(&self, mark: Clock, stamp: &mut Stamp) -> Result<()> {
        *stamp += 1;
        let stamp = *stamp;
        let name = Bytes::copy_from_slice(self.config.node.as_bytes());
        let row = Row { name, value: MarkRow { mark }.encode(), stamp, expires: None };
        let batch = Batch::of(Partition::marks(), vec![Change::Put(row)]);
        Ok(self.ports.store.apply(batch, &self.internal_options(ConsistencyLevel::Quorum)).await?)
    }

    async fn renew_mark(&self) -> Result<()> {
        if self.clock.is_mark_near(self.now()) { self.store_mark().await } else { Ok(()) }
    }

    /// Compares this machine's clock with the engine's; writes are refused while they differ too much.
    pub(crate) async fn check_skew(&self) -> Result<()> {
        let engine = self.ports.store.now(&self.internal_options(ConsistencyLevel::One)).await?;
        let is_skewed = engine.abs_diff(self.now()) > SKEW_MICROS_MAX;
        if is_skewed && !self.is_skewed.swap(is_skewed, Ordering::AcqRel) {
            self.metrics.count_event(Event::ClockSkew);
            tracing::error!(
                "this machine's clock differs from the engine's by more than 500 ms: writes are refused until it is set"
            );
        }
        self.is_skewed.store(is_skewed, Ordering::Release);
        Ok(())
    }
}

pub(crate) fn decode_member(row: Row) -> Result<Member> {
    let damaged = |error: &dyn std::fmt::Display| Error::Damaged(format!("a heartbeat: {error}"));
    let actor = row.name.as_ref().try_into().map(u64::from_be_bytes).map_err(|error| damaged(&error))?;
    Ok(Member { actor, row: MemberRow::decode(row.value).map_err(|error| damaged(&error))? })
}
