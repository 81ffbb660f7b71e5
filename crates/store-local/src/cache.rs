//! The cache of packed entries that are read often (Cassandra: row cache), beside lsm-tree's block cache: a hit costs a hash,
//! not a search of tables. It also remembers keys that were read and have no entry.
//!
//! A cached entry is always the last committed one. A reader that misses gets a token, reads the tree and fills the cache. The
//! committer marks every key of a group before it publishes the group, which evicts the entry, and unmarks it afterwards. A
//! fill counts only if its stripe has no mark now and got none since the token, so an entry read before a commit never gets in
//! after it. A marked key is read from the tree: no reader finds an old entry after it saw the group's other rows. With the
//! unmark the new entry takes the place of an evicted one; that of a new key is in the memtable, and a load of new keys evicts
//! nothing. The committer reads the cache as well, because no other thread writes.

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::threads::Mutex;

/// Keys share this many stripes.
const STRIPES: usize = 64;
/// Most bytes of a cached entry: a longer one would evict too many others.
const ENTRY_BYTES_MAX: usize = 128 * 1024;
/// Cost of an entry beside its bytes: its places in the cache, and the counts of owners of its key and its value.
const OVERHEAD_BYTES: usize = 192;

#[derive(Debug, Clone)]
struct EntryWeight;

impl Weighter<Bytes, Option<Bytes>> for EntryWeight {
    fn weight(&self, key: &Bytes, entry: &Option<Bytes>) -> u64 {
        (allocated(key.len()) + allocated(entry.as_ref().map_or(0, Bytes::len)) + OVERHEAD_BYTES) as u64
    }
}

/// Bytes that the allocator takes for so many: it has four sizes from one power of two to the next.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// The cache of packed entries.
pub(crate) struct EntryCache {
    entries: Cache<Bytes, Option<Bytes>, EntryWeight>,
    stripes: [Mutex<CacheStripe>; STRIPES],
}

/// The state of the keys that share a lock.
#[derive(Debug, Default)]
struct CacheStripe {
    /// Begins and ends of writes so far.
    write_marks: u64,
    /// Keys being written now.
    writes_active: usize,
}

/// The stripe's mark at a miss; lets its reader fill the cache (memcache: lease).
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillToken(u64);

impl EntryCache {
    /// A cache of at most `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        let estimate = usize::try_from(bytes / 1024).unwrap_or(usize::MAX).max(1);
        Self {
            entries: Cache::with_weighter(estimate, bytes, EntryWeight),
            stripes: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Bytes of its entries, as they count against its bound.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The entry, `None` where the key has none, or the token to fill it.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, FillToken> {
        // A write that ends before this token is published already, so the read of the tree shows it.
        self.entries.get(key).ok_or_else(|| FillToken(self.stripe(key).lock().write_marks))
    }

    /// The entry for the committer, which fills nothing; `None` when it is not cached.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.entries.peek(key)
    }

    /// Caches an entry read from the tree, or its absence, unless its key may have been written since the token.
    pub(crate) fn fill(&self, key: &[u8], entry: Option<&Bytes>, token: FillToken) {
        if entry.is_some_and(|entry| entry.len() > ENTRY_BYTES_MAX) {
            return;
        }
        let stripe = self.stripe(key).lock();
        // Race: a writer may have replaced the entry since the miss [invariant 88].
        if stripe.write_marks == token.0 && stripe.writes_active == 0 {
            // Copies: they may be views of a request or of a whole block.
            let entry = entry.map(|entry| Bytes::copy_from_slice(entry));
            self.entries.insert(Bytes::copy_from_slice(key), entry);
        }
    }

    /// Evicts what is cached of a key that is about to be written, and refuses its fills until [`Self::end_write`]. Returns
    /// whether that was an entry.
    pub(crate) fn begin_write(&self, key: &[u8]) -> bool {
        let mut stripe = self.stripe(key).lock();
        // The mark and the eviction share the lock: a fill between them would bring the old entry back.
        stripe.write_marks += 1;
        stripe.writes_active += 1;
        self.entries.remove(key).is_some_and(|(_, entry)| entry.is_some())
    }

