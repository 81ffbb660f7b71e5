//! Issues the clocks of writes, from a hybrid logical clock: wall time, but every clock is unique and above every clock seen.
//!
//! On one machine a high-water mark of the clock is stored ahead of use, so a restart with the wall clock set back begins above
//! every clock issued before. Gateways that share an engine store no mark: their clocks are checked against the engine's, and a
//! restarted gateway is a new actor to the others (decision 12). A clock is issued before its write is sent, and stays issued
//! even if the write fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use larder_rows::{ActorId, Batch, Change, LastingActorRow, MarkRow, Row, Timestamp};
use larder_store::{ConsistencyLevel, Partition, ReadQuery};
use tokio::sync::Mutex;

use crate::metrics::Event;
use crate::node_context::{NodeContext, internal_options};
use crate::{Error, Result};

/// A gateway whose clock differs from the engine's by more microseconds refuses writes.
pub const SKEW_MICROS_MAX: u64 = 500_000;

/// A stored mark that is further ahead of the wall clock was stored under another time, in seconds.
const AHEAD_SECONDS_MAX: u64 = 60;
/// How far ahead of the wall clock the mark is stored, in microseconds.
pub(crate) const MARK_AHEAD_MICROS: u64 = 10_000_000;
/// How far ahead of a clock that already leads the wall clock: short, so that quick restarts do not drive it far.
const MARK_STEP_MICROS: u64 = 1_000_000;

/// One gateway's clock.
#[derive(Debug)]
pub struct HybridClock {
    last: AtomicU64,
    mark: AtomicU64,
}

impl HybridClock {
    /// A clock that begins above `mark`, the stored high-water mark.
    pub(crate) fn above(mark: Timestamp) -> Self {
        Self { last: AtomicU64::new(mark.0), mark: AtomicU64::new(mark.0) }
    }

    /// A clock that needs no stored mark.
    pub(crate) fn unmarked() -> Self {
        Self { last: AtomicU64::new(0), mark: AtomicU64::new(Timestamp::MAX.0) }
    }

    /// Issues the next clock; `None` when it would exceed the stored mark: store a higher mark first.
    pub(crate) fn issue(&self, now: Timestamp) -> Option<Timestamp> {
        let mark = self.mark.load(Ordering::Acquire);
        let next = |last: u64| now.0.max(last + 1);
        // Crash: the next run begins at the stored mark, and could issue a clock above it again [invariant 12].
        let step = |last| Some(next(last)).filter(|&next| next <= mark);
        // Race: two puts at once get different clocks, and no failure returns one [invariant 3].
        self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).ok().map(|last| Timestamp(next(last)))
    }

    /// Observes a clock from a context or a row: later clocks are above it.
    #[inline]
    pub fn observe(&self, seen: Timestamp) {
        // Most reads see clocks of long ago: a load leaves the number in the caches of all processors.
        if seen.0 <= self.last.load(Ordering::Acquire) {
            return;
        }
        // Race: a write based on a row must be newer than the row, whatever wall clock this machine has [invariant 5].
        self.last.fetch_max(seen.0, Ordering::AcqRel);
    }

    /// The current time of this clock.
    #[inline]
    pub fn current(&self, now: Timestamp) -> Timestamp {
        now.max(Timestamp(self.last.load(Ordering::Acquire)))
    }

    /// The mark to store next.
    pub(crate) fn next_mark(&self, now: Timestamp) -> Timestamp {
        (now + MARK_AHEAD_MICROS).max(self.current(now) + MARK_STEP_MICROS)
    }

    /// Whether a new mark should be stored soon.
    pub(crate) fn is_mark_near(&self, now: Timestamp) -> bool {
        // Half the distance is left when a heartbeat renews the mark, so no put waits for it.
        Timestamp(self.mark.load(Ordering::Acquire)) < self.current(now).saturating_add(MARK_AHEAD_MICROS / 2)
    }

    /// Notes that `mark` is stored.
    pub(crate) fn note_stored_mark(&self, mark: Timestamp) {
        self.mark.fetch_max(mark.0, Ordering::AcqRel);
    }
}

