//! The body of a data type's key as an object: Riak's form of the whole value.

use bytes::Bytes;
use larder_core::Result;
use larder_rows::limits::DATATYPE_MAP_PAGE_ROWS;
use larder_store::{CallOptions, Range, ReadOrder, ReadQuery, Stopped};

use super::writers::DatatypeKey;
use crate::Kv;
use crate::rules::datatypes::{Datatype, DatatypeHead, DatatypeRowName, RiakForm};

/// Most bytes of the rows of a value that is read as an object.
const FORM_BYTES_MAX: usize = 64 << 20;

impl Kv {
    /// Reads the whole value below this head in Riak's form.
    ///
    /// # Errors
    /// The store's, and [`larder_core::Error::Datatype`] for a value that is too large.
    pub(super) async fn riak_body(
        &self,
        key: &DatatypeKey,
        datatype: Datatype,
        head: &DatatypeHead,
        options: &CallOptions,
    ) -> Result<Bytes> {
        let mut form = RiakForm::new(datatype, head, FORM_BYTES_MAX);
        let range = Range { from: Some(DatatypeRowName::DATA), to: None };
        let mut query = ReadQuery { range, limit: DATATYPE_MAP_PAGE_ROWS, order: ReadOrder::Forward };
        loop {
            let page = self.context.ports.store.read(&key.partition, &query, options).await?;
            // Reads from memory are never pending: without this a long one would keep its thread.
            tokio::task::consume_budget().await;
            let next = page.rows.last().map(|row| row.name.clone());
            page.rows.into_iter().try_for_each(|row| form.add(row))?;
            match (page.stopped, next) {
                (Stopped::Limit, Some(next)) => query.continue_after(&next),
                _ => return Ok(form.finish()),
            }
        }
    }
}
