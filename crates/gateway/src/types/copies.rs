//! Number of copies of a type's data: the n_val that it was created with. Data never moves, so a later n_val, of the type or of
//! a bucket, changes quorum arithmetic only [invariant 26].

use std::time::Duration;

use bytes::Bytes;
use larder_model::props::display::PropList;
use larder_model::props::{InvalidProp, InvalidReason, Overrides, PropsError, TypeRecord, Value};
use larder_store::{CallOptions, ConsistencyLevel, Partition, ReadQuery};
use tokio::time::Instant;

use super::{TypeStateError, Types};
use crate::Result;
use crate::gateway_core::internal_options;

/// Time of an engine to create the tables of a placement: the nodes of a cluster must agree on each.
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(90);

impl Types {
    /// Refuses a new type whose n_val exceeds the number of machines. A type without n_val gets as many copies as there are
    /// machines, like `default`.
    pub(super) fn check_copies(&self, record: &TypeRecord) -> std::result::Result<(), PropsError> {
        let limits = self.core.ports.store.limits();
        let asked = record.overrides.get("n_val").is_some() && limits.replicated;
        let n_val = TypeRecord::effective(Some(record), &Overrides::EMPTY).n_val;
        if !asked || n_val <= limits.nodes {
            return Ok(());
        }
        Err(vec![InvalidProp { prop: "n_val".into(), reason: InvalidReason::NValAboveNodes(limits.nodes) }].into())
    }

    /// Makes the engine create the tables of a type's copies, so that no request waits for it.
    pub(super) async fn create_placement(&self, name: &Bytes) -> Result<()> {
        let catalogue = self.catalogue.current();
        let found = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
        // The first read of a partition creates its tables.
        let buckets = Partition::buckets(name, found.record.copies);
        let options =
            CallOptions { deadline: Instant::now() + PLACEMENT_TIMEOUT, ..internal_options(ConsistencyLevel::Quorum) };
        self.core.ports.store.read(&buckets, &ReadQuery::all(1), &options).await?;
        Ok(())
    }

    /// Adds a line to the `status` of a type whose copies differ from its n_val.
    pub(super) fn show_copies(&self, record: Option<&TypeRecord>, props: &mut PropList) {
        let limits = self.core.ports.store.limits();
        let placed = record.map_or(Partition::DEFAULT_COPIES, |record| record.copies);
        let copies = u32::from(placed).min(limits.nodes);
        if limits.replicated && copies != TypeRecord::effective(record, &Overrides::EMPTY).n_val {
            props.push(("copies", Value::Int(copies.into())));
        }
    }
}