/// The clock of one gateway, with its stored mark.
pub struct ClockIssuer {
    context: Arc<NodeContext>,
    /// Observe clocks here; issue them with [`Self::issue`], which keeps the mark ahead.
    pub clock: HybridClock,
    /// Stamp of the stored clock mark. The lock is held during the write: two writers in another order would lower the mark.
    mark_stamp: Mutex<Timestamp>,
    is_skewed: AtomicBool,
    /// The actor of rows that a gateway goes on in: of a single one that of its first run on the store, of others that of this run.
    pub lasting_actor: ActorId,
}

impl ClockIssuer {
    /// Starts above the mark that the last run of this name stored. Gateways that share an engine store none.
    ///
    /// # Errors
    /// The store's; `Damaged` when the mark cannot be read.
    pub(crate) async fn load(context: Arc<NodeContext>) -> Result<Self> {
        let (clock, stamp) = stored_clock(&context).await?;
        let lasting_actor =
            if context.config.single_process { first_actor(&context).await? } else { context.ports.actor };
        Ok(Self { context, clock, mark_stamp: Mutex::new(stamp), is_skewed: AtomicBool::new(false), lasting_actor })
    }

    /// Issues the next clock of this gateway; stores a new mark first if needed.
    #[inline]
    pub async fn issue(&self) -> Result<Timestamp> {
        loop {
            match self.clock.issue(self.context.now()) {
                Some(clock) => return Ok(clock),
                None => self.store_mark().await?,
            }
        }
    }

    /// Stores a mark ahead of the clock, and only then lets the clock run up to it.
    pub(crate) async fn store_mark(&self) -> Result<()> {
        let mut stamp = self.mark_stamp.lock().await;
        // Crash: the mark is stored first, so the next run starts above every clock issued here [invariant 12].
        let mark = self.clock.next_mark(self.context.now());
        self.write_mark(mark, &mut stamp).await?;
        self.clock.note_stored_mark(mark);
        Ok(())
    }

    /// Stores `clock` itself as the mark, at an orderly stop: the next run need not begin at a mark ahead of it.
    pub(crate) async fn store_exact(&self, clock: Timestamp) -> Result<()> {
        let mut stamp = self.mark_stamp.lock().await;
        // Crash: no write may follow, since memory still allows clocks up to the older and higher mark.
        self.write_mark(clock, &mut stamp).await
    }

    async fn write_mark(&self, mark: Timestamp, stamp: &mut Timestamp) -> Result<()> {
        // A count instead of a time: with wall time set back between two runs, the older mark would win.
        *stamp += 1;
        let stamp = *stamp;
        let name = Bytes::copy_from_slice(self.context.config.node.as_bytes());
        let row = Row { name, value: MarkRow { mark }.encode(), stamp, expires: None };
        let batch = Batch::single(Partition::marks(), vec![Change::Put(row)]);
        self.context.apply_at_quorum(batch).await
    }

    /// Stores a new mark if the clock is near the stored one.
    pub(crate) async fn renew_mark(&self) -> Result<()> {
        if self.clock.is_mark_near(self.context.now()) { self.store_mark().await } else { Ok(()) }
    }

    /// Compares this machine's clock with the engine's; writes are refused while they differ too much.
    pub(crate) async fn check_skew(&self) -> Result<()> {
        let engine = self.context.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
        // Race: an acknowledged write of a slow gateway could be older than a stored one, and never visible [invariant 5].
        let is_skewed = engine.abs_diff(self.context.now()) > SKEW_MICROS_MAX;
        if is_skewed && !self.is_skewed.swap(is_skewed, Ordering::AcqRel) {
            self.context.metrics.count_event(Event::ClockSkew);
            tracing::error!(
                "this machine's clock differs from the engine's by more than 500 ms: writes are refused until it is set"
            );
        }
        self.is_skewed.store(is_skewed, Ordering::Release);
        Ok(())
    }

