//! The guarded versions of the catalogue, which a heartbeat must not pass.

use larder_model::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Catalogue;

/// Guarded catalogue versions, each with its number of guards.
#[derive(Debug, Default)]
pub(crate) struct CatalogueGuards(Mutex<BTreeMap<Timestamp, usize>>);

impl CatalogueGuards {
    /// The oldest guarded version.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.0.lock().keys().next().copied()
    }

    /// Guards the version that `load` answers.
    pub(crate) fn take(&self, load: impl FnOnce() -> Arc<Catalogue>) -> Arc<Catalogue> {
        // Race: a heartbeat between the load and the count would advertise a newer version; it takes this lock too.
        let mut open = self.0.lock();
        let catalogue = load();
        *open.entry(catalogue.number()).or_default() += 1;
        catalogue
    }

    /// Releases one guard of this version.
    pub(crate) fn release(&self, number: Timestamp) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                open.remove(&number);
            }
        }
    }
}
