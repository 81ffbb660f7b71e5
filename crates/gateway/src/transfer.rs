//! What export and import need of a gateway: its store, and that it begins behind what came.

use std::sync::Arc;

use larder_model::rows::Stamp;
use larder_store::{Blobs, Store};

use crate::{Gateway, Result};

impl Gateway {
    /// Where its rows and its large bodies are. Who writes there goes around everything a gateway promises.
    pub fn stores(&self) -> (Arc<dyn Store>, Arc<dyn Blobs>) {
        (Arc::clone(&self.ports.store), Arc::clone(&self.ports.blobs))
    }

    /// Takes note of rows that were written around it: its clock passes the greatest stamp among them, so that what is written
    /// from now on is newer, and the catalogue is read.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn adopt(&self, greatest: Stamp) -> Result<()> {
        self.clock.pass(greatest);
        self.store_mark().await?;
        self.refresh().await
    }
}
