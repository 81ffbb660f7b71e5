//! Who runs: heartbeats, and the clock mark that a lone gateway stores with them.
//!
//! Every gateway writes a row every two seconds that expires after ten, judged by the store's clock alone. What a gateway
//! knows (the number of its catalogue) is in the row, so "every running node has it" is one read. Between two heartbeats it
//! looks for a newer catalogue every half second, and says at once when it has taken one over: a change reaches every gateway
//! within a second, at the price of one small read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use larder_model::causality::Clock;
use larder_model::rows::{Batch, Change, MarkRow, MemberRow, Row, Stamp};
use larder_store::{Level, Partition, ReadQuery};
use tokio::task::JoinHandle;

use crate::clock::{HybridClock, WallClockWatch};
use crate::gateway::own_options;
use crate::metrics::Event;
use crate::{Config, Error, Gateway, Ports, Result, Rule};

/// How often a gateway looks for a newer catalogue.
const LOOK: Duration = Duration::from_millis(500);
/// Every which look is a heartbeat: one in two seconds.
const LOOKS_PER_BEAT: u32 = 4;
/// Every which failure in a row is logged: the first, and one in a minute.
const FAILURES_PER_WARNING: u32 = 30;
const EXPIRY_MICROS: u64 = 10_000_000;
/// A gateway whose clock is off the engine's by more microseconds takes no writes.
pub(crate) const SKEW_MICROS_MAX: u64 = 500_000;
pub(crate) const MEMBERS_MAX: usize = 1000;
/// A gateway that was silent for this long, in microseconds, runs no more or is not well.
const SILENT_MICROS: u64 = 3_000_000;
/// How often a gateway that starts looks whether another one of its name still runs.
const NAME_POLL: Duration = Duration::from_millis(250);

/// A running gateway, as its heartbeat says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its process incarnation.
    pub actor: u64,
    /// What it says of itself.
    pub row: MemberRow,
}

/// The actor of this run.
pub(crate) fn actor_of(ports: &Ports, config: &Config) -> u64 {
    if ports.rules.has(Rule::NewActor) { ports.actor } else { larder_model::hash::id64(&[config.node.as_bytes()]) }
}

/// A lone gateway's clock begins above the mark that the last one of its name stored; answers the stamp of its row, too.
pub(crate) async fn stored_clock(ports: &Ports, config: &Config) -> Result<(HybridClock, Stamp)> {
    if !config.alone {
        return Ok((HybridClock::unmarked(), 0));
    }
    let page = ports.store.read(&Partition::marks(), &ReadQuery::all(MEMBERS_MAX), &own_options(Level::Quorum)).await?;
    let Some(row) = page.rows.into_iter().find(|row| row.name == config.node.as_bytes()) else {
        return Ok((HybridClock::above(0), 0));
    };
    let found = MarkRow::decode(row.value).map_err(|error| Error::Damaged(format!("a clock mark: {error}")))?;
    Ok((HybridClock::above(if ports.rules.has(Rule::NewActor) { found.mark } else { 0 }), row.stamp))
}

/// Keeps saying that the gateway runs, until it is dropped or the task is ended.
pub(crate) fn beat(gateway: &Arc<Gateway>) -> JoinHandle<()> {
    let mut watch = WallClockWatch::new(gateway.now(), gateway.monotonic());
    let gateway = Arc::downgrade(gateway);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut failures = 0;
        for look in 1_u32.. {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            log_jump(watch.look(gateway.now(), gateway.monotonic()));
            if look.is_multiple_of(LOOKS_PER_BEAT) {
                failures = log_beat(gateway.beat_once().await, failures);
            } else if let Err(error) = gateway.look_once().await {
                tracing::debug!(%error, "no look for a newer catalogue");
            }
        }
    })
}

/// Says that the wall clock was set.
fn log_jump(jump: Option<i128>) {
    let Some(jump) = jump else { return };
    let direction = if jump < 0 { "back" } else { "ahead" };
    let seconds = jump.unsigned_abs() / 1_000_000;
    tracing::warn!(
        seconds,
        "the wall clock of this machine went {direction}: expiry and dates follow it, the order of writes does not"
    );
}

