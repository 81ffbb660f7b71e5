//! Blobs that no row names yet, and that no sweeper may take for waste.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use larder_model::content::BlobId;

/// Counts the holders of each blob. Kept in memory: after a restart nobody is writing.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    held: Arc<Mutex<HashMap<BlobId, usize>>>,
}

/// Keeps one blob out of listings until dropped.
#[derive(Debug)]
pub struct Lease {
    leases: Leases,
    id: BlobId,
}

impl Leases {
    /// Takes a lease; several may hold one blob.
    #[must_use]
    pub fn hold(&self, id: BlobId) -> Lease {
        *self.held.lock().entry(id).or_default() += 1;
        Lease { leases: self.clone(), id }
    }

    /// Whether anyone holds this blob. Ask after having seen the blob: then "no" means that its row is written, or never
    /// will be.
    #[must_use]
    pub fn holds(&self, id: &BlobId) -> bool {
        self.held.lock().contains_key(id)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.leases.held.lock();
        if let Some(count) = held.get_mut(&self.id) {
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
        let leases = Leases::default();
        let (one, other) = (BlobId([1; 24]), BlobId([2; 24]));
        let (first, second) = (leases.hold(one), leases.clone().hold(one));
        assert!(leases.holds(&one) && !leases.holds(&other));
        drop(first);
        assert!(leases.holds(&one));
        drop(second);
        assert!(!leases.holds(&one) && leases.held.lock().is_empty());
    }
}
