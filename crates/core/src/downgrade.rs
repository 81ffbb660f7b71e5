//! Downgrades the consistency level of a call while replicas are down.
//!
//! ```text
//! r=quorum, pr=0   QUORUM ──2 of 3 down──> ONE                       answered, counted
//! w=quorum, pw=0   QUORUM ──all 3 down──> ANY                        answered, counted: one node keeps a hint
//! r=all, pr=2      ALL ──1 down──> QUORUM ──2 down──> PR-value unsatisfied: 1/2
//! ```
//! A replica is down when the engine says so, or when it does not answer within the
//! [`AdaptiveTimeout`](crate::downgrade::AdaptiveTimeout).
//!
//! A downgraded write repeats the same rows, names and stamps: if some replicas took the first try, the second completes it and
//! adds no sibling [invariant 23]. Rows replaced in between stay replaced by their tombstones. An engine on one machine keeps
//! none, so it is asked once. Calls to guarded tables, whose rows change by compare-and-set, are
//! never downgraded: they need a quorum.
//!
//! A row that names a blob is never written below a quorum: the sweeper removes a blob that no quorum names.

use larder_rows::Batch;
use larder_store::{CallOptions, ConsistencyLevel, Error as StoreError, Kind, Partition, ReadQuery, RowPage};
use tokio::time::Instant;

use crate::node_context::{NodeContext, internal_options};

/// Fewest replicas of a read.
pub const READ_FLOOR: u32 = 1;
/// Fewest replicas of a write: with none, another node keeps a hint until they are back.
pub const WRITE_FLOOR: u32 = 0;
/// Fewest replicas after a time-out. A hint alone does not count then: if its node is lost, so is an acknowledged write.
const UNANSWERED_FLOOR: u32 = 1;

/// A call that may be repeated at a lower consistency level.
#[derive(Debug, Clone, Copy)]
pub struct DowngradableCall {
    /// Options of the next try.
    pub options: CallOptions,
    /// Copies of the partition.
    copies: u32,
    /// Fewest replicas to ask.
    floor: u32,
    /// Whether an earlier try may have taken effect.
    may_have_happened: bool,
}

impl DowngradableCall {
    /// A call to `copies` replicas that may be downgraded to `floor` of them.
    #[inline]
    pub fn new(options: CallOptions, copies: u32, floor: u32) -> Self {
        Self { options, copies, floor, may_have_happened: false }
    }

    /// Whether no failure of this try leads to another one.
    #[inline]
    pub fn is_last_try(&self) -> bool {
        replicas_required(self.options.level, self.copies) <= self.floor
    }

    /// Whether the call may be repeated at a lower level after a time-out.
    fn can_downgrade(&self) -> bool {
        replicas_required(self.options.level, self.copies) > self.floor.max(UNANSWERED_FLOOR)
    }

    /// Lowers the level to one that the live replicas can meet. A time-out before the deadline means a replica that died just
    /// now and still counts as up. An engine that lacks a node for its batch log also reports no live replica, so one is tried
    /// before a hint.
    ///
    /// # Errors
    /// The error to answer when no lower level is allowed or would help.
    pub fn downgrade(&mut self, error: StoreError) -> larder_store::Result<()> {
        let below = replicas_required(self.options.level, self.copies).saturating_sub(1);
        let up = match error.kind {
            Kind::Unavailable { alive, .. } => Some(alive.max(1).min(below)),
            // Crash: a hint alone would acknowledge the write, and the node with the hint may be lost [invariant 78].
            Kind::TimedOut if Instant::now() < self.options.deadline => Some(below.max(UNANSWERED_FLOOR)),
            _ => None,
        };
        // Race: this try may have happened, and a later refusal would tell the client that it did not [invariant 84].
        self.may_have_happened |= error.kind == Kind::TimedOut;
        match up.map(|up| strongest_level_met_by(up, self.copies)) {
            Some(level) if level < self.options.level && replicas_required(level, self.copies) >= self.floor => {
                self.options.level = level;
                Ok(())
            }
            _ => Err(self.final_error(error)),
        }
    }

    /// The error to answer after the last try failed with `error`.
    pub fn final_error(&self, error: StoreError) -> StoreError {
        match self.may_have_happened {
            true => StoreError::new(Kind::TimedOut, error.context),
            false => error,
        }
    }
}