/// Logs how a heartbeat went after so many that failed; answers how many in a row have failed now.
fn log_beat(beat: Result<()>, failures: u32) -> u32 {
    match beat {
        Ok(()) => {
            if failures > 0 {
                tracing::info!(failures, "heartbeats go on");
            }
            0
        }
        Err(error) => {
            if failures.is_multiple_of(FAILURES_PER_WARNING) {
                tracing::warn!(%error, failures, "a heartbeat failed, or what goes with it");
            }
            failures + 1
        }
    }
}

impl Gateway {
    /// Says that it runs, whatever else fails: who cannot take over a newer catalogue shows the one it has.
    async fn beat_once(&self) -> Result<()> {
        let (skew, refreshed) = tokio::join!(self.check_skew(), self.refresh());
        let said = self.say_alive().await;
        if said.is_err() {
            self.metrics.event(Event::HeartbeatMissed);
        }
        let seen = async { self.cluster().await.map(drop) };
        said.and(skew).and(refreshed).and(seen.await).and(self.renew_mark().await)
    }

    /// Takes over a newer catalogue, and says so.
    async fn look_once(&self) -> Result<()> {
        self.refresh().await?;
        self.tell().await
    }

    /// Writes the heartbeat now if the last one shows an older catalogue than every write under way knows.
    pub(crate) async fn tell(&self) -> Result<()> {
        if self.shown_number() > self.told.load(Ordering::Acquire) { self.say_alive().await } else { Ok(()) }
    }

    /// Waits until no other process runs under this name. One that was killed falls silent; one that runs is heard within
    /// four seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it runs.
    pub(crate) async fn claim_name(&self) -> Result<()> {
        let Some(mut last) = self.namesake().await? else { return Ok(()) };
        // A heartbeat that the killed process sent may arrive only now: it was stamped before this moment, give or take a clock.
        let begun = last.max(self.ports.store.now(&self.own(Level::One)).await? + SKEW_MICROS_MAX);
        loop {
            let now = self.ports.store.now(&self.own(Level::One)).await?;
            let Some(heard) = self.namesake().await? else { return Ok(()) };
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

    /// The stamp of the newest heartbeat that another process wrote under this name.
    async fn namesake(&self) -> Result<Option<Stamp>> {
        let page = self.member_rows().await?.into_iter().map(|row| Ok((row.stamp, member(row)?)));
        let members = page.collect::<Result<Vec<_>>>()?;
        let other = |member: &Member| member.actor != self.actor && member.row.node == self.config.node;
        Ok(members.iter().filter(|(_, member)| other(member)).map(|(stamp, _)| *stamp).max())
    }

    /// Whether this gateway does what one alone has to do for all: of those that run, the first in the order of their actors.
    /// For moments there may be two, or none.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn leads(&self) -> Result<bool> {
        Ok(self.members().await?.first().is_none_or(|first| first.actor == self.actor))
    }

    async fn member_rows(&self) -> Result<Vec<Row>> {
        let query = ReadQuery::all(MEMBERS_MAX);
        Ok(self.ports.store.read(&Partition::members(), &query, &self.own(Level::Quorum)).await?.rows)
    }

    /// The running gateways, this one included, in the order of their actors.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn members(&self) -> Result<Vec<Member>> {
        self.member_rows().await?.into_iter().map(member).collect()
    }

    /// Writes the heartbeat now.
    pub(crate) async fn say_alive(&self) -> Result<()> {
        let now = self.ports.store.now(&self.own(Level::One)).await?;
        // Stamp and number are taken together: of two beats the later one never says less.
        let catalogue = self.shown_number();
        let row = MemberRow {
            node: self.config.node.clone(),
            address: self.config.address.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            catalogue,
        };
        let row = Row {
            name: Bytes::copy_from_slice(&self.actor.to_be_bytes()),
            value: row.encode(),
            stamp: self.clock.reading(self.now()).max(now),
            expires: Some(now + EXPIRY_MICROS),
        };
        let batch = Batch::of(Partition::members(), vec![Change::Put(row)]);
        self.write_own(batch).await?;
        self.told.fetch_max(catalogue, Ordering::AcqRel);
        Ok(())
    }

