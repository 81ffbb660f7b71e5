//! The start of a gateway's heartbeats under its name, and the task that writes them and polls for a newer catalogue.
//!
//! Every gateway writes a row every two seconds; the store's clock alone expires it after ten. The row holds the number of the
//! gateway's catalogue, so one read tells whether every running node has a change. Between heartbeats a gateway polls for a
//! newer catalogue every half second and advertises it at once: a change reaches every gateway within a second, at the price of
//! one small read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::{Batch, Change, Timestamp};
use larder_store::{ConsistencyLevel, Partition};
use tokio::task::JoinHandle;

use crate::clock_issuer::SKEW_MICROS_MAX;
use crate::members::{Member, Members, decode_member};
use crate::metrics::Event;
use crate::node_context::internal_options;
use crate::{Error, Result};

/// Interval of polls for a newer catalogue.
const CATALOGUE_POLL: Duration = Duration::from_millis(500);
/// Polls per heartbeat: one heartbeat in two seconds.
const POLLS_PER_HEARTBEAT: u32 = 4;
/// Failures per warning: the first one is logged, then one a minute.
const FAILURES_PER_WARNING: u32 = 30;
/// A gateway without heartbeat for this many microseconds is dead or unable to write.
const SILENT_MICROS: u64 = 3_000_000;
/// Interval in which a starting gateway checks for another one of its name.
const NAME_POLL: Duration = Duration::from_millis(250);

/// Difference between wall clock and elapsed time, in microseconds, that counts as a jump.
const JUMP_MICROS_MIN: u64 = 1_000_000;

/// Detects jumps of this machine's wall clock.
#[derive(Debug)]
struct WallClockWatch {
    wall: Timestamp,
    passed: Duration,
}

impl WallClockWatch {
    /// Starts with the current readings of both clocks.
    fn new(wall: Timestamp, passed: Duration) -> Self {
        Self { wall, passed }
    }

    /// The jump of the wall clock since the last check, in microseconds; negative: back.
    fn check(&mut self, wall: Timestamp, passed: Duration) -> Option<i128> {
        let went = i128::from(wall.0) - i128::from(self.wall.0);
        let jump = went - passed.saturating_sub(self.passed).as_micros() as i128;
        *self = Self::new(wall, passed);
        (jump.unsigned_abs() >= u128::from(JUMP_MICROS_MIN)).then_some(jump)
    }
}

/// Spawns the task that writes heartbeats, until the members are dropped or the task aborted.
pub(crate) fn spawn_heartbeats(members: &Arc<Members>) -> JoinHandle<()> {
    let mut watch = WallClockWatch::new(members.context.now(), members.context.monotonic());
    let members = Arc::downgrade(members);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(CATALOGUE_POLL);
        // After a suspension one heartbeat is due, not a burst of the missed ones.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut failures = 0;
        for look in 1_u32.. {
            ticks.tick().await;
            let Some(members) = members.upgrade() else { return };
            log_clock_jump(watch.check(members.context.now(), members.context.monotonic()));
            // Writes to buckets wait while the lease is lapsed, so each poll tries a heartbeat then [invariant 81].
            if look.is_multiple_of(POLLS_PER_HEARTBEAT) || members.lease.has_lapsed(members.context.monotonic()) {
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

/// Logs the result of a heartbeat; returns the number of failures in a row.
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
    /// Waits until no other process runs under this name. A killed one stops its heartbeats; a live one writes its next within
    /// four seconds.
    ///
    /// # Errors
    /// [`Error::NotReady`] when it runs.
    pub(crate) async fn claim_name(&self) -> Result<()> {
        let Some(mut last) = self.namesake_heartbeat().await? else { return Ok(()) };
        // A late heartbeat of a killed process may arrive only now. It was stamped before this moment, within the clock skew,
        // so only a later stamp proves a live process [invariant 79].
        let begun =
            last.max(self.context.ports.store.now(&internal_options(ConsistencyLevel::One)).await? + SKEW_MICROS_MAX);
        loop {
            let now = self.context.ports.store.now(&internal_options(ConsistencyLevel::One)).await?;
            let Some(heard) = self.namesake_heartbeat().await? else { return Ok(()) };
            last = last.max(heard);
            if heard > begun {
                let name = &self.context.config.node;
                return Err(Error::NotReady(format!(
                    "a gateway named {name} runs already: give each its own --node-name"
                )));
            }
            if now.since(last) > SILENT_MICROS {
                return Ok(());
            }
            tokio::time::sleep(NAME_POLL).await;
        }
    }

    /// Stamp of the newest heartbeat of another process under this name.
    async fn namesake_heartbeat(&self) -> Result<Option<Timestamp>> {
        let page = self.member_rows().await?.into_iter().map(|row| Ok((row.stamp, decode_member(row)?)));
        let members = page.collect::<Result<Vec<_>>>()?;
        let other =
            |member: &Member| member.actor != self.context.ports.actor && member.row.node == self.context.config.node;
        Ok(members.iter().filter(|(_, member)| other(member)).map(|(stamp, _)| *stamp).max())
    }

    /// Deletes the heartbeats of dead processes: the directory's lock proves that this process is alone.
    pub(crate) async fn drop_others(&self) -> Result<()> {
        let others: Vec<_> =
            self.list().await?.into_iter().filter(|member| member.actor != self.context.ports.actor).collect();
        let gone = |member: &Member| Change::Remove {
            name: Bytes::copy_from_slice(&member.actor.0.to_be_bytes()),
            // A dead process with a fast clock may have stamped its heartbeat far ahead [invariant 69].
            stamp: Timestamp::MAX,
        };
        let changes: Vec<_> = others.iter().map(gone).collect();
        if !changes.is_empty() {
            self.context.apply_at_quorum(Batch::single(Partition::members(), changes)).await?;
        }
        Ok(())
    }

    /// One heartbeat, even if the rest fails: a gateway that cannot refresh its catalogue advertises the one it has.
    async fn run_heartbeat(&self) -> Result<()> {
        let (skew, refreshed) = tokio::join!(self.issuer.check_skew(), self.catalogue.refresh());
        // After the refresh, so that the heartbeat advertises the new number without waiting for the next one.
        let written = self.write_heartbeat().await;
        if written.is_err() {
            self.context.metrics.count_event(Event::HeartbeatMissed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_is_reported_once() {
        let second = Duration::from_secs(1);
        let mut watch = WallClockWatch::new(Timestamp(1_000_000), second);
        assert_eq!(watch.check(Timestamp(2_400_000), second * 2), None, "drift is no jump");
        assert_eq!(watch.check(Timestamp(33_400_000), second * 3), Some(30_000_000));
        assert_eq!(watch.check(Timestamp(34_400_000), second * 4), None);
        assert_eq!(watch.check(Timestamp(400_000), second * 5), Some(-35_000_000));
        assert_eq!(watch.check(Timestamp(1_400_000), second * 6), None);
    }
}