    /// Whether this machine's clock was too far off the engine's at the last check.
    pub fn is_skewed(&self) -> bool {
        self.is_skewed.load(Ordering::Acquire)
    }
}

/// The clock of a single gateway, above the mark that the last run of its name stored, and the stamp of the mark's row.
async fn stored_clock(context: &NodeContext) -> Result<(HybridClock, Timestamp)> {
    // Race: a clock that starts ten seconds ahead makes contexts that the other gateways refuse [invariant 83].
    if !context.config.single_process {
        return Ok((HybridClock::unmarked(), Timestamp::ZERO));
    }
    let query = ReadQuery::one(Bytes::copy_from_slice(context.config.node.as_bytes()));
    let page = context.read_at_quorum(&Partition::marks(), &query).await?;
    let Some(row) = page.rows.into_iter().next() else {
        return Ok((HybridClock::above(Timestamp::ZERO), Timestamp::ZERO));
    };
    let mark_row = MarkRow::decode(row.value).map_err(|error| Error::Damaged(format!("a clock mark: {error}")))?;
    let ahead = mark_row.mark.0.saturating_sub(context.now().0) / 1_000_000;
    if ahead > AHEAD_SECONDS_MAX {
        tracing::warn!(
            seconds = ahead,
            "this machine's clock is behind the one under which this store last ran: until it has caught up, new values have dates \
             that far ahead"
        );
    }
    Ok((HybridClock::above(mark_row.mark), row.stamp))
}

/// The actor of the first run of a single gateway on its store.
async fn first_actor(context: &NodeContext) -> Result<ActorId> {
    let name = LastingActorRow::name(&context.config.node);
    let page = context.read_at_quorum(&Partition::marks(), &ReadQuery::one(name.clone())).await?;
    if let Some(row) = page.rows.into_iter().next() {
        let row = LastingActorRow::decode(row.value).map_err(|error| Error::Damaged(format!("an actor: {error}")))?;
        return Ok(row.actor);
    }
    let actor = context.ports.actor;
    let row = Row { name, value: LastingActorRow { actor }.encode(), stamp: Timestamp(1), expires: None };
    // Crash: stored before the first row of this actor, which the next run goes on in.
    context.apply_at_quorum(Batch::single(Partition::marks(), vec![Change::Put(row)])).await?;
    Ok(actor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_restarts_do_not_drive_the_clock_ahead() {
        let (now, mut mark) = (1_000_000_000, 0);
        for _ in 0..100 {
            let clock = HybridClock::above(Timestamp(mark));
            mark = (clock.next_mark(Timestamp(now))).0;
            clock.note_stored_mark(Timestamp(mark));
            assert!(clock.issue(Timestamp(now)).is_some());
        }
        assert!(mark <= now + MARK_AHEAD_MICROS + 100 * MARK_STEP_MICROS, "{mark}");
    }

    #[test]
    fn a_clock_without_mark_never_asks_for_one() {
        let clock = HybridClock::unmarked();
        assert_eq!(clock.issue(Timestamp(50)), Some(Timestamp(50)));
        assert!(!clock.is_mark_near(Timestamp(1 << 62)));
        assert_eq!(clock.issue(Timestamp(1 << 62)), Some(Timestamp(1 << 62)));
    }

    #[test]
    fn clocks_are_never_issued_twice_and_never_fall_back() {
        let clock = HybridClock::above(Timestamp(100));
        assert_eq!(clock.issue(Timestamp(50)), None, "nothing is issued above the mark");
        clock.note_stored_mark(Timestamp(1000));
        assert_eq!(clock.issue(Timestamp(50)), Some(Timestamp(101)));
        assert_eq!(clock.issue(Timestamp(200)), Some(Timestamp(200)));
        assert_eq!(clock.issue(Timestamp(200)), Some(Timestamp(201)));
        clock.observe(Timestamp(300));
        assert_eq!(clock.issue(Timestamp(200)), Some(Timestamp(301)));
        assert_eq!(clock.issue(Timestamp(1001)), None);
    }
}
