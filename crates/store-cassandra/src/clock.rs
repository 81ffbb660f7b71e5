//! The cluster's time: it decides on every gateway alike whether a row has expired.
//!
//! ```text
//! now = the process's count since a sample + the node's time in that sample, taken for the middle of its round trip
//! ```
//! A gateway with a wrong clock still agrees with the others about expiry. Differences between nodes are the operator's
//! to correct: the clock uses the median of the last samples.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_store::{Clock, Error, Kind, Result, SystemClock, Timestamp};
use parking_lot::Mutex;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement as Text;
use scylla::value::CqlTimestamp;
use tokio::time::{Instant, sleep, timeout_at};

use crate::errors;
use crate::statements::TIME;

/// Samples of the median.
const SAMPLES: usize = 5;
/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a sample may take.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A node answers whole milliseconds; half of one is the average error.
const HALF_A_MILLISECOND: i64 = 500;

/// Time of the cluster, counted on by the process between samples.
pub struct ClusterClock {
    machine: SystemClock,
    /// Microseconds from the process's count to the cluster's time.
    offset: AtomicI64,
    samples: Mutex<VecDeque<i64>>,
}

impl ClusterClock {
    /// Takes the first samples, and goes on sampling while the clock is in use.
    ///
    /// # Errors
    /// When no node answers the time.
    pub(crate) async fn start(session: &Arc<Session>, deadline: Instant) -> Result<Arc<Self>> {
        let clock = Self { machine: SystemClock::default(), offset: AtomicI64::new(0), samples: Mutex::default() };
        // Three samples: their median leaves out one slow round trip.
        for _ in 0..3 {
            clock.take_sample(session, deadline).await?;
        }
        let clock = Arc::new(clock);
        tokio::spawn(sample_until_dropped(Arc::downgrade(&clock), Arc::downgrade(session)));
        Ok(clock)
    }

    async fn take_sample(&self, session: &Session, deadline: Instant) -> Result<()> {
        let what = "the cluster's time";
        let mut text = Text::new(TIME);
        text.set_consistency(Consistency::One);
        text.set_is_idempotent(true);
        let before = self.machine.monotonic();
        let answer = timeout_at(deadline, session.query_unpaged(text, ())).await;
        let round_trip = self.machine.monotonic().saturating_sub(before);
        let answer =
            answer.map_err(|_| errors::deadline_passed(what))?.map_err(|error| errors::from_driver(what, error))?;
        let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
        let (CqlTimestamp(millis),) = answer.first_row().map_err(|error| errors::unreadable(what, error))?;
        let middle = i64::try_from((before + round_trip / 2).as_micros()).unwrap_or(i64::MAX);
        let micros = millis.checked_mul(1000).ok_or_else(|| Error::new(Kind::Damaged, what))?;
        // The answer was made somewhere during the round trip; its middle halves the largest error.
        self.add_sample(micros + HALF_A_MILLISECOND - middle);
        Ok(())
    }

    /// Adds a sample and updates the offset.
    fn add_sample(&self, offset: i64) {
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(offset);
        self.offset.store(median(&samples), Ordering::Release);
    }
}

impl Clock for ClusterClock {
    fn now(&self) -> Timestamp {
        // Counted by the process: a step of the machine's wall clock changes nothing here.
        let counted = i64::try_from(self.machine.monotonic().as_micros()).unwrap_or(i64::MAX);
        Timestamp(u64::try_from(counted.saturating_add(self.offset.load(Ordering::Acquire))).unwrap_or(0))
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}

/// The median; the later of two.
fn median(samples: &VecDeque<i64>) -> i64 {
    let mut sorted: Vec<i64> = samples.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Takes samples until the clock or the session is dropped. A failed sample changes nothing.
async fn sample_until_dropped(clock: Weak<ClusterClock>, session: Weak<Session>) {
    loop {
        sleep(PERIOD).await;
        // Weak references: this task must not keep a closed store alive.
        let (Some(clock), Some(session)) = (clock.upgrade(), session.upgrade()) else { return };
        if let Err(error) = clock.take_sample(&session, Instant::now() + WAIT_MAX).await {
            tracing::debug!(%error, "clock sample failed; the clock runs on with the last offset");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_node_does_not_move_the_clock() {
        let clock =
            ClusterClock { machine: SystemClock::default(), offset: AtomicI64::new(0), samples: Mutex::default() };
        let hour = 3_600_000_000;
        for offset in [1_000, 1_010, -hour, 1_020, hour, 1_005, hour, 1_015] {
            clock.add_sample(offset);
            let now = clock.offset.load(Ordering::Relaxed);
            assert!((1_000..=1_020).contains(&now), "{now}");
        }
        assert_eq!(clock.samples.lock().len(), SAMPLES);
    }

    #[test]
    fn the_clock_runs_on_between_samples() {
        let clock =
            ClusterClock { machine: SystemClock::default(), offset: AtomicI64::new(0), samples: Mutex::default() };
        clock.add_sample(1_700_000_000_000_000);
        let before = clock.now();
        assert!(before >= Timestamp(1_700_000_000_000_000));
        assert!(clock.now() >= before && clock.monotonic() < Duration::from_secs(60));
    }
}
