//! The life of a bucket type: created, propagated, activated, updated.

use std::time::Duration;

use bytes::Bytes;
use larder_model::props::types::DEFAULT_TYPE;
use larder_model::props::{TypeRecord, TypeRefusal, TypeState, display};
use larder_model::rows::CatalogueKey;
use serde_json::{Map, Value};

use super::{Catalogue, CatalogueEdit, TypeStage, TypeStateError, TypeStatus, Types};
use crate::metrics::KvOp;
use crate::{Error, Result};

/// How long a creation waits for the other gateways: enough for a live one, short for one that is stopped.
const CREATION_PROPAGATION_TIMEOUT: Duration = Duration::from_secs(2);

impl Types {
    /// Creates a type, or replaces one that is not active yet. It waits up to two seconds until the heartbeats of all running
    /// gateways show the type, so that create and activate work in one script.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn create(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            check_name(name)?;
            let change = self.catalogue.change::<Error>(|catalogue| {
                let current = catalogue.types().get(name).map(|found| found.record.as_ref());
                let record = TypeRecord::create(name, current, &self.core.config.node, props)?;
                self.check_copies(&record)?;
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
            });
            self.members.is_propagated_within(change.await?, CREATION_PROPAGATION_TIMEOUT).await.map(drop)
        };
        self.core.measure(KvOp::Types, work).await
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
            self.create_placement(name).await?;
            self.change(|catalogue| {
                let found = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
                if found.record.state == TypeState::Active {
                    return Ok(CatalogueEdit::Nothing);
                }
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), found.record.activate().to_json()))
            })
            .await
        };
        self.core.measure(KvOp::Types, work).await
    }

    /// Changes properties of an active type. After the answer, every running node serves its buckets with them.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn update(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            self.change(|catalogue| {
                let current = catalogue.types().get(name).map(|found| found.record.as_ref());
                let record = TypeRecord::update(name, current, props)?;
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
            })
            .await
        };
        self.core.measure(KvOp::Types, work).await
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
        self.catalogue.refresh().await?;
        let catalogue = self.catalogue.current();
        let found = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
        let mut props = display::type_props(Some(&found.record));
        self.show_copies(Some(&found.record), &mut props);
        let stage = match found.record.state {
            TypeState::Active => TypeStage::Active,
            TypeState::Created if self.members.is_propagated(found.number).await? => TypeStage::Ready,
            TypeState::Created => TypeStage::Created,
        };
        Ok(TypeStatus { stage, props })
    }

    /// Every type and whether it is active: `default` first, then by name.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<(Bytes, bool)>> {
        self.catalogue.refresh().await?;
        let catalogue = self.catalogue.current();
        let default = (Bytes::from_static(DEFAULT_TYPE), true);
        let types = catalogue.types().iter().map(|(name, one)| (name.clone(), one.record.state == TypeState::Active));
        Ok(std::iter::once(default).chain(types).collect())
    }
}

fn check_name(name: &Bytes) -> Result<()> {
    if name == DEFAULT_TYPE {
        return Err(larder_model::props::PropsError::Type(TypeRefusal::DefaultType).into());
    }
    larder_model::address::BucketAddress::new(name.clone(), Bytes::from_static(b"b"))?;
    Ok(())
}