/// Replicas that a level requires.
pub fn replicas_required(level: ConsistencyLevel, copies: u32) -> u32 {
    match level {
        ConsistencyLevel::Any => 0,
        ConsistencyLevel::One => 1,
        ConsistencyLevel::Two => 2,
        ConsistencyLevel::Three => 3,
        ConsistencyLevel::Quorum => copies / 2 + 1,
        ConsistencyLevel::All => copies,
    }
}

/// The weakest level that requires at least `count` replicas. Between a quorum and all there is none for four and more: ALL.
pub fn weakest_level_for(count: u32, copies: u32) -> ConsistencyLevel {
    let quorum = replicas_required(ConsistencyLevel::Quorum, copies);
    match count {
        0 | 1 => ConsistencyLevel::One,
        all if all >= copies || all > quorum => ConsistencyLevel::All,
        more if more == quorum || more > 3 => ConsistencyLevel::Quorum,
        2 => ConsistencyLevel::Two,
        _ => ConsistencyLevel::Three,
    }
}

/// The strongest level that `count` live replicas meet.
fn strongest_level_met_by(count: u32, copies: u32) -> ConsistencyLevel {
    match count {
        0 => ConsistencyLevel::Any,
        all if all >= copies => ConsistencyLevel::All,
        more if more >= replicas_required(ConsistencyLevel::Quorum, copies) => ConsistencyLevel::Quorum,
        1 => ConsistencyLevel::One,
        2 => ConsistencyLevel::Two,
        _ => ConsistencyLevel::Three,
    }
}

impl NodeContext {
    /// Reads a page of the gateways' own tables, from fewer replicas when others are down. The page may then be older than an
    /// earlier one: the caller ignores it if so.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn read_internal_table(
        &self,
        partition: &Partition,
        query: &ReadQuery,
    ) -> larder_store::Result<RowPage> {
        let mut call = self.internal_call(READ_FLOOR);
        loop {
            match self.ports.store.read(partition, query, &self.next_options(&call)).await {
                Ok(page) => return Ok(page),
                Err(error) => self.downgrade(&mut call, error)?,
            }
        }
    }

    /// Writes to the gateways' own plain tables, to fewer replicas when others are down. Returns whether a quorum took it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn write_internal_table(&self, batch: Batch) -> larder_store::Result<bool> {
        let mut call = self.internal_call(WRITE_FLOOR);
        loop {
            let options = self.next_options(&call);
            match self.ports.store.apply(batch.clone(), &options).await {
                Ok(()) => return Ok(options.level >= ConsistencyLevel::Quorum),
                Err(error) => self.downgrade(&mut call, error)?,
            }
        }
    }

    /// A call to the gateways' own tables. An engine on one machine is asked once.
    fn internal_call(&self, floor: u32) -> DowngradableCall {
        let copies = Partition::DEFAULT_COPIES.into();
        // One machine has no other replica to ask.
        let floor = if self.ports.store.limits().replicated {
            floor
        } else {
            replicas_required(ConsistencyLevel::Quorum, copies)
        };
        DowngradableCall::new(internal_options(ConsistencyLevel::Quorum), copies, floor)
    }

    /// Options of the next try: the adaptive timeout limits a call that can be downgraded afterwards.
    #[inline]
    pub fn next_options(&self, call: &DowngradableCall) -> CallOptions {
        if call.can_downgrade() { self.impatient_options(&call.options) } else { call.options }
    }

    /// Options of a call whose answer the caller can do without, under the adaptive timeout.
    #[inline]
    pub fn impatient_options(&self, options: &CallOptions) -> CallOptions {
        let latest = Instant::now() + self.replica_timeout.current(self.monotonic());
        CallOptions { deadline: options.deadline.min(latest), ..*options }
    }

    /// Lowers the level of a call that failed; an unanswered one shortens the adaptive timeout.
    ///
    /// # Errors
    /// The error itself, for a call that has no lower level.
    pub fn downgrade(&self, call: &mut DowngradableCall, error: StoreError) -> larder_store::Result<()> {
        let lost = error.kind == Kind::TimedOut;
        // First: a call that has no lower level fails here, and its time-out shortens no other call.
        call.downgrade(error)?;
        if lost {
            self.replica_timeout.note_unanswered(self.monotonic());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
