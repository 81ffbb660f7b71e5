//! Who runs: heartbeats, and the clock marks that are stored with them.
//!
//! Every gateway writes a row every two seconds that expires after ten, judged by the store's clock alone. What a gateway
//! knows (the number of its catalogue) is in the row, so "every running node has it" is one read.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use larder_model::causality::Clock;
use larder_model::rows::{Batch, Change, MarkRow, MemberRow, Row, Stamp};
use larder_store::{Level, Partition, ReadQuery};
use tokio::task::JoinHandle;

use crate::gateway::own_options;
use crate::metrics::Event;
use crate::{Config, Error, Gateway, Ports, Result, Rule};

const BEAT: Duration = Duration::from_secs(2);
const EXPIRY_MICROS: u64 = 10_000_000;
const SKEW_MICROS_MAX: u64 = 500_000;
const MEMBERS_MAX: usize = 1000;

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

/// The clock mark that the last gateway of this name stored, and the stamp of its row.
pub(crate) async fn stored_mark(ports: &Ports, config: &Config) -> Result<(Clock, Stamp)> {
    let page = ports.store.read(&Partition::marks(), &ReadQuery::all(MEMBERS_MAX), &own_options(Level::Quorum)).await?;
    let Some(row) = page.rows.into_iter().find(|row| row.name == config.node.as_bytes()) else {
        return Ok((0, 0));
    };
    let found = MarkRow::decode(row.value).map_err(|error| Error::Damaged(format!("a clock mark: {error}")))?;
    Ok((if ports.rules.has(Rule::NewActor) { found.mark } else { 0 }, row.stamp))
}

/// Keeps saying that the gateway runs, until it is dropped or the task is ended.
pub(crate) fn beat(gateway: &Arc<Gateway>) -> JoinHandle<()> {
    let gateway = Arc::downgrade(gateway);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(BEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if !beat_once(&gateway).await {
                return;
            }
        }
    })
}

async fn beat_once(gateway: &Weak<Gateway>) -> bool {
    let Some(gateway) = gateway.upgrade() else { return false };
    let missed = |error: &Error| {
        gateway.metrics.event(Event::HeartbeatMissed);
        tracing::warn!(%error, "heartbeat missed");
    };
    let result = async {
        gateway.check_skew().await?;
        gateway.refresh().await?;
        gateway.say_alive().await?;
        gateway.members().await?;
        gateway.renew_mark().await
    };
    if let Err(error) = result.await {
        missed(&error);
    }
    true
}

impl Gateway {
    /// The running gateways, this one included, in the order of their actors.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn members(&self) -> Result<Vec<Member>> {
        let query = ReadQuery::all(MEMBERS_MAX);
        let page = self.ports.store.read(&Partition::members(), &query, &self.own(Level::Quorum)).await?;
        let members = page.rows.into_iter().map(member).collect::<Result<Vec<_>>>()?;
        self.seen_members.store(members.iter().map(|member| member.row.node.clone()).collect::<Vec<_>>().into());
        Ok(members)
    }

    /// Writes the heartbeat now.
    pub(crate) async fn say_alive(&self) -> Result<()> {
        let now = self.ports.store.now(&self.own(Level::One)).await?;
        // Stamp and number are taken together: of two beats the later one never says less.
        let row = MemberRow {
            node: self.config.node.clone(),
            address: self.config.address.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            catalogue: self.shown_number(),
        };
        let row = Row {
            name: Bytes::copy_from_slice(&self.actor.to_be_bytes()),
            value: row.encode(),
            stamp: self.clock.reading(self.now()).max(now),
            expires: Some(now + EXPIRY_MICROS),
        };
        let batch = Batch::of(Partition::members(), vec![Change::Put(row)]);
        Ok(self.ports.store.apply(batch, &self.own(Level::Quorum)).await?)
    }

    /// Takes the heartbeat back and stores the exact clock, so that the next start need not jump ahead.
    pub(crate) async fn say_gone(&self) -> Result<()> {
        let name = Bytes::copy_from_slice(&self.actor.to_be_bytes());
        let clock = self.clock.reading(self.now());
        let gone = Change::Remove { name, stamp: clock + 1 };
        self.ports.store.apply(Batch::of(Partition::members(), vec![gone]), &self.own(Level::Quorum)).await?;
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

fn member(row: Row) -> Result<Member> {
    let damaged = |error: &dyn std::fmt::Display| Error::Damaged(format!("a heartbeat: {error}"));
    let actor = row.name.as_ref().try_into().map(u64::from_be_bytes).map_err(|error| damaged(&error))?;
    Ok(Member { actor, row: MemberRow::decode(row.value).map_err(|error| damaged(&error))? })
}
