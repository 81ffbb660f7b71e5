//! Progress reports of a running command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The argument that asks for reports: `kv-admin` adds it to commands that take long.
pub const FLAG: &str = "--progress";
/// Shortest time between two reports.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// One progress report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgressReport {
    /// Seconds since the start.
    pub seconds: f64,
    /// The part that is done, from 0 to 100, where the total is known.
    pub percent: Option<u8>,
    /// The current step, on one line.
    pub text: String,
}

/// The sending side of a command's reports.
#[derive(Debug)]
pub struct ProgressReporter {
    begun: Instant,
    /// Time of the last report, in microseconds since the start.
    last: AtomicU64,
    sender: watch::Sender<ProgressReport>,
}

impl ProgressReporter {
    /// A reporter, and the receiver of its reports.
    #[must_use]
    pub fn new() -> (Self, watch::Receiver<ProgressReport>) {
        let (sender, reports) = watch::channel(ProgressReport::default());
        let begun = Instant::now();
        (Self { begun, last: AtomicU64::new(0), sender }, reports)
    }

    /// Reports, unless the last report is newer than [`REPORT_PAUSE`]; `report` gets the seconds since the start.
    pub fn report(&self, report: impl FnOnce(f64) -> ProgressReport) {
        let since = self.begun.elapsed();
        let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let last = self.last.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(last)) < REPORT_PAUSE.as_micros() {
            return;
        }
        self.last.store(now, Ordering::Relaxed);
        self.sender.send_replace(report(since.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_keep_their_distance_in_time() {
        let (reporter, mut reports) = ProgressReporter::new();
        let report = |seconds| ProgressReport { seconds, ..ProgressReport::default() };
        reporter.report(report);
        assert!(!reports.has_changed().unwrap(), "it has only begun");
        tokio::time::advance(Duration::from_secs(2)).await;
        reporter.report(report);
        reporter.report(|_| panic!("it reported a moment ago"));
        assert!((reports.borrow_and_update().seconds - 2.0).abs() < 0.001);
    }
}
