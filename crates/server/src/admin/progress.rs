//! Progress reports of a running command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_progress_bar::Progress;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest time between two reports.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// The sending side of a command's reports.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    begun: Instant,
    /// Time of the last report, in microseconds since the start.
    last: AtomicU64,
    sender: watch::Sender<Progress>,
}

impl ProgressReporter {
    /// A reporter, and the receiver of its reports.
    #[must_use]
    pub(super) fn new() -> (Self, watch::Receiver<Progress>) {
        let (sender, reports) = watch::channel(Progress::default());
        let begun = Instant::now();
        (Self { begun, last: AtomicU64::new(0), sender }, reports)
    }

    /// Reports, unless the last report is newer than [`REPORT_PAUSE`]; `report` gets the seconds since the start.
    pub(super) fn report(&self, report: impl FnOnce(f64) -> Progress) {
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
        let report = |seconds| Progress { seconds, ..Progress::default() };
        reporter.report(report);
        assert!(!reports.has_changed().unwrap(), "it has only begun");
        tokio::time::advance(Duration::from_secs(2)).await;
        reporter.report(report);
        reporter.report(|_| panic!("it reported a moment ago"));
        assert!((reports.borrow_and_update().seconds - 2.0).abs() < 0.001);
    }
}
