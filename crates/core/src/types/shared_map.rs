//! An ordered map whose clones share equal parts: a change to a clone copies one run of entries, not all.
//!
//! ```text
//! runs   [ a … f ]  [ g … m ]  [ n … z ]      each shared; a change copies one run, and the list of runs
//! ```

use std::borrow::Borrow;
use std::sync::Arc;

/// A longer run is split in two.
const RUN_MAX: usize = 128;

/// Entries in the order of their keys.
#[derive(Debug, Clone)]
pub struct SharedMap<K, V> {
    /// Never empty ones.
    runs: Vec<Arc<Vec<(K, V)>>>,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let run = self.runs.get(self.key_run(key)?)?;
        run.binary_search_by(|(entry_key, _)| entry_key.borrow().cmp(key)).ok().map(|at| &run[at].1)
    }

    /// Sets the value of a key, or removes it.
    pub fn set(&mut self, key: K, value: Option<V>) {
        if self.runs.is_empty() {
            self.runs.extend(value.map(|value| Arc::new(vec![(key, value)])));
            return;
        }
        // A key before all others goes into the first run.
        let at = self.key_run(&key).unwrap_or(0);
        let run = Arc::make_mut(&mut self.runs[at]);
        match (run.binary_search_by(|(entry_key, _)| entry_key.cmp(&key)), value) {
            (Ok(place), Some(value)) => run[place].1 = value,
            (Ok(place), None) => drop(run.remove(place)),
            (Err(free), Some(value)) => run.insert(free, (key, value)),
            (Err(_), None) => {}
        }
        let half = (run.len() > RUN_MAX).then(|| run.split_off(RUN_MAX / 2));
        let is_empty = run.is_empty();
        if let Some(half) = half {
            self.runs.insert(at + 1, Arc::new(half));
        }
        if is_empty {
            self.runs.remove(at);
        }
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.runs.iter().flat_map(|run| run.iter().map(|(key, value)| (key, value)))
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The values from this key on, in order.
    pub fn values_from<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = &V>
    where
        K: Borrow<Q>,
    {
        let first = self.key_run(key).unwrap_or(0);
        let within =
            self.runs.get(first).map_or(0, |run| run.partition_point(|(entry_key, _)| entry_key.borrow() < key));
        self.runs[first..].iter().flat_map(|run| run.iter().map(|(_, value)| value)).skip(within)
    }

    /// The run that may hold the key: the last one that begins at or before it.
    fn key_run<Q: Ord + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        let begins_by = |run: &Arc<Vec<(K, V)>>| run.first().is_some_and(|(first, _)| first.borrow() <= key);
        self.runs.partition_point(begins_by).checked_sub(1)
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    /// Keys are unique.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut runs = Vec::with_capacity(entries.len().div_ceil(RUN_MAX / 2));
        while !entries.is_empty() {
            let run = entries.split_off(entries.len().saturating_sub(RUN_MAX / 2));
            runs.push(Arc::new(run));
        }
        runs.reverse();
        Self { runs }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn check(map: &SharedMap<u16, u32>, expected: &BTreeMap<u16, u32>, from: u16) {
        assert!(map.iter().eq(expected.iter()));
        assert!(map.values().eq(expected.values()));
        assert!(map.values_from(&from).eq(expected.range(from..).map(|(_, value)| value)));
        assert!((0..500).all(|key| map.get(&key) == expected.get(&key)));
        assert_eq!(map.runs.is_empty(), expected.is_empty());
        assert!(map.runs.iter().all(|run| !run.is_empty() && run.len() <= RUN_MAX));
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map_and_changes_leave_older_clones_as_they_were(
            begin in proptest::collection::btree_map(0..500_u16, any::<u32>(), 0..400),
            changes in proptest::collection::vec((0..500_u16, any::<Option<u32>>()), 0..400),
            from in 0..500_u16,
        ) {
            let mut map: SharedMap<u16, u32> = begin.clone().into_iter().collect();
            let (before, mut expected) = (map.clone(), begin.clone());
            for (key, value) in changes {
                map.set(key, value);
                match value {
                    Some(value) => expected.insert(key, value),
                    None => expected.remove(&key),
                };
            }
            check(&map, &expected, from);
            check(&before, &begin, from);
        }
    }
}
