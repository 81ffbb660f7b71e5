//! Rate limit for log lines: a failure that repeats a thousand times a second is one line in ten seconds, with a count.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::as_micros;

/// Time between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Admits at most one log line of one kind in ten seconds, and counts the lines it holds back. Each kind has a static
/// value of its own, shared by every place that logs that event.
#[derive(Debug, Default)]
pub struct RateLimitedLog {
    /// When the next line is admitted, in microseconds.
    next: AtomicU64,
    /// Lines held back since the last admitted one.
    left_out: AtomicU64,
}

/// The right to write one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedLine {
    /// Lines of this kind held back before this one, a field of the line; `None` for zero.
    pub left_out: Option<u64>,
}

impl RateLimitedLog {
    /// The limit for one kind of line; the first line is admitted.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Admits a line `now`, a monotonic time such as [`Clock::monotonic`](crate::Clock::monotonic), or counts it and
    /// returns `None`.
    pub fn admit(&self, now: Duration) -> Option<AdmittedLine> {
        let next = self.next.load(Ordering::Relaxed);
        let after = as_micros(now.saturating_add(INTERVAL));
        // When several threads log at once, one wins the exchange; the others are counted below.
        let is_due = || self.next.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if as_micros(now) >= next && is_due() {
            let left_out = self.left_out.swap(0, Ordering::Relaxed);
            return Some(AdmittedLine { left_out: (left_out > 0).then_some(left_out) });
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// As [`Self::admit`], by the time of the runtime: for the failures of an edge, which no [`Clock`](crate::Clock) reaches.
    pub fn admit_now(&self) -> Option<AdmittedLine> {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        self.admit(START.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_one_line_in_ten_seconds_and_a_full_count() {
        let log = RateLimitedLog::new();
        let lines: Vec<_> = (0..100_000).filter_map(|ms| log.admit(Duration::from_millis(ms))).collect();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[0].left_out, None);
        assert!(lines[1..].iter().all(|line| line.left_out == Some(9_999)), "{lines:?}");
    }

    #[test]
    fn one_of_several_threads_writes_and_the_others_are_counted() {
        let log = RateLimitedLog::new();
        let first = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| log.admit(Duration::ZERO))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).count()
        });
        assert_eq!(first, 1);
        assert_eq!(log.admit(INTERVAL), Some(AdmittedLine { left_out: Some(7) }));
    }
}