    /// Allows fills of the entry again, after its group is published. `entry` replaces an evicted one.
    pub(crate) fn end_write(&self, key: &Bytes, entry: Option<Option<&Bytes>>) {
        let mut stripe = self.stripe(key).lock();
        // A reader with a token from during the write may have read the old entry.
        stripe.write_marks += 1;
        stripe.writes_active -= 1;
        match entry {
            Some(Some(entry)) if entry.len() > ENTRY_BYTES_MAX => {}
            // The memtable shares these bytes until it is flushed.
            Some(entry) => self.entries.insert(key.clone(), entry.cloned()),
            None => {}
        }
    }

    fn stripe(&self, key: &[u8]) -> &Mutex<CacheStripe> {
        &self.stripes[crc32fast::hash(key) as usize % STRIPES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Bytes = Bytes::from_static(b"old");
    const NEW: Bytes = Bytes::from_static(b"new");

    #[test]
    fn an_entry_read_before_a_write_never_gets_in_after_it() {
        let cache = EntryCache::new(1 << 20);
        let Err(token) = cache.get(b"k") else { panic!("nothing was offered yet") };
        assert!(!cache.begin_write(b"k"));
        cache.fill(b"k", Some(&OLD), token);
        let Err(token) = cache.get(b"k") else { panic!("the old entry got in before the commit") };
        cache.fill(b"k", Some(&OLD), token);
        assert!(cache.get(b"k").is_err(), "an entry read during the commit got in");
        cache.end_write(&"k".into(), None);
        cache.fill(b"k", Some(&OLD), token);
        let Err(token) = cache.get(b"k") else { panic!("the old entry got in after the commit") };
        cache.fill(b"k", Some(&NEW), token);
        assert_eq!((cache.get(b"k").ok(), cache.peek(b"k")), (Some(Some(NEW)), Some(Some(NEW))));
        cache.begin_write(b"k");
        assert!(cache.get(b"k").is_err());
    }

    #[test]
    fn a_write_replaces_a_cached_entry_only_after_publication() {
        let cache = EntryCache::new(1 << 20);
        let Err(token) = cache.get(b"k") else { panic!("nothing was offered yet") };
        cache.fill(b"k", Some(&OLD), token);
        assert!(cache.begin_write(b"k"), "it was cached");
        assert!(
            cache.get(b"k").is_err() && cache.peek(b"k").is_none(),
            "a reader saw neither the old nor the new entry"
        );
        cache.end_write(&"k".into(), Some(Some(&NEW)));
        assert!(cache.get(b"k").is_ok_and(|entry| entry == Some(NEW)));
    }

    #[test]
    fn a_load_of_new_keys_fills_no_cache() {
        let cache = EntryCache::new(1 << 20);
        let Err(token) = cache.get(b"k") else { panic!("nothing was offered yet") };
        cache.fill(b"k", None, token);
        assert!(cache.get(b"k").is_ok_and(|entry| entry.is_none()), "the absence is cached");
        assert!(!cache.begin_write(b"k"), "an absence is no entry");
        assert!(cache.get(b"k").is_err());
        cache.end_write(&"k".into(), None);
        assert!(cache.get(b"k").is_err() && cache.bytes() == 0);
    }

    #[test]
    fn an_entry_counts_as_the_memory_that_it_takes() {
        assert_eq!([0, 1, 16, 17, 130, 1_024, 1_130, 4_200].map(allocated), [0, 16, 16, 32, 160, 1_024, 1_280, 5_120]);
    }

    #[test]
    fn the_cache_stays_within_its_bytes() {
        let cache = EntryCache::new(64 * 1024);
        for number in 0..1000_u32 {
            let key = number.to_be_bytes();
            let Err(token) = cache.get(&key) else { panic!("nothing was offered yet") };
            cache.fill(&key, (number % 2 == 0).then(|| Bytes::from(vec![7; 1000])).as_ref(), token);
        }
        assert!((1..=64 * 1024).contains(&cache.bytes()));
    }
}
