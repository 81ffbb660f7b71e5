//! The task that writes heartbeats and polls for a newer catalogue.
//!
//! Every gateway writes a row every two seconds; the store's clock alone expires it after ten. The row holds the number of the
//! gateway's catalogue, so one read tells whether every running node has a change. Between heartbeats a gateway polls for a
//! newer catalogue every half second and advertises it at once: a change reaches every gateway within a second, at the price of
//! one small read.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::Result;
use crate::clock::WallClockWatch;
use crate::members::Members;
use crate::metrics::Event;

/// Interval of polls for a newer catalogue.
const CATALOGUE_POLL: Duration = Duration::from_millis(500);
/// Polls per heartbeat: one heartbeat in two seconds.
const POLLS_PER_HEARTBEAT: u32 = 4;
/// Failures per warning: the first one is logged, then one a minute.
const FAILURES_PER_WARNING: u32 = 30;

/// Spawns the task that writes heartbeats, until the members are dropped or the task aborted.
pub(crate) fn spawn_heartbeats(members: &Arc<Members>) -> JoinHandle<()> {
    let mut watch = WallClockWatch::new(members.core.now(), members.core.monotonic());
    let members = Arc::downgrade(members);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(CATALOGUE_POLL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut failures = 0;
        for look in 1_u32.. {
            ticks.tick().await;
            let Some(members) = members.upgrade() else { return };
            log_clock_jump(watch.check(members.core.now(), members.core.monotonic()));
            if look.is_multiple_of(POLLS_PER_HEARTBEAT) || members.lease.has_lapsed(members.core.monotonic()) {
                failures = log_heartbeat(members.run_heartbeat().await, failures);
            } else if let Err(error) = members.poll_catalogue().await {
                tracing::debug!(%error, "catalogue poll failed: the next one is in 500 ms");
            }
        }
    })
}

/// Logs a jump of the wall clock.
fn log_clock_jump(jump: Option<i128>) {
    let Some(jump) = jump else { return };
    let direction = if jump < 0 { "back" } else { "ahead" };
    let seconds = jump.unsigned_abs() / 1_000_000;
    tracing::warn!(
        seconds,
        "the wall clock of this machine jumped {direction}: expiry and dates follow it, the order of writes does not"
    );
}

/// Logs the result of a heartbeat; answers the number of failures in a row.
fn log_heartbeat(result: Result<()>, failures: u32) -> u32 {
    match result {
        Ok(()) => {
            if failures > 0 {
                tracing::info!(failures, "heartbeats succeed again");
            }
            0
        }
        Err(error) => {
            if failures.is_multiple_of(FAILURES_PER_WARNING) {
                tracing::warn!(
                    %error,
                    failures,
                    "heartbeat or catalogue refresh failed: retried in 2 s; requests are refused 5 s after the last check"
                );
            }
            failures + 1
        }
    }
}

impl Members {
    /// One heartbeat, even if the rest fails: a gateway that cannot refresh its catalogue advertises the one it has.
    async fn run_heartbeat(&self) -> Result<()> {
        let (skew, refreshed) = tokio::join!(self.issuer.check_skew(), self.catalogue.refresh());
        // After the refresh, so that the heartbeat advertises the new number without waiting for the next one.
        let written = self.write_heartbeat().await;
        if written.is_err() {
            self.core.metrics.count_event(Event::HeartbeatMissed);
        }
        let cluster = async { self.cluster().await.map(drop) };
        written.and(skew).and(refreshed).and(cluster.await).and(self.issuer.renew_mark().await)
    }

    /// Refreshes the catalogue and advertises it if it is newer.
    async fn poll_catalogue(&self) -> Result<()> {
        self.catalogue.refresh().await?;
        self.advertise_catalogue().await
    }
}
