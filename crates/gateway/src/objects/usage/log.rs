//! What this process has counted: whole counts of this hour and the last one, and those that are not written yet.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::Counts;

/// Most counts in memory at once: some thousands of users who are all at work.
const COUNTS_MAX: usize = 200_000;

/// Hour, operation and counts.
pub(super) type Line = (u64, &'static str, Counts);

/// Counts of this process.
#[derive(Debug, Default)]
pub struct UsageLog {
    counted: Mutex<Counted>,
    /// Held while counts are written: a later write never says less.
    pub(super) flushing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Counted {
    users: HashMap<String, BTreeMap<(u64, &'static str), One>>,
    len: usize,
    /// Whether a request was not counted since the last time there was room.
    full: bool,
}

#[derive(Debug, Default)]
struct One {
    counts: Counts,
    written: Counts,
}

impl UsageLog {
    /// Adds to the counts of a user.
    pub(super) fn count(&self, key_id: &str, hour: u64, operation: &'static str, counts: Counts) {
        let mut guard = self.counted.lock();
        let Counted { users, len, full } = &mut *guard;
        if let Some(one) = users.get_mut(key_id).and_then(|user| user.get_mut(&(hour, operation))) {
            return one.counts.add(counts);
        }
        if *len >= COUNTS_MAX {
            if !std::mem::replace(full, true) {
                tracing::warn!("too many users at once: requests are missing in the usage reports");
            }
            return;
        }
        *len += 1;
        let user = users.entry(key_id.to_owned()).or_default();
        user.insert((hour, operation), One { counts, written: Counts::default() });
    }

    /// What changed since it was written, by user.
    pub(super) fn unwritten(&self) -> Vec<(String, Vec<Line>)> {
        let guard = self.counted.lock();
        let users = guard.users.iter().map(|(key_id, user)| {
            let changed = user.iter().filter(|(_, one)| one.counts != one.written);
            (key_id.clone(), changed.map(|((hour, operation), one)| (*hour, *operation, one.counts)).collect())
        });
        users.filter(|(_, lines): &(_, Vec<Line>)| !lines.is_empty()).collect()
    }

    /// All counts of a user that are in memory.
    pub(super) fn of(&self, key_id: &str) -> Vec<Line> {
        let guard = self.counted.lock();
        let user = guard.users.get(key_id).into_iter().flatten();
        user.map(|((hour, operation), one)| (*hour, *operation, one.counts)).collect()
    }

    /// Notes that these counts are written.
    pub(super) fn written(&self, key_id: &str, lines: &[Line]) {
        let mut guard = self.counted.lock();
        let Some(user) = guard.users.get_mut(key_id) else { return };
        for (hour, operation, counts) in lines {
            if let Some(one) = user.get_mut(&(*hour, *operation)) {
                one.written = *counts;
            }
        }
    }

    /// Forgets what is written of hours before this one: nothing is added to them any more.
    pub(super) fn forget_before(&self, hour: u64) {
        let mut guard = self.counted.lock();
        for user in guard.users.values_mut() {
            user.retain(|(of, _), one| *of >= hour || one.counts != one.written);
        }
        guard.users.retain(|_, user| !user.is_empty());
        guard.len = guard.users.values().map(BTreeMap::len).sum();
        guard.full &= guard.len >= COUNTS_MAX;
    }
}
