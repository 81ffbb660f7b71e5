//! The cluster's time: what expiry is judged by, on every gateway alike.
//!
//! ```text
//! now = what the process has counted since a sample + the node's time in that sample, taken for the middle of its round trip
//! ```
//! A gateway whose own clock is wrong still agrees with the others about what has expired. Nodes that differ among each other are
//! the operator's to put right: of the last samples the one in the middle counts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement as Text;
use scylla::value::CqlTimestamp;
use tokio::time::{Instant, sleep, timeout_at};

use larder_store::{Clock, Error, Kind, Micros, Result, SystemClock};

use crate::errors;
use crate::statements::TIME;

/// Samples kept.
const SAMPLES: usize = 5;
/// Between two samples.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a sample may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// A node tells milliseconds: half of one is what is lost on average.
const HALF_A_MILLISECOND: i64 = 500;

/// Time of the cluster, carried on by the process between samples.
pub struct ClusterClock {
    machine: SystemClock,
    /// Microseconds from the process' own count to the cluster's time.
    offset: AtomicI64,
    samples: Mutex<VecDeque<i64>>,
}

impl ClusterClock {
    /// Asks the cluster, and goes on asking for as long as the clock is in use.
    ///
    /// # Errors
    /// When no node tells the time.
    pub(crate) async fn start(session: &Arc<Session>, deadline: Instant) -> Result<Arc<Self>> {
        let clock = Self { machine: SystemClock::default(), offset: AtomicI64::new(0), samples: Mutex::default() };
        for _ in 0..3 {
            clock.sample(session, deadline).await?;
        }
        let clock = Arc::new(clock);
        tokio::spawn(keep(Arc::downgrade(&clock), Arc::downgrade(session)));
        Ok(clock)
    }

    async fn sample(&self, session: &Session, deadline: Instant) -> Result<()> {
        let what = "the cluster's time";
        let mut text = Text::new(TIME);
        text.set_consistency(Consistency::One);
        text.set_is_idempotent(true);
        let before = self.machine.monotonic();
        let answer = timeout_at(deadline, session.query_unpaged(text, ())).await;
        let round_trip = self.machine.monotonic().saturating_sub(before);
        let answer = answer.map_err(|_| errors::late(what))?.map_err(|error| errors::of(what, error))?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
        let (CqlTimestamp(millis),) = answer.first_row().map_err(|error| errors::unreadable(what, error))?;
        let middle = i64::try_from((before + round_trip / 2).as_micros()).unwrap_or(i64::MAX);
        let micros = millis.checked_mul(1000).ok_or_else(|| Error::new(Kind::Damaged, what))?;
        self.learn(micros + HALF_A_MILLISECOND - middle);
        Ok(())
    }

    /// Takes a sample into account.
    fn learn(&self, offset: i64) {
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(offset);
        self.offset.store(middle(&samples), Ordering::Release);
    }
}

impl Clock for ClusterClock {
    fn now(&self) -> Micros {
        let counted = i64::try_from(self.machine.monotonic().as_micros()).unwrap_or(i64::MAX);
        u64::try_from(counted.saturating_add(self.offset.load(Ordering::Acquire))).unwrap_or(0)
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}

/// The middle one; the later of two.
fn middle(samples: &VecDeque<i64>) -> i64 {
    let mut sorted: Vec<i64> = samples.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Samples until nobody uses the clock or the session any more. A node that does not answer changes nothing.
async fn keep(clock: Weak<ClusterClock>, session: Weak<Session>) {
    loop {
        sleep(PERIOD).await;
        let (Some(clock), Some(session)) = (clock.upgrade(), session.upgrade()) else { return };
        if let Err(error) = clock.sample(&session, Instant::now() + PATIENCE).await {
            tracing::debug!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_far_off_does_not_move_the_clock() {
        let clock =
            ClusterClock { machine: SystemClock::default(), offset: AtomicI64::new(0), samples: Mutex::default() };
        let hour = 3_600_000_000;
        for offset in [1_000, 1_010, -hour, 1_020, hour, 1_005, hour, 1_015] {
            clock.learn(offset);
            let now = clock.offset.load(Ordering::Relaxed);
            assert!((1_000..=1_020).contains(&now), "{now}");
        }
        assert_eq!(clock.samples.lock().len(), SAMPLES);
    }

    #[test]
    fn the_clock_goes_on_between_samples() {
        let clock =
            ClusterClock { machine: SystemClock::default(), offset: AtomicI64::new(0), samples: Mutex::default() };
        clock.learn(1_700_000_000_000_000);
        let before = clock.now();
        assert!(before >= 1_700_000_000_000_000);
        assert!(clock.now() >= before && clock.monotonic() < Duration::from_secs(60));
    }
}
