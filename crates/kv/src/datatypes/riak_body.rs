//! The body of a data type's key as an object: Riak's form of the whole value.

use bytes::Bytes;
use larder_core::node_context::yield_after;
use larder_core::{Error, Result};
use larder_rows::limits::DATATYPE_MAP_PAGE_ROWS;
use larder_store::{CallOptions, Range, ReadOrder, ReadQuery, Stopped};
use tokio::time::timeout_at;

use super::writers::DatatypeKey;
use crate::Kv;
use crate::rules::datatypes::{DatatypeError, DatatypeRowName, RiakForm};

/// Most bytes of the rows of a value that has this form: a move takes smaller ones only.
pub(super) const FORM_BYTES_MAX: usize = 4 << 20;

impl Kv {
    /// Reads the whole value of a key into this form of Riak; `None`: it is too large, or has none.
    ///
    /// # Errors
    /// The store's, and [`Error::TimedOut`].
    pub(super) async fn riak_body(
        &self,
        key: &DatatypeKey,
        mut form: RiakForm<'_>,
        options: &CallOptions,
    ) -> Result<Option<Bytes>> {
        let range = Range { from: Some(DatatypeRowName::DATA), to: None };
        let mut query = ReadQuery { range, limit: DATATYPE_MAP_PAGE_ROWS, order: ReadOrder::Forward };
        let mut place = None;
        loop {
            let page = self.context.ports.store.read(&key.partition, &query, options).await?;
            yield_after(page.stopped).await;
            let next = page.rows.last().map(|row| row.name.clone());
            match page.rows.into_iter().try_for_each(|row| form.add(row)) {
                Err(DatatypeError::ValueTooLarge { .. }) => return Ok(None),
                added => added?,
            }
            match (page.stopped, next) {
                (Stopped::Limit, Some(next)) => query.continue_after(&next),
                _ => return Ok(form.finish()),
            }
            if place.is_none() {
                // Attack: many reads of large values at once; nobody has drawn their memory yet.
                let free = timeout_at(options.deadline, self.riak_forms.acquire()).await;
                place = Some(free.map_err(|_| Error::TimedOut)?);
            }
        }
    }
}