    /// Takes the heartbeat back, and stores the exact clock where there is a mark, so that the next start need not jump ahead.
    pub(crate) async fn say_gone(&self) -> Result<()> {
        let name = Bytes::copy_from_slice(&self.actor.to_be_bytes());
        let clock = self.clock.reading(self.now());
        // Not older than any heartbeat, which may have been stamped by an engine whose clock is ahead.
        let now = self.ports.store.now(&self.own(Level::One)).await?;
        let gone = Change::Remove { name, stamp: clock.max(now) + 1 };
        self.ports.store.apply(Batch::of(Partition::members(), vec![gone]), &self.own(Level::Quorum)).await?;
        if !self.config.alone {
            return Ok(());
        }
        let mut stamp = self.mark_stamp.lock().await;
        self.write_mark(clock, &mut stamp).await
    }

    /// Drops the heartbeats of dead processes: the directory's lock proves that this one is alone.
    pub(crate) async fn drop_other_members(&self) -> Result<()> {
        let others: Vec<_> = self.members().await?.into_iter().filter(|member| member.actor != self.actor).collect();
        let gone = |member: &Member| Change::Remove {
            name: Bytes::copy_from_slice(&member.actor.to_be_bytes()),
            stamp: Clock::MAX,
        };
        let changes: Vec<_> = others.iter().map(gone).collect();
        if !changes.is_empty() {
            self.ports.store.apply(Batch::of(Partition::members(), changes), &self.own(Level::Quorum)).await?;
        }
        Ok(())
    }

    /// The next clock of this gateway.
    pub(crate) async fn issue(&self) -> Result<Clock> {
        loop {
            let now = self.now();
            if !self.rule(Rule::IssueBeforeSend) {
                return Ok(self.clock.peek(now));
            }
            match self.clock.issue(now) {
                Some(clock) => return Ok(clock),
                None => self.store_mark().await?,
            }
        }
    }

    /// Stores a mark ahead of the clock.
    pub(crate) async fn store_mark(&self) -> Result<()> {
        let mut stamp = self.mark_stamp.lock().await;
        let mark = self.clock.next_mark(self.now());
        self.write_mark(mark, &mut stamp).await?;
        self.clock.marked(mark);
        Ok(())
    }

    async fn write_mark(&self, mark: Clock, stamp: &mut Stamp) -> Result<()> {
        *stamp += 1;
        let stamp = *stamp;
        let name = Bytes::copy_from_slice(self.config.node.as_bytes());
        let row = Row { name, value: MarkRow { mark }.encode(), stamp, expires: None };
        let batch = Batch::of(Partition::marks(), vec![Change::Put(row)]);
        Ok(self.ports.store.apply(batch, &self.own(Level::Quorum)).await?)
    }

    async fn renew_mark(&self) -> Result<()> {
        if self.clock.mark_is_near(self.now()) { self.store_mark().await } else { Ok(()) }
    }

    /// Compares the own clock with the engine's; writes are refused while they are far apart.
    pub(crate) async fn check_skew(&self) -> Result<()> {
        let engine = self.ports.store.now(&self.own(Level::One)).await?;
        let skewed = self.rule(Rule::RefuseSkew) && engine.abs_diff(self.now()) > SKEW_MICROS_MAX;
        if skewed && !self.skewed.swap(skewed, Ordering::AcqRel) {
            self.metrics.event(Event::ClockSkew);
            tracing::error!("this machine's clock is more than 500 ms off the engine's: writes are refused");
        }
        self.skewed.store(skewed, Ordering::Release);
        Ok(())
    }
}

pub(crate) fn member(row: Row) -> Result<Member> {
    let damaged = |error: &dyn std::fmt::Display| Error::Damaged(format!("a heartbeat: {error}"));
    let actor = row.name.as_ref().try_into().map(u64::from_be_bytes).map_err(|error| damaged(&error))?;
    Ok(Member { actor, row: MemberRow::decode(row.value).map_err(|error| damaged(&error))? })
}
