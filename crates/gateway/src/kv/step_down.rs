//! Asking fewer replicas while others are down.
//!
//! ```text
//! r=quorum, pr=0   QUORUM ──2 of 3 down──> ONE                       answered, counted
//! w=quorum, pw=0   QUORUM ──all 3 down──> ANY                        answered, counted: one node keeps it for them
//! r=all, pr=2      ALL ──1 down──> QUORUM ──2 down──> PR-value unsatisfied: 1/2
//! ```
//! A replica is down when the engine says so, or when it does not answer in time: see [`Patience`](super::patience::Patience).
//!
//! What is sent again is what was sent before, stamps and names included, so that a write of which half arrived is completed
//! and not repeated [hole 23]; what was replaced meanwhile stays so by its tombstone, so an engine on one machine, which keeps
//! none, is asked once. Guarded tables never come here: they hold at a quorum or not at all.
//!
//! A row that names a blob never goes below a quorum: the sweeper takes a blob away once a quorum names it no more. Its
//! bytes were written at a quorum just before, so nothing is lost by it.

use larder_model::causality::{Clock, Slot};
use larder_model::rows::{Batch, Change};
use larder_store::{Error as StoreError, Kind, Level, Options, Page, Partition, ReadQuery};
use tokio::time::Instant;

use super::permit::Asked;
use crate::metrics::Event;
use crate::{Gateway, Result, Rule};

/// Fewest replicas of a read.
pub(super) const READ_FLOOR: u32 = 1;
/// Fewest replicas of a write: one node that is none of them keeps it until they are back.
pub(super) const WRITE_FLOOR: u32 = 0;
/// Fewest replicas after a time-out. A replica that may be up may have the write, so no other node keeps it in its stead: that
/// one could go, and with it a write that was answered.
const ANSWERING_FLOOR: u32 = 1;

/// A call that may be made again at a lower level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// How it is made next.
    pub(crate) options: Options,
    /// Copies there are of what it touches.
    copies: u32,
    /// Replicas it may not go below.
    floor: u32,
    /// Whether one of the calls made so far may have happened.
    unsure: bool,
}

impl Steps {
    /// Of a call to `copies` replicas that may go down to `floor` of them.
    pub(crate) fn new(options: Options, copies: u32, floor: u32) -> Self {
        Self { options, copies, floor, unsure: false }
    }

    /// Whether the call may be made at a lower level after it got no answer.
    fn may_go_lower(&self) -> bool {
        needs(self.options.level, self.copies) > self.floor.max(ANSWERING_FLOOR)
    }

    /// Goes down to what the replicas can meet. A time-out that comes before the deadline is a replica that died a moment ago
    /// and is still believed to be up. An engine that lacks a node for its log also says that none is up, so one is asked
    /// before that is believed.
    ///
    /// # Errors
    /// What to answer when there is nothing lower, or it would not help.
    pub(crate) fn lower(&mut self, error: StoreError) -> larder_store::Result<()> {
        let below = needs(self.options.level, self.copies).saturating_sub(1);
        let up = match error.kind {
            Kind::Unavailable { alive, .. } => Some(alive.max(1).min(below)),
            Kind::TimedOut if Instant::now() < self.options.deadline => Some(below.max(ANSWERING_FLOOR)),
            _ => None,
        };
        self.unsure |= error.kind == Kind::TimedOut;
        match up.map(|up| met_by(up, self.copies)) {
            Some(level) if level < self.options.level && needs(level, self.copies) >= self.floor => {
                self.options.level = level;
                Ok(())
            }
            _ if self.unsure => Err(StoreError::new(Kind::TimedOut, error.context)),
            _ => Err(error),
        }
    }
}

/// Replicas that a level asks for.
pub(super) fn needs(level: Level, copies: u32) -> u32 {
    match level {
        Level::Any => 0,
        Level::One => 1,
        Level::Two => 2,
        Level::Three => 3,
        Level::Quorum => copies / 2 + 1,
        Level::All => copies,
    }
}

/// The weakest level that asks for as many replicas. There is none for four and more between a quorum and all: they get all.
pub(super) fn level_of(count: u32, copies: u32) -> Level {
    let quorum = needs(Level::Quorum, copies);
    match count {
        0 | 1 => Level::One,
        all if all >= copies || all > quorum => Level::All,
        more if more == quorum || more > 3 => Level::Quorum,
        2 => Level::Two,
        _ => Level::Three,
    }
}

