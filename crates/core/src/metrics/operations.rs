//! S3 requests by operation. The S3 edge names the operations; each is shown from its first request on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::distribution::{Series, SinceStart, Statistic, TIME_US_BOUNDS};
use super::{KvOp, Metrics, RequestOutcome, microseconds};

/// Counts of one operation, or of one thread's share of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OperationCounts {
    /// Requests begun and not ended; negative in a thread's share when they end on another thread.
    active: i64,
    outcomes: [u64; RequestOutcome::ALL.len()],
    /// Time until the answer began.
    pub(super) time: SinceStart,
    /// Bytes of bodies received.
    pub(super) received: u64,
    /// Bytes of bodies sent.
    pub(super) sent: u64,
}

/// All requested operations, by name.
pub(super) type Operations = BTreeMap<&'static str, OperationCounts>;

impl OperationCounts {
    /// Requests with this outcome.
    pub(super) fn answered(&self, outcome: RequestOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Requests in progress, until their answers are sent.
    pub(super) fn active(&self) -> u64 {
        u64::try_from(self.active).unwrap_or(0)
    }

    fn add(&self, to: &mut Self) {
        to.active += self.active;
        to.outcomes.iter_mut().zip(self.outcomes).for_each(|(to, from)| *to += from);
        self.time.add(&mut to.time);
        to.received += self.received;
        to.sent += self.sent;
    }
}

impl Metrics {
    /// Counts the begin of a request.
    pub fn count_s3_begun(&self, operation: &'static str) {
        self.count(operation, |counted| counted.active += 1);
    }

    /// Counts the begin of its answer after `took`. The time of a refusal is not kept.
    pub fn count_s3_answered(&self, operation: &'static str, took: Duration, outcome: RequestOutcome) {
        self.count(operation, |counted| {
            counted.outcomes[outcome as usize] += 1;
            if outcome != RequestOutcome::Refused {
                counted.time.record(TIME_US_BOUNDS, microseconds(took));
            }
        });
    }

    /// Counts its end, with the received and sent bytes of its bodies: the answer is sent, or never will be.
    pub fn count_s3_ended(&self, operation: &'static str, received: u64, sent: u64) {
        self.count(operation, |counted| {
            counted.active -= 1;
            counted.received += received;
            counted.sent += sent;
        });
    }

    /// All operations, summed over threads.
    pub(super) fn operations(&self) -> Operations {
        let mut all = Operations::default();
        for shard in &self.shards {
            shard.operations.lock().iter().for_each(|(name, counted)| counted.add(all.entry(name).or_default()));
        }
        all
    }

    fn count(&self, operation: &'static str, change: impl FnOnce(&mut OperationCounts)) {
        change(self.shard().operations.lock().entry(operation).or_default());
    }
}

/// Counts of one side of a gateway, key-value or S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestTotals {
    /// Requests that ended since the start, refused ones included.
    pub ended: u64,
    /// Those that failed for no fault of the client.
    pub failed: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// The traffic of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficSummary {
    /// Operations of key-value clients.
    pub kv: RequestTotals,
    /// Requests of S3 clients.
    pub s3: RequestTotals,
    /// Median time of the key-value operations of the last minute, in microseconds; 0 without any.
    pub median_micros: u64,
    /// The time that 99 % of them took at most, in microseconds.
    pub p99_micros: u64,
    /// Operations and requests that run.
    pub active: u64,
}

impl RequestTotals {
    fn add(&mut self, outcome: RequestOutcome, count: u64) {
        self.ended += count;
        match outcome {
            RequestOutcome::Ok | RequestOutcome::NotFound => {}
            RequestOutcome::Refused => self.refused += count,
            RequestOutcome::Failed => self.failed += count,
        }
    }
}

impl Metrics {
    /// The traffic until `now`. Merges the distributions of all threads, some 100 µs: not for every request.
    #[must_use]
    pub fn traffic(&self, now: Duration) -> TrafficSummary {
        let mut summary = TrafficSummary::default();
        for outcome in RequestOutcome::ALL {
            KvOp::ALL.iter().for_each(|op| summary.kv.add(*outcome, self.request_count(*op, *outcome)));
        }
        for counts in self.operations().values() {
            RequestOutcome::ALL.iter().for_each(|outcome| summary.s3.add(*outcome, counts.answered(*outcome)));
            summary.active += counts.active();
        }
        summary.active += KvOp::ALL.iter().map(|op| self.active_count(*op)).sum::<u64>();
        let series: Vec<Series> = KvOp::ALL.iter().map(|op| Series::Time(*op)).collect();
        let recent = self.last_minute(&series, now);
        summary.median_micros = recent.statistic(Statistic::Median);
        summary.p99_micros = recent.statistic(Statistic::P99);
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_counts_both_sides_by_outcome() {
        let metrics = Metrics::default();
        let now = Duration::from_secs(100);
        let took = Duration::from_micros(500);
        metrics.record_request(KvOp::Get, took, RequestOutcome::NotFound, now);
        metrics.record_request(KvOp::Put, took, RequestOutcome::Failed, now);
        metrics.count_s3_begun("GetObject");
        metrics.count_s3_begun("GetObject");
        metrics.count_s3_answered("GetObject", took, RequestOutcome::Refused);
        metrics.count_s3_ended("GetObject", 0, 0);
        let traffic = metrics.traffic(now);
        assert_eq!(traffic.kv, RequestTotals { ended: 2, failed: 1, refused: 0 });
        assert_eq!(traffic.s3, RequestTotals { ended: 1, failed: 0, refused: 1 });
        assert_eq!(traffic.active, 1);
        assert!((490..=510).contains(&traffic.median_micros), "{traffic:?}");
        assert!(traffic.p99_micros >= traffic.median_micros);
        assert_eq!(metrics.traffic(now + Duration::from_secs(120)).median_micros, 0, "the minute is over");
    }
}
