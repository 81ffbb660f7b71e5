//! Usage counts in memory: totals of this hour and the last one, and unwritten ones.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::UsageCounts;

/// Most counters in memory: some thousands of active users.
const COUNTS_MAX: usize = 200_000;

/// Hour, operation and counts.
pub(super) type UsageLine = (u64, &'static str, UsageCounts);

/// The usage counts of this process.
#[derive(Debug, Default)]
pub(super) struct UsageLog {
    counted: Mutex<UsageCounters>,
    /// Held during a flush: a later write never has smaller totals.
    pub(super) flushing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct UsageCounters {
    users: HashMap<String, BTreeMap<(u64, &'static str), UsageCounter>>,
    len: usize,
    /// Whether a request was dropped since the log was last below its bound.
    full: bool,
}

#[derive(Debug, Default)]
struct UsageCounter {
    counts: UsageCounts,
    written: UsageCounts,
}

impl UsageLog {
    /// Adds to the counts of a user.
    pub(super) fn count(&self, key_id: &str, hour: u64, operation: &'static str, counts: UsageCounts) {
        let mut guard = self.counted.lock();
        let UsageCounters { users, len, full } = &mut *guard;
        if let Some(counter) = users.get_mut(key_id).and_then(|user| user.get_mut(&(hour, operation))) {
            return counter.counts.add(counts);
        }
        if *len >= COUNTS_MAX {
            if !std::mem::replace(full, true) {
                tracing::warn!("usage log is full; usage reports miss requests until the next flush");
            }
            return;
        }
        *len += 1;
        let user = users.entry(key_id.to_owned()).or_default();
        user.insert((hour, operation), UsageCounter { counts, written: UsageCounts::default() });
    }

    /// Counts that differ from their written rows, by user.
    pub(super) fn unwritten(&self) -> Vec<(String, Vec<UsageLine>)> {
        let guard = self.counted.lock();
        let users = guard.users.iter().map(|(key_id, user)| {
            let changed = user.iter().filter(|(_, counter)| counter.counts != counter.written);
            (key_id.clone(), changed.map(|((hour, operation), counter)| (*hour, *operation, counter.counts)).collect())
        });
        users.filter(|(_, lines): &(_, Vec<UsageLine>)| !lines.is_empty()).collect()
    }

    /// All counts of a user in memory.
    pub(super) fn lines_for(&self, key_id: &str) -> Vec<UsageLine> {
        let guard = self.counted.lock();
        let user = guard.users.get(key_id).into_iter().flatten();
        user.map(|((hour, operation), counter)| (*hour, *operation, counter.counts)).collect()
    }

    /// Marks these counts as written.
    pub(super) fn mark_written(&self, key_id: &str, lines: &[UsageLine]) {
        let mut guard = self.counted.lock();
        let Some(user) = guard.users.get_mut(key_id) else { return };
        for (hour, operation, counts) in lines {
            if let Some(counter) = user.get_mut(&(*hour, *operation)) {
                // Race: a request may have added since the flush began; only the totals of the flush are written.
                counter.written = *counts;
            }
        }
    }

    /// Drops written counts of hours before this one: no request adds to them any more.
    pub(super) fn forget_before(&self, hour: u64) {
        let mut guard = self.counted.lock();
        for user in guard.users.values_mut() {
            user.retain(|(of, _), counter| *of >= hour || counter.counts != counter.written);
        }
        guard.users.retain(|_, user| !user.is_empty());
        guard.len = guard.users.values().map(BTreeMap::len).sum();
        guard.full &= guard.len >= COUNTS_MAX;
    }
}
