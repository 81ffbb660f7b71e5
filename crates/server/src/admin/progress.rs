//! What a long command says while it is being carried out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The word with which a client asks to be told: `kv-admin` adds it to the commands that take long.
pub const WORD: &str = "--progress";
/// Pause between two reports.
const PAUSE: Duration = Duration::from_millis(250);

/// How far a command has come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Seconds since it began.
    pub seconds: f64,
    /// How much of it is done, from 0 to 100, where that is known.
    pub percent: Option<u8>,
    /// What it is doing, on one line.
    pub text: String,
}

/// Where a command reports, as often as it likes.
#[derive(Debug)]
pub struct Reporter {
    begun: Instant,
    /// When it last reported, in microseconds since it began.
    last: AtomicU64,
    heard: watch::Sender<Report>,
}

impl Reporter {
    /// A reporter, and where its reports arrive.
    #[must_use]
    pub fn new() -> (Self, watch::Receiver<Report>) {
        let (heard, reports) = watch::channel(Report::default());
        let begun = Instant::now();
        (Self { begun, last: AtomicU64::new(0), heard }, reports)
    }

    /// Reports, unless it did a moment ago: `report` is told the seconds since the beginning.
    pub fn tell(&self, report: impl FnOnce(f64) -> Report) {
        let since = self.begun.elapsed();
        let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let last = self.last.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(last)) < PAUSE.as_micros() {
            return;
        }
        self.last.store(now, Ordering::Relaxed);
        self.heard.send_replace(report(since.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_are_spread_over_time() {
        let (reporter, mut reports) = Reporter::new();
        let report = |seconds| Report { seconds, ..Report::default() };
        reporter.tell(report);
        assert!(!reports.has_changed().unwrap(), "it has only begun");
        tokio::time::advance(Duration::from_secs(2)).await;
        reporter.tell(report);
        reporter.tell(|_| panic!("it reported a moment ago"));
        assert!((reports.borrow_and_update().seconds - 2.0).abs() < 0.001);
    }
}
