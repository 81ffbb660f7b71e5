//! Leases on blobs that no row names yet: a sweeper must not remove them.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_rows::content::BlobId;
use parking_lot::Mutex;

/// The keys that are held, each with its number of holders.
#[derive(Debug)]
pub struct HolderCounts<K>(BTreeMap<K, usize>);

impl<K> Default for HolderCounts<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> HolderCounts<K> {
    /// Adds a holder.
    pub fn add(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Removes a holder; a key without holders is forgotten.
    pub fn remove(&mut self, key: &K) {
        if let Some(count) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }

    /// Whether the key has a holder.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// The least key that has a holder.
    #[must_use]
    pub fn first(&self) -> Option<&K> {
        self.0.keys().next()
    }
}

/// Counts the holders of each blob, in memory: after a restart no writer is left.
#[derive(Debug, Clone, Default)]
pub struct BlobLeases {
    held: Arc<Mutex<HolderCounts<BlobId>>>,
}

/// Marks one blob as leased until dropped.
#[derive(Debug)]
pub struct BlobLease {
    leases: BlobLeases,
    id: BlobId,
}

impl BlobLeases {
    /// Takes a lease; one blob may have several.
    #[must_use]
    pub fn acquire(&self, id: BlobId) -> BlobLease {
        self.held.lock().add(id);
        BlobLease { leases: self.clone(), id }
    }

    /// Whether this blob has a lease. Ask after listing the blob: a writer drops its lease after it wrote the row. So
    /// `false` then means that the row exists, or never will.
    #[must_use]
    pub fn is_leased(&self, id: &BlobId) -> bool {
        self.held.lock().contains(id)
    }
}

impl Drop for BlobLease {
    fn drop(&mut self) {
        // The blob stays leased until its last holder drops.
        self.leases.held.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_held_until_its_last_lease_is_dropped() {
        let leases = BlobLeases::default();
        let (blob, other) = (BlobId([1; 24]), BlobId([2; 24]));
        let (first, second) = (leases.acquire(blob), leases.clone().acquire(blob));
        assert!(leases.is_leased(&blob) && !leases.is_leased(&other));
        drop(first);
        assert!(leases.is_leased(&blob));
        drop(second);
        assert!(!leases.is_leased(&blob) && leases.held.lock().first().is_none());
    }
}
