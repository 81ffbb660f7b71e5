//! Access of export and import: the gateway's stores, and moving its clock past imported rows.

use std::sync::Arc;

use larder_rows::Timestamp;
use larder_store::{Blobs, Store};

use crate::{Core, Result};

impl Core {
    /// The stores of rows and large bodies. Writes to them bypass every guarantee of the gateway.
    pub fn stores(&self) -> (Arc<dyn Store>, Arc<dyn Blobs>) {
        (Arc::clone(&self.core.ports.store), Arc::clone(&self.core.ports.blobs))
    }

    /// Adopts rows that an import wrote directly: the clock moves past their greatest stamp, so that later writes are newer,
    /// and the catalogue is read again.
    ///
    /// # Errors
    /// The store's.
    pub async fn adopt_imported_rows(&self, greatest: Timestamp) -> Result<()> {
        self.issuer.clock.observe(greatest);
        // Crash: the next run of a single gateway must also start above the imported rows.
        self.issuer.store_mark().await?;
        self.catalogue.refresh().await
    }
}
