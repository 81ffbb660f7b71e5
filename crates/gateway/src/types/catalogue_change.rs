//! A change of the catalogue: a compare-and-set on its number.

use bytes::Bytes;
use larder_model::Timestamp;
use larder_model::rows::{CatalogueRow, Change, Row};
use larder_store::{CallOptions, CasResult, ConsistencyLevel, Durability, Partition};
use tokio::time::Instant;

use super::{Catalogue, CatalogueCopy, CatalogueEdit};
use crate::Error;
use crate::gateway_core::internal_options;

const ATTEMPTS_MAX: usize = 200;
const FORMAT: &[u8] = b"\x01";

impl CatalogueCopy {
    /// Changes one row of the catalogue by compare-and-set; answers the number of the catalogue with the change.
    pub(crate) async fn change<E: From<Error>>(
        &self,
        edit: impl Fn(&Catalogue) -> std::result::Result<CatalogueEdit, E>,
    ) -> std::result::Result<Timestamp, E> {
        let deadline = Instant::now() + self.core.config.timeout;
        let partition = Partition::catalogue();
        for conflicts in 0..ATTEMPTS_MAX {
            let writer = self.core.writer_queues.wait_for_turn(&partition, deadline).await?;
            self.refresh().await?;
            let catalogue = self.current();
            let number = self.core.now().max(catalogue.number() + 2);
            // The edit is decided on this state: the compare-and-set below fails if another gateway changed it in between.
            let edit = edit(&catalogue)?;
            let change = match &edit {
                CatalogueEdit::Nothing => return Ok(catalogue.number()),
                CatalogueEdit::Remove(key) => Change::Remove { name: key.encode(), stamp: number },
                CatalogueEdit::Write(key, json) => {
                    let value = CatalogueRow::encode(json);
                    Change::Put(Row { name: key.encode(), value, stamp: number, expires: None })
                }
            };
            let head = Row { name: Bytes::new(), value: Bytes::from_static(FORMAT), stamp: number, expires: None };
            let expected = Some(catalogue.number()).filter(|&number| number != Timestamp::ZERO);
            let options = CallOptions { durability: Durability::Disk, ..internal_options(ConsistencyLevel::Quorum) };
            let swapped =
                self.core.ports.store.apply_if(&partition, expected, head.into(), vec![change], &options).await;
            match swapped.map_err(Error::from)? {
                CasResult::Applied => {
                    // Installed before the answer, so that the next request through this gateway sees the change.
                    self.install_change(&catalogue, number, &edit).await?;
                    return Ok(number);
                }
                CasResult::Conflict(_) => drop(writer),
            }
            self.core.writer_queues.back_off(conflicts, deadline).await?;
        }
        Err(Error::Overloaded { retry_after: 1 }.into())
    }
}
