//! Leases on blobs that no row names yet: a sweeper must not remove them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use larder_model::content::BlobId;

/// Counts the holders of each blob, in memory: after a restart no writer is left.
#[derive(Debug, Clone, Default)]
pub struct BlobLeases {
    held: Arc<Mutex<HashMap<BlobId, usize>>>,
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
        *self.held.lock().entry(id).or_default() += 1;
        BlobLease { leases: self.clone(), id }
    }

    /// Whether this blob has a lease. Ask after listing the blob: a writer drops its lease after it wrote the row. So
    /// `false` then means that the row exists, or never will.
    #[must_use]
    pub fn is_leased(&self, id: &BlobId) -> bool {
        self.held.lock().contains_key(id)
    }
}

impl Drop for BlobLease {
    fn drop(&mut self) {
        let mut held = self.leases.held.lock();
        if let Some(count) = held.get_mut(&self.id) {
            // The blob stays leased until its last holder drops.
            *count -= 1;
            if *count == 0 {
                held.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_held_until_its_last_lease_is_dropped() {
        let leases = BlobLeases::default();
        let (one, other) = (BlobId([1; 24]), BlobId([2; 24]));
        let (first, second) = (leases.acquire(one), leases.clone().acquire(one));
        assert!(leases.is_leased(&one) && !leases.is_leased(&other));
        drop(first);
        assert!(leases.is_leased(&one));
        drop(second);
        assert!(!leases.is_leased(&one) && leases.held.lock().is_empty());
    }
}
