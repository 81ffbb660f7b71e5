//! Caches of recently read users, and of parsed policies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larder_rows::Timestamp;
use parking_lot::Mutex;

use super::KeyHolder;
use crate::Result;
use crate::rules::policy::IdentityPolicy;

/// Lifetime of an entry.
const TTL: Duration = Duration::from_secs(2);
/// Most entries.
const ENTRIES_MAX: usize = 10_000;

/// Users by access key id and their names by canonical id, each with the time of the lookup.
#[derive(Debug, Default)]
pub(super) struct UserCache {
    pub(super) keys: TimedCache<KeyHolder>,
    pub(super) names: TimedCache<String>,
}

impl UserCache {
    /// Clears the cache: a user was changed, or may have been.
    pub(super) fn clear(&self) {
        self.keys.clear();
        self.names.clear();
    }
}

/// Values by name, each with the time of the lookup.
#[derive(Debug)]
pub(super) struct TimedCache<T>(Mutex<CacheEntries<T>>);

#[derive(Debug)]
struct CacheEntries<T> {
    values: HashMap<String, (Duration, T)>,
    /// Number of clears.
    cleared: u64,
}

/// The time and cache generation of a miss.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheMiss {
    at: Duration,
    cleared: u64,
}

impl<T> Default for TimedCache<T> {
    fn default() -> Self {
        Self(Mutex::new(CacheEntries { values: HashMap::new(), cleared: 0 }))
    }
}

impl<T: Clone> TimedCache<T> {
    /// The cached value at `now`; otherwise a token to [`Self::insert`] the value read.
    pub(super) fn get(&self, name: &str, now: Duration) -> std::result::Result<T, CacheMiss> {
        let entries = self.0.lock();
        match entries.values.get(name) {
            Some((at, value)) if now.saturating_sub(*at) < TTL => Ok(value.clone()),
            _ => Err(CacheMiss { at: now, cleared: entries.cleared }),
        }
    }

    /// Caches a value. Race: not if the cache was cleared since the miss, as the value may predate the change.
    pub(super) fn insert(&self, name: &str, miss: CacheMiss, value: T) {
        let mut entries = self.0.lock();
        // Race: a user who was disabled during the read would be cached as enabled [invariant 71].
        if entries.cleared != miss.cleared {
            return;
        }
        if entries.values.len() >= ENTRIES_MAX {
            entries.values.retain(|_, (at, _)| miss.at.saturating_sub(*at) < TTL);
        }
        // Bound: all entries are live; forgetting them costs one read each.
        if entries.values.len() >= ENTRIES_MAX {
            entries.values.clear();
        }
        // The lifetime begins with the miss: the value may be as old as that [invariant 71].
        entries.values.insert(name.to_owned(), (miss.at, value));
    }

    fn clear(&self) {
        let mut entries = self.0.lock();
        entries.values.clear();
        entries.cleared += 1;
    }
}

/// Most parsed policies that are kept: those of a store, and the canned ones.
const PARSED_MAX: usize = larder_rows::limits::IAM_POLICIES_MAX + 10;

/// Parsed policies by name, each with the stamp of its row: its users share one, and a policy that stays is parsed once.
#[derive(Debug, Default)]
pub(super) struct ParsedPolicies(Mutex<HashMap<String, (Timestamp, Arc<IdentityPolicy>)>>);

impl ParsedPolicies {
    /// The policy of this name, parsed by `parse` unless the one of this stamp is known.
    pub(super) fn get_or_parse(
        &self,
        name: &str,
        stamp: Timestamp,
        parse: impl FnOnce() -> Result<IdentityPolicy>,
    ) -> Result<Arc<IdentityPolicy>> {
        if let Some((_, known)) = self.0.lock().get(name).filter(|(of, _)| *of == stamp) {
            return Ok(Arc::clone(known));
        }
        let policy = Arc::new(parse()?);
        let mut policies = self.0.lock();
        // Bound: to forget all costs each policy one parse.
        if policies.len() >= PARSED_MAX {
            policies.clear();
        }
        policies.insert(name.to_owned(), (stamp, Arc::clone(&policy)));
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn miss(cache: &TimedCache<u32>, name: &str, now: u64) -> CacheMiss {
        cache.get(name, Duration::from_millis(now)).unwrap_err()
    }

    #[test]
    fn an_entry_lives_for_two_seconds() {
        let cache = TimedCache::default();
        cache.insert("a", miss(&cache, "a", 1000), 7);
        assert_eq!(cache.get("a", Duration::from_millis(2999)).ok(), Some(7));
        assert_eq!(cache.get("b", Duration::from_millis(1000)).ok(), None);
        assert_eq!(cache.get("a", Duration::from_millis(3000)).ok(), None);
    }

    #[test]
    fn a_value_read_before_a_change_is_not_cached() {
        let cache = TimedCache::default();
        let before = miss(&cache, "a", 0);
        cache.clear();
        cache.insert("a", before, 7);
        assert_eq!(cache.get("a", Duration::ZERO).ok(), None);
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = TimedCache::default();
        for at in 0..3 * ENTRIES_MAX {
            let name = at.to_string();
            cache.insert(&name, miss(&cache, &name, 0), 7);
            assert!(cache.0.lock().values.len() <= ENTRIES_MAX);
        }
    }
}
