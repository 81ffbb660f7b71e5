//! The contents of the buckets under a quota, as far as this gateway knows. It reads no clock and no store.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::rules::{BucketId, Storage};

/// A bucket is measured for a tenth of the time at most.
const PAUSE_FACTOR: u32 = 10;

/// An account for each bucket under a quota.
#[derive(Default)]
pub(super) struct Ledger {
    accounts: HashMap<BucketId, StorageAccount>,
}

#[derive(Default)]
struct StorageAccount {
    measured: Option<Measurement>,
    /// Room of the writes under way.
    open: Storage,
    /// Room of the writes that ended since the last measurement began.
    written: Storage,
    /// Those of them that ended since the running measurement began.
    written_during: Storage,
    /// The running measurement: its sender is dropped at its end.
    running: Option<watch::Receiver<()>>,
}

struct Measurement {
    stored: Storage,
    ended: Instant,
    took: Duration,
}

impl Ledger {
    /// The objects and bytes of these buckets together, writes under way included; `None` before all are measured.
    pub(super) fn stored(&self, buckets: impl Iterator<Item = BucketId>) -> Option<Storage> {
        let mut all = Storage::default();
        for bucket in buckets {
            let account = self.accounts.get(&bucket)?;
            all += account.measured.as_ref()?.stored;
            all += account.written;
            all += account.open;
        }
        Some(all)
    }

    /// Takes room for a write.
    pub(super) fn open(&mut self, bucket: BucketId, room: Storage) {
        self.accounts.entry(bucket).or_default().open += room;
    }

    /// Ends a write.
    pub(super) fn close(&mut self, bucket: BucketId, room: Storage, is_written: bool) {
        let Some(account) = self.accounts.get_mut(&bucket) else { return };
        account.open = account.open.less(room);
        if is_written {
            account.written += room;
            // Race: the running measurement may have read past this key before: counted twice rather than
            // not at all [invariant 141].
            account.written_during += room;
        }
    }

    /// Whether the last measurement of a bucket is older; `Duration::MAX`: whether there is none.
    pub(super) fn is_due(&self, bucket: BucketId, now: Instant, age_max: Duration) -> bool {
        let Some(measured) = self.accounts.get(&bucket).and_then(|account| account.measured.as_ref()) else {
            return true;
        };
        let pause = if age_max.is_zero() { age_max } else { age_max.max(measured.took * PAUSE_FACTOR) };
        now.duration_since(measured.ended) >= pause
    }

    /// The running measurement of a bucket.
    pub(super) fn running(&self, bucket: BucketId) -> Option<watch::Receiver<()>> {
        let running = self.accounts.get(&bucket)?.running.clone();
        // One that ended without a result, as by a panic, runs no more.
        running.filter(|running| running.has_changed().is_ok())
    }

    /// Begins a measurement.
    pub(super) fn begin(&mut self, bucket: BucketId, running: watch::Receiver<()>) {
        let account = self.accounts.entry(bucket).or_default();
        account.running = Some(running);
        account.written_during = Storage::default();
    }

    /// Ends the measurement that began at `begun`; without a result, the last one stays.
    pub(super) fn end(&mut self, bucket: BucketId, begun: Instant, ended: Instant, stored: Option<Storage>) {
        let Some(account) = self.accounts.get_mut(&bucket) else { return };
        account.running = None;
        if let Some(stored) = stored {
            account.measured = Some(Measurement { stored, ended, took: ended.duration_since(begun) });
            account.written = account.written_during;
        }
    }

    /// Forgets all buckets but these: others were deleted.
    pub(super) fn keep(&mut self, buckets: &HashSet<BucketId>) {
        self.accounts.retain(|bucket, _| buckets.contains(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: BucketId = BucketId([1; 16]);
    const OTHER: BucketId = BucketId([2; 16]);

    fn stored(ledger: &Ledger) -> Option<u64> {
        ledger.stored([BUCKET].into_iter()).map(|stored| stored.bytes)
    }

    fn measure(ledger: &mut Ledger, bytes: u64, during: impl FnOnce(&mut Ledger)) {
        let (_ended, running) = watch::channel(());
        ledger.begin(BUCKET, running);
        during(ledger);
        ledger.end(BUCKET, Instant::now(), Instant::now(), Some(Storage::object(bytes)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_counts_from_its_admission_until_a_measurement_that_began_after_its_end() {
        let mut ledger = Ledger::default();
        let room = Storage::object;
        assert_eq!(stored(&ledger), None);
        measure(&mut ledger, 100, |_| {});
        ledger.open(BUCKET, room(1));
        ledger.open(BUCKET, room(10));
        assert_eq!(stored(&ledger), Some(111));
        ledger.close(BUCKET, room(1), false);
        assert_eq!(stored(&ledger), Some(110));
        measure(&mut ledger, 100, |ledger| ledger.close(BUCKET, room(10), true));
        assert_eq!(stored(&ledger), Some(110), "it ended during the measurement, which may have missed it");
        ledger.open(BUCKET, room(5));
        measure(&mut ledger, 110, |_| {});
        assert_eq!(stored(&ledger), Some(115), "it is still under way");
        ledger.close(BUCKET, room(5), true);
        measure(&mut ledger, 115, |_| {});
        assert_eq!(stored(&ledger), Some(115));
        assert_eq!(ledger.stored([BUCKET, OTHER].into_iter()), None, "the other is not measured");
    }

    #[tokio::test(start_paused = true)]
    async fn a_measurement_is_due_by_its_age_and_by_what_it_costs() {
        let mut ledger = Ledger::default();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert!(ledger.is_due(BUCKET, now, Duration::MAX));
        let (ended, running) = watch::channel(());
        ledger.begin(BUCKET, running);
        assert!(ledger.running(BUCKET).is_some());
        ledger.end(BUCKET, now, now + second, Some(Storage::default()));
        let due = |after, age_max| ledger.is_due(BUCKET, now + second * after, age_max);
        assert!(!due(1, Duration::MAX) && due(1, Duration::ZERO));
        assert!(!due(10, second) && due(11, second), "ten times the second that it took");
        assert!(!due(60, second * 60) && due(61, second * 60));
        drop(ended);
        assert!(ledger.running(BUCKET).is_none());
        ledger.keep(&HashSet::new());
        assert_eq!(stored(&ledger), None);
    }

    #[tokio::test]
    async fn a_measurement_whose_task_is_gone_runs_no_more() {
        let mut ledger = Ledger::default();
        let (ended, running) = watch::channel(());
        ledger.begin(BUCKET, running);
        drop(ended);
        assert!(ledger.running(BUCKET).is_none());
    }
}