/// The strongest level that as many replicas can meet.
fn met_by(count: u32, copies: u32) -> Level {
    match count {
        0 => Level::Any,
        all if all >= copies => Level::All,
        more if more >= needs(Level::Quorum, copies) => Level::Quorum,
        1 => Level::One,
        2 => Level::Two,
        _ => Level::Three,
    }
}

impl Gateway {
    /// Writes for a client; answers the level it was written at.
    ///
    /// # Errors
    /// The store's, in the words of the request.
    pub(super) async fn write_at(&self, asked: Asked, mut batch: Batch) -> Result<Level> {
        let mut steps = asked.writing();
        loop {
            match self.ports.store.apply(batch.clone(), &self.next_of(&steps)).await {
                Ok(()) => return Ok(steps.options.level),
                Err(error) => self.lower(&mut steps, error).map_err(|error| asked.refuse(error))?,
            }
            self.metrics.event(Event::WriteSteppedDown);
            if steps.options.level == Level::Any {
                self.metrics.event(Event::WriteAtAny);
            }
            if !self.rule(Rule::SameStampStepDown) {
                rename(&mut batch, Slot { actor: self.actor, birth: self.issue().await? });
            }
        }
    }

    /// Reads one page for a client. Further pages are asked for as this one was answered.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub(super) async fn read_at(
        &self,
        asked: Asked,
        steps: &mut Steps,
        partition: &Partition,
        query: &ReadQuery,
    ) -> Result<Page> {
        loop {
            match self.ports.store.read(partition, query, &self.next_of(steps)).await {
                Ok(page) => return Ok(page),
                Err(error) => self.lower(steps, error).map_err(|error| asked.refuse(error))?,
            }
            self.metrics.event(Event::ReadSteppedDown);
        }
    }

    /// Reads a page of the gateways' own tables, from fewer replicas when others are down. It may then be older than what was
    /// read before: the caller goes back to nothing it has seen.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn read_own(&self, partition: &Partition, query: &ReadQuery) -> larder_store::Result<Page> {
        let mut steps = self.own_steps(READ_FLOOR);
        loop {
            match self.ports.store.read(partition, query, &self.next_of(&steps)).await {
                Ok(page) => return Ok(page),
                Err(error) => self.lower(&mut steps, error)?,
            }
        }
    }

    /// Writes to the gateways' own plain tables, to fewer replicas when others are down.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn write_own(&self, batch: Batch) -> larder_store::Result<()> {
        let mut steps = self.own_steps(WRITE_FLOOR);
        loop {
            match self.ports.store.apply(batch.clone(), &self.next_of(&steps)).await {
                Ok(()) => return Ok(()),
                Err(error) => self.lower(&mut steps, error)?,
            }
        }
    }

    /// One machine is up or it is not: it is asked once, and waited for.
    fn own_steps(&self, floor: u32) -> Steps {
        let copies = Partition::N_VAL.into();
        let floor = if self.ports.store.limits().replicated { floor } else { needs(Level::Quorum, copies) };
        Steps::new(self.own(Level::Quorum), copies, floor)
    }

    /// The options of the next call. One that may be made at a lower level afterwards is not waited for to its end.
    fn next_of(&self, steps: &Steps) -> Options {
        if !steps.may_go_lower() {
            return steps.options;
        }
        let latest = Instant::now() + self.patience.wait(self.monotonic());
        Options { deadline: steps.options.deadline.min(latest), ..steps.options }
    }

    fn lower(&self, steps: &mut Steps, error: StoreError) -> larder_store::Result<()> {
        let lost = error.kind == Kind::TimedOut;
        steps.lower(error)?;
        if lost {
            self.patience.lost(self.monotonic());
        }
        Ok(())
    }
}

/// What must not be done: the write as another one. Only the simulation's broken twin does it.
fn rename(batch: &mut Batch, slot: Slot) {
    let clock: Clock = slot.birth;
    for change in batch.partitions.iter_mut().take(1).flat_map(|object| &mut object.changes) {
        if let Change::Put(row) = change {
            (row.name, row.stamp) = (slot.row_name(), clock);
        }
    }
}

#[cfg(test)]
mod tests;
