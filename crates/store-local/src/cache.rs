//! Packed entries that are read often, beside the engine's own cache of blocks: a hit costs a hash, not a search of tables.
//!
//! What is cached is what was committed last. A reader that found an entry below offers it. The committer closes every key
//! before it commits a group, which forgets it, and opens it afterwards: meanwhile readers look below, so none sees an entry
//! of before the commit once another saw what came with it. An offer counts only if its stripe is open and was not closed
//! since the reader began, so an entry read before a commit never gets in after it.

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Keys share this many stripes.
const STRIPES: usize = 64;
/// Longer entries are not cached: they would push out too many others.
const ENTRY_BYTES_MAX: usize = 128 * 1024;
/// What an entry costs beside its bytes.
const OVERHEAD_BYTES: usize = 96;

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Bytes, Bytes> for ByBytes {
    fn weight(&self, key: &Bytes, entry: &Bytes) -> u64 {
        (key.len() + entry.len() + OVERHEAD_BYTES) as u64
    }
}

/// Recently read packed entries.
pub(crate) struct EntryCache {
    entries: Cache<Bytes, Bytes, ByBytes>,
    stripes: [Mutex<Stripe>; STRIPES],
}

/// Keys that share a lock.
#[derive(Debug, Default)]
struct Stripe {
    /// How often one of them was closed.
    closings: u64,
    /// How many are closed now.
    closed: usize,
}

/// When a reader began; entitles it to offer what it finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun(u64);

impl EntryCache {
    /// A cache of `bytes` at most.
    pub(crate) fn new(bytes: u64) -> Self {
        let estimate = usize::try_from(bytes / 1024).unwrap_or(usize::MAX).max(1);
        Self {
            entries: Cache::with_weighter(estimate, bytes, ByBytes),
            stripes: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The entry, or the right to offer it.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Bytes, Begun> {
        self.entries.get(key).ok_or_else(|| Begun(self.stripe(key).lock().closings))
    }

    /// Takes an entry found below, unless its key may have been written since the reader began.
    pub(crate) fn offer(&self, key: Bytes, entry: &Bytes, begun: Begun) {
        if entry.len() > ENTRY_BYTES_MAX {
            return;
        }
        let stripe = self.stripe(&key).lock();
        if stripe.closings == begun.0 && stripe.closed == 0 {
            // A copy: the entry may be a view of a whole block.
            self.entries.insert(key, Bytes::copy_from_slice(entry));
        }
    }

    /// Forgets an entry that is about to be written, and takes no offer of it until [`Self::open`].
    pub(crate) fn close(&self, key: &[u8]) {
        let mut stripe = self.stripe(key).lock();
        stripe.closings += 1;
        stripe.closed += 1;
        self.entries.remove(key);
    }

    /// Takes offers again of an entry that was written, or was not after all.
    pub(crate) fn open(&self, key: &[u8]) {
        let mut stripe = self.stripe(key).lock();
        // Who began in between may have read what was there before.
        stripe.closings += 1;
        stripe.closed -= 1;
    }

    fn stripe(&self, key: &[u8]) -> &Mutex<Stripe> {
        &self.stripes[crc32fast::hash(key) as usize % STRIPES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_read_before_a_write_never_gets_in_after_it() {
        let cache = EntryCache::new(1 << 20);
        let Err(begun) = cache.get(b"k") else { panic!("nothing was offered yet") };
        cache.close(b"k");
        cache.offer(Bytes::from_static(b"k"), &Bytes::from_static(b"old"), begun);
        let Err(begun) = cache.get(b"k") else { panic!("the old entry got in before the commit") };
        cache.offer(Bytes::from_static(b"k"), &Bytes::from_static(b"old"), begun);
        assert!(cache.get(b"k").is_err(), "an entry read during the commit got in");
        cache.open(b"k");
        cache.offer(Bytes::from_static(b"k"), &Bytes::from_static(b"old"), begun);
        let Err(begun) = cache.get(b"k") else { panic!("the old entry got in after the commit") };
        cache.offer(Bytes::from_static(b"k"), &Bytes::from_static(b"new"), begun);
        assert!(cache.get(b"k").is_ok_and(|entry| entry == "new"));
        cache.close(b"k");
        assert!(cache.get(b"k").is_err());
    }

    #[test]
    fn it_stays_within_its_bytes() {
        let cache = EntryCache::new(64 * 1024);
        for number in 0..1000_u32 {
            let key = Bytes::copy_from_slice(&number.to_be_bytes());
            let Err(begun) = cache.get(&key) else { panic!("nothing was offered yet") };
            cache.offer(key, &Bytes::from(vec![7; 1000]), begun);
        }
        assert!(cache.entries.weight() <= 64 * 1024);
    }
}
