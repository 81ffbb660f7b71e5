//! The life of a bucket type: created, propagated, activated, updated.
//!
//! A type's data has as many copies as the n_val that it was created with. Data never moves, so a later n_val, of the type or
//! of a bucket, changes quorum arithmetic only [invariant 26].

use std::time::Duration;

use bytes::Bytes;
use larder_store::{CallOptions, ConsistencyLevel, Partition, ReadQuery};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::type_state_error::TypeStateError;
use super::{Catalogue, CatalogueEdit, TypeStage, TypeStatus, Types};
use crate::metrics::KvOp;
use crate::node_context::internal_options;
use crate::rules::catalogue_row::CatalogueKey;
use crate::rules::props::display::{self, PropList};
use crate::rules::props::types::DEFAULT_TYPE;
use crate::rules::props::{
    InvalidProp, InvalidReason, Overrides, PropsError, TypeRecord, TypeRefusal, TypeState, Value as PropValue,
};
use crate::{Error, Result};

/// How long a creation waits for the other gateways: enough for a live one, short for one that is stopped.
const CREATION_PROPAGATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Time of an engine to create the tables of a placement: the nodes of a cluster must agree on each.
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(90);

impl Types {
    /// Creates a type, or replaces one that is not active yet. It waits up to two seconds until the heartbeats of all running
    /// gateways show the type, so that create and activate work in one script.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn create(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            check_name(name)?;
            self.check_schemas(&String::from_utf8_lossy(name), props).await?;
            self.check_webhooks(props)?;
            let change = self.catalogue.change::<Error>(|catalogue| {
                let current = catalogue.types().get(name).map(|catalogue_type| catalogue_type.record.as_ref());
                let record = TypeRecord::create(name, current, &self.context.config.node, props)?;
                self.check_copies(&record)?;
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
            });
            // Bound: a stopped gateway fails no creation, since the activation checks again.
            self.members.is_propagated_within(change.await?, CREATION_PROPAGATION_TIMEOUT).await.map(drop)
        };
        self.context.admit_and_measure(KvOp::Types, work).await
    }

    /// Activates a type that every running node has; one that is active stays so.
    ///
    /// # Errors
    /// [`Error::Type`] when there is no such type or a running node does not have it; the store's.
    pub async fn activate(&self, name: &Bytes) -> Result<()> {
        if name == DEFAULT_TYPE {
            return Ok(());
        }
        let work = async {
            if self.status(name).await?.stage == TypeStage::Created {
                return Err(TypeStateError::NotReady.into());
            }
            // Before the activation: no request of an active type may wait for its tables.
            self.create_placement(name).await?;
            self.change(|catalogue| {
                let catalogue_type = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
                // An active type stays as it is: every gateway would read the catalogue again for nothing.
                if catalogue_type.record.state == TypeState::Active {
                    return Ok(CatalogueEdit::Nothing);
                }
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), catalogue_type.record.activate().to_json()))
            })
            .await
        };
        self.context.admit_and_measure(KvOp::Types, work).await
    }

    /// Changes properties of an active type. After the answer, every running node serves its buckets with them.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn update(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            self.check_schemas(&String::from_utf8_lossy(name), props).await?;
            self.check_webhooks(props)?;
            self.change(|catalogue| {
                let current = catalogue.types().get(name).map(|catalogue_type| catalogue_type.record.as_ref());
                let record = TypeRecord::update(name, current, props)?;
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
            })
            .await
        };
        self.context.admit_and_measure(KvOp::Types, work).await
    }

    /// Changes the catalogue, and waits until every running node serves from the change.
    pub(super) async fn change(&self, edit: impl Fn(&Catalogue) -> Result<CatalogueEdit>) -> Result<()> {
        let number = self.catalogue.change(edit).await?;
        self.members.await_propagation(number).await
    }

    /// Stage and properties of a type.
    ///
    /// # Errors
    /// [`Error::Type`] when there is no such type.
    pub async fn status(&self, name: &Bytes) -> Result<TypeStatus> {
        if name == DEFAULT_TYPE {
            let mut props = display::type_props(None);
            self.show_copies(None, &mut props);
            return Ok(TypeStatus { stage: TypeStage::Active, props });
        }
        let catalogue = self.catalogue.refreshed().await?;
        let catalogue_type = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
        let mut props = display::type_props(Some(&catalogue_type.record));
        self.show_copies(Some(&catalogue_type.record), &mut props);
        let stage = match catalogue_type.record.state {
            TypeState::Active => TypeStage::Active,
            TypeState::Created if self.members.is_propagated(catalogue_type.number).await? => TypeStage::Ready,
            TypeState::Created => TypeStage::Created,
        };
        Ok(TypeStatus { stage, props })
    }

    /// Every type and whether it is active: `default` first, then by name.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<(Bytes, bool)>> {
        let catalogue = self.catalogue.refreshed().await?;
        let default = (Bytes::from_static(DEFAULT_TYPE), true);
        let types = catalogue
            .types()
            .iter()
            .map(|(name, catalogue_type)| (name.clone(), catalogue_type.record.state == TypeState::Active));
        Ok(std::iter::once(default).chain(types).collect())
    }

    /// Refuses a new type whose n_val exceeds the number of machines. A type without n_val gets as many copies as there are
    /// machines, like `default`.
    fn check_copies(&self, record: &TypeRecord) -> std::result::Result<(), PropsError> {
        let limits = self.context.ports.store.limits();
        let asked = record.overrides.get("n_val").is_some() && limits.replicated;
        let n_val = TypeRecord::effective(Some(record), &Overrides::EMPTY).n_val;
        if !asked || n_val <= limits.nodes {
            return Ok(());
        }
        Err(vec![InvalidProp { prop: "n_val".into(), reason: InvalidReason::NValAboveNodes(limits.nodes) }].into())
    }

    /// Makes the engine create the tables of a type's copies, so that no request waits for it.
    async fn create_placement(&self, name: &Bytes) -> Result<()> {
        let catalogue = self.catalogue.current();
        let catalogue_type = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
        // The first read of a partition creates its tables.
        let buckets = Partition::buckets(name, catalogue_type.record.copies);
        let options =
            CallOptions { deadline: Instant::now() + PLACEMENT_TIMEOUT, ..internal_options(ConsistencyLevel::Quorum) };
        self.context.ports.store.read(&buckets, &ReadQuery::all(1), &options).await?;
        Ok(())
    }

    /// Adds a line to the `status` of a type whose copies differ from its n_val.
    fn show_copies(&self, record: Option<&TypeRecord>, props: &mut PropList) {
        let limits = self.context.ports.store.limits();
        let placed = record.map_or(Partition::DEFAULT_COPIES, |record| record.copies);
        let copies = u32::from(placed).min(limits.nodes);
        if limits.replicated && copies != TypeRecord::effective(record, &Overrides::EMPTY).n_val {
            props.push(("copies", PropValue::Int(copies.into())));
        }
    }
}

fn check_name(name: &Bytes) -> Result<()> {
    if name == DEFAULT_TYPE {
        return Err(crate::rules::props::PropsError::Type(TypeRefusal::DefaultType).into());
    }
    larder_rows::address::BucketAddress::new(name.clone(), Bytes::from_static(b"b"))?;
    Ok(())
}
