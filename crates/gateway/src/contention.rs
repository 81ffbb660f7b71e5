//! Writers of one key: in one gateway they line up, between gateways they give way for a moment.
//!
//! ```text
//! writers of a key here ──line──> one at a time ─┐
//!                                                ├─ compare and set ── conflict ──> a pause, longer each time, and again
//! writers of a key elsewhere ────────────────────┘
//! ```
//! A compare-and-set that meets others costs each of them several rounds among the replicas. Thirty that meet at once undo
//! each other until their time is over, so at most one of a gateway is under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larder_store::Partition;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{Error, Gateway, Result};

/// The first pause after a conflict; each is twice as long, up to the last. Half of it is left to chance.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_LAST: Duration = Duration::from_millis(100);

type WriterLine = Arc<tokio::sync::Mutex<()>>;

/// The lines of a gateway: one for each partition that requests write, as long as they do.
#[derive(Debug, Default)]
pub(crate) struct WriterLines(Mutex<HashMap<Partition, WriterLine>>);

/// A place in a line, at its head once [`Gateway::line_up`] has answered it.
#[derive(Debug)]
#[must_use = "the next writer goes on when this is dropped"]
pub(crate) struct WriterPlace<'a> {
    lines: &'a WriterLines,
    partition: Partition,
    line: Option<WriterLine>,
    held: Option<OwnedMutexGuard<()>>,
    /// Whether others were before: what was read of the partition earlier may have changed.
    pub(crate) waited: bool,
}

impl WriterLines {
    fn join(&self, partition: &Partition) -> WriterPlace<'_> {
        let line = Arc::clone(self.0.lock().entry(partition.clone()).or_default());
        WriterPlace { lines: self, partition: partition.clone(), line: Some(line), held: None, waited: false }
    }
}

impl WriterPlace<'_> {
    /// Waits for the places before this one; `false`: the deadline came first.
    async fn wait(&mut self, deadline: Instant) -> bool {
        let Some(line) = &self.line else { return false };
        self.held = Arc::clone(line).try_lock_owned().ok();
        if self.held.is_none() {
            self.waited = true;
            self.held = timeout_at(deadline, Arc::clone(line).lock_owned()).await.ok();
        }
        self.held.is_some()
    }
}

impl Drop for WriterPlace<'_> {
    fn drop(&mut self) {
        (self.held, self.line) = (None, None);
        let mut lines = self.lines.0.lock();
        // Lines are joined under this lock alone: one that nobody else holds now has nobody in it.
        if lines.get(&self.partition).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.partition);
        }
    }
}

impl Gateway {
    /// Waits until no other request of this gateway writes the partition. The place is held from the read that a
    /// compare-and-set relies on until that is answered, and never while a body arrives.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the deadline comes first: nothing was written.
    pub(crate) async fn line_up(&self, partition: &Partition, deadline: Instant) -> Result<WriterPlace<'_>> {
        let mut place = self.writers.join(partition);
        if place.wait(deadline).await { Ok(place) } else { Err(Error::Overloaded { retry_after: 1 }) }
    }

    /// Gives way to writers of other gateways after so many conflicts in a row.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the deadline would come first.
    pub(crate) async fn give_way(&self, conflicts: usize, deadline: Instant) -> Result<()> {
        let doublings = u32::try_from(conflicts).unwrap_or(u32::MAX).min(16);
        let pause = PAUSE_FIRST.saturating_mul(1 << doublings).min(PAUSE_LAST);
        let mut chance = [0];
        (self.ports.random)(&mut chance);
        let until = Instant::now() + pause / 2 + pause / 2 * u32::from(chance[0]) / 255;
        if until >= deadline {
            return Err(Error::Overloaded { retry_after: 1 });
        }
        sleep_until(until).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use larder_store::Table;

    use super::*;

    fn partition(key: &'static str) -> Partition {
        Partition::own(Table::Heads, key)
    }

    #[tokio::test(start_paused = true)]
    async fn writers_of_a_key_go_one_by_one_in_the_order_they_came() {
        let lines = WriterLines::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        let order = Mutex::new(Vec::new());
        let writer = async |number: usize| {
            let mut place = lines.join(&partition("k"));
            assert!(place.wait(deadline).await);
            assert_eq!(place.waited, number > 0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            order.lock().push(number);
        };
        let begun = Instant::now();
        tokio::join!(writer(0), writer(1), writer(2));
        assert_eq!((order.into_inner(), begun.elapsed()), (vec![0, 1, 2], Duration::from_secs(3)));
        assert!(lines.0.lock().is_empty(), "a line that nobody is in goes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_left_at_the_deadline_or_by_who_goes_away() {
        let lines = WriterLines::default();
        let mut first = lines.join(&partition("k"));
        assert!(first.wait(Instant::now()).await, "nobody is before");
        let mut late = lines.join(&partition("k"));
        assert!(!late.wait(Instant::now() + Duration::from_secs(1)).await);
        let mut other = lines.join(&partition("l"));
        assert!(other.wait(Instant::now()).await, "another key has a line of its own");
        drop((late, other));
        assert_eq!(lines.0.lock().len(), 1);
        let mut gone = lines.join(&partition("k"));
        let _ = tokio::time::timeout(Duration::from_secs(1), gone.wait(Instant::now() + Duration::from_secs(9))).await;
        drop((gone, first));
        assert!(lines.0.lock().is_empty());
    }
}
