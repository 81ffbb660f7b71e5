//! How many copies of a type's data there are: decided when it is created, by its n_val. Later n_vals, the type's or a
//! bucket's own, are only what replica counts are counted of. [hole 26]

use larder_model::props::display::List;
use larder_model::props::{Invalid, Overrides, Reason, Refused, TypeRecord, Value};
use larder_store::Partition;

use crate::Gateway;

impl Gateway {
    /// Refuses a new type that asks for more copies than there are machines. One that does not say how many takes as many as
    /// there are, as `default` does.
    pub(super) fn check_copies(&self, record: &TypeRecord) -> Result<(), Refused> {
        let limits = self.ports.store.limits();
        let asked = record.overrides.get("n_val").is_some() && limits.replicated;
        let n_val = TypeRecord::effective(Some(record), &Overrides::EMPTY).n_val;
        if !asked || n_val <= limits.nodes {
            return Ok(());
        }
        Err(vec![Invalid { prop: "n_val".into(), reason: Reason::NValAboveNodes(limits.nodes) }].into())
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
