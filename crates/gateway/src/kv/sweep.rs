//! Removing blobs that no row names: leftovers of a crash, of a lost answer, of a blind overwrite.
//!
//! A blob being written, or whose row is not written yet, is leased and not listed. So a listed blob whose owner's partition
//! does not name it will never be named again.

use larder_model::content::{BlobId, Body};
use larder_model::rows::ObjectRow;
use larder_store::{BlobOwner, Level, Table};

use crate::metrics::Event;
use crate::{Error, Gateway, Result};

const PAGE: usize = 256;

impl Gateway {
    /// Looks at every blob once; answers how many were removed. Safe beside any traffic of this process.
    ///
    /// # Errors
    /// What the store answers; what was removed until then stays removed.
    pub async fn sweep_blobs(&self) -> Result<u64> {
        let mut swept = 0;
        let mut after = None;
        loop {
            let page = self.ports.blobs.list(after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(swept) };
            after = Some(*last);
            let ours = |owner: &BlobOwner| matches!(owner.partition.table, Table::Objects | Table::Consistent);
            for (id, owner) in page.iter().filter(|(_, owner)| ours(owner)) {
                if !self.is_named(*id, owner).await? {
                    self.ports.blobs.remove(*id).await?;
                    self.metrics.event(Event::BlobSwept);
                    swept += 1;
                }
            }
        }
    }

    async fn is_named(&self, id: BlobId, owner: &BlobOwner) -> Result<bool> {
        for row in self.read_rows(&owner.partition, &self.own(Level::Quorum)).await? {
            let row = ObjectRow::decode(row.value).map_err(|error| Error::Damaged(error.to_string()))?;
            if matches!(row.content.body, Body::Blob(blob) if blob.id == id) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
