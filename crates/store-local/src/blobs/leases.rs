//! Blobs that no row names yet, and that no sweeper may take for waste.

use std::collections::HashMap;
use std::sync::Arc;

use larder_model::content::BlobId;
use parking_lot::Mutex;

/// Counts the holders of each blob. Kept in memory: after a restart nobody is writing.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    held: Arc<Mutex<HashMap<BlobId, usize>>>,
}

/// Keeps one blob out of listings until dropped.
#[derive(Debug)]
pub(super) struct Lease {
    leases: Leases,
    id: BlobId,
}

impl Leases {
    /// Takes a lease; several may hold one blob.
    pub(super) fn hold(&self, id: BlobId) -> Lease {
        *self.held.lock().entry(id).or_default() += 1;
        Lease { leases: self.clone(), id }
    }

    /// Whether anyone holds this blob. Ask after having seen the blob: then "no" means that its row is written, or never
    /// will be.
    pub(super) fn holds(&self, id: &BlobId) -> bool {
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
