//! How many copies of a type's data there are: decided when it is created, by its n_val. Later n_vals, the type's or a
//! bucket's own, are only what replica counts are counted of. [hole 26]

use std::time::Duration;

use bytes::Bytes;
use larder_model::props::display::List;
use larder_model::props::{Invalid, Overrides, Reason, Refused, TypeRecord, Value};
use larder_store::{Level, Options, Partition, ReadQuery};
use tokio::time::Instant;

use super::Refusal;
use crate::{Gateway, Result};

/// How long an engine may take to make a place: the nodes of a cluster have to agree on every table.
const PLACE_WITHIN: Duration = Duration::from_secs(90);

impl Gateway {
    /// Refuses a new type that asks for more copies than there are machines. One that does not say how many takes as many as
    /// there are, as `default` does.
    pub(super) fn check_copies(&self, record: &TypeRecord) -> std::result::Result<(), Refused> {
        let limits = self.ports.store.limits();
        let asked = record.overrides.get("n_val").is_some() && limits.replicated;
        let n_val = TypeRecord::effective(Some(record), &Overrides::EMPTY).n_val;
        if !asked || n_val <= limits.nodes {
            return Ok(());
        }
        Err(vec![Invalid { prop: "n_val".into(), reason: Reason::NValAboveNodes(limits.nodes) }].into())
    }

    /// Has the engine make the place of a type's copies, so that no request has to wait for it.
    pub(super) async fn make_place(&self, name: &Bytes) -> Result<()> {
        let catalogue = self.catalogue.load_full();
        let found = catalogue.types().get(name).ok_or(Refusal::Unknown)?;
        // An engine makes it for the first who asks for anything there.
        let buckets = Partition::buckets(name, found.record.copies);
        let options = Options { deadline: Instant::now() + PLACE_WITHIN, ..self.own(Level::Quorum) };
        self.ports.store.read(&buckets, &ReadQuery::all(1), &options).await?;
        Ok(())
    }

    /// Adds a line to what `status` shows of a type, where copies are not what n_val says.
    pub(super) fn show_copies(&self, record: Option<&TypeRecord>, props: &mut List) {
        let limits = self.ports.store.limits();
        let placed = record.map_or(Partition::N_VAL, |record| record.copies);
        let copies = u32::from(placed).min(limits.nodes);
        if limits.replicated && copies != TypeRecord::effective(record, &Overrides::EMPTY).n_val {
            props.push(("copies", Value::Int(copies.into())));
        }
    }
}
