//! Reads an object with one value at once: no wait, no task, no copy of the value. Everything else takes [`Kv::get`].

use bytes::Bytes;
use larder_rows::content::KvBody;
use larder_store::Partition;

use super::KvGet;
use crate::Kv;
use crate::rules::causality::{Context, LoneVersion, Sibling};

/// An object with one live value, which is in its row. Its parts share the memory of the engine.
#[derive(Debug)]
pub struct LoneObject {
    /// The value.
    pub sibling: Sibling,
    /// Its bytes, empty or not.
    pub value: Bytes,
    /// As in [`crate::rules::causality::KeyVersions`].
    pub context: Context,
    /// The context to send back with the next write.
    pub encoded_context: Bytes,
}

impl Kv {
    /// Reads an object at once, if the engine reads on the caller's thread and the object is one live value in a row of at most
    /// `row_max` bytes. `None` says nothing, and counts no request: the caller then uses [`Self::get`], which answers the same
    /// for such an object.
    ///
    /// The read is counted as one of [`Self::get`], but not as active: it ends before anyone can look.
    #[must_use]
    pub fn try_get(&self, request: &KvGet, row_max: usize) -> Option<LoneObject> {
        // A read that does not wait takes no permit; where none is left the other way refuses the request.
        if self.core.is_full() {
            return None;
        }
        let begun = self.core.monotonic();
        let props = self.catalogue.peek(begun)?.effective(&request.address.bucket)?;
        // A compare-and-set head has its own table, and rules that depend on the engine.
        if props.consistent || self.read_counts(&props, &request.quorums).is_err() {
            return None;
        }
        let partition = Partition::object(&request.address, false, props.copies);
        let row = self.core.ports.store.try_read_lone_row(&partition).filter(|row| row.value.len() <= row_max)?;
        let LoneVersion { sibling, context } = LoneVersion::from_row(row).ok()??;
        // The bytes of a blob are read with a wait.
        let KvBody::Inline(value) = &sibling.content.body else { return None };
        let value = value.clone();
        // Race: through a slow clock a write based on this row would be older than it [invariant 5].
        self.issuer.clock.observe(context.latest());
        let encoded_context = context.encode(&request.address);
        self.core.metrics.record_lone_get(begun, value.len() as u64, self.core.monotonic());
        Some(LoneObject { sibling, value, context, encoded_context })
    }
}
