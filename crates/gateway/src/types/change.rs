//! Changes of the catalogue: a compare-and-set on its number, then a wait until all members have it.

use std::time::Duration;

use bytes::Bytes;
use larder_model::props::types::DEFAULT_TYPE;
use larder_model::props::{TypeRecord, TypeRefusal, TypeState, display};
use larder_model::rows::{CatalogueKey, CatalogueRow, Change, Row, Stamp};
use larder_store::{CallOptions, CasResult, ConsistencyLevel, Durability, Partition};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{Catalogue, CatalogueEdit, TypeStage, TypeStateError, TypeStatus};
use crate::metrics::KvOp;
use crate::{Error, Gateway, Result};

const ATTEMPTS_MAX: usize = 200;
const PROPAGATION_TIMEOUT: Duration = Duration::from_secs(15);
const PROPAGATION_POLL: Duration = Duration::from_millis(50);
/// How long a creation waits for the other gateways: enough for a live one, short for one that is stopped.
const CREATION_PROPAGATION_TIMEOUT: Duration = Duration::from_secs(2);
const FORMAT: &[u8] = b"\x01";

impl Gateway {
    /// Creates a type, or replaces one that is not active yet. It waits up to two seconds until the heartbeats of all running
    /// gateways show the type, so that create and activate work in one script.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn create_type(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            check_name(name)?;
            let change = self.change_catalogue(|catalogue| {
                let current = catalogue.types().get(name).map(|found| found.record.as_ref());
                let record = TypeRecord::create(name, current, &self.config.node, props)?;
                self.check_copies(&record)?;
                Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
            });
            self.is_propagated_within(change.await?, CREATION_PROPAGATION_TIMEOUT).await.map(drop)
        };
        self.measure(KvOp::Types, work).await
    }

    /// Activates a type that every running node has; one that is active stays so.
    ///
    /// # Errors
    /// [`Error::Type`] when there is no such type or a running node does not have it; the store's.
    pub async fn activate_type(&self, name: &Bytes) -> Result<()> {
        if name == DEFAULT_TYPE {
            return Ok(());
        }
        let work = async {
            if self.type_status(name).await?.stage == TypeStage::Created {
                return Err(TypeStateError::NotReady.into());
            }
            self.create_placement(name).await?;
            let number = self
                .change_catalogue(|catalogue| {
                    let found = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
                    if found.record.state == TypeState::Active {
                        return Ok(CatalogueEdit::Nothing);
                    }
                    Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), found.record.activate().to_json()))
                })
                .await?;
            self.await_propagation(number).await
        };
        self.measure(KvOp::Types, work).await
    }

    /// Changes properties of an active type. After the answer, every running node serves its buckets with them.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn update_type(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            let number = self
                .change_catalogue(|catalogue| {
                    let current = catalogue.types().get(name).map(|found| found.record.as_ref());
                    let record = TypeRecord::update(name, current, props)?;
                    Ok(CatalogueEdit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
                })
                .await?;
            self.await_propagation(number).await
        };
        self.measure(KvOp::Types, work).await
    }

    /// Stage and properties of a type.
    ///
    /// # Errors
    /// [`Error::Type`] when there is no such type.
    pub async fn type_status(&self, name: &Bytes) -> Result<TypeStatus> {
        if name == DEFAULT_TYPE {
            let mut props = display::type_props(None);
            self.show_copies(None, &mut props);
            return Ok(TypeStatus { stage: TypeStage::Active, props });
        }
        self.refresh_catalogue().await?;
        let catalogue = self.catalogue.load_full();
        let found = catalogue.types().get(name).ok_or(TypeStateError::Unknown)?;
        let mut props = display::type_props(Some(&found.record));
        self.show_copies(Some(&found.record), &mut props);
        let stage = match found.record.state {
            TypeState::Active => TypeStage::Active,
            TypeState::Created if self.is_propagated(found.number).await? => TypeStage::Ready,
            TypeState::Created => TypeStage::Created,
        };
        Ok(TypeStatus { stage, props })
    }

    /// Every type and whether it is active: `default` first, then by name.
    ///
    /// # Errors
    /// The store's.
    pub async fn list_types(&self) -> Result<Vec<(Bytes, bool)>> {
        self.refresh_catalogue().await?;
        let catalogue = self.catalogue.load_full();
        let default = (Bytes::from_static(DEFAULT_TYPE), true);
        let types = catalogue.types().iter().map(|(name, one)| (name.clone(), one.record.state == TypeState::Active));
        Ok(std::iter::once(default).chain(types).collect())
    }

    /// As [`Self::change_catalogue_as`], with the gateway's own errors.
    pub(super) async fn change_catalogue(&self, edit: impl Fn(&Catalogue) -> Result<CatalogueEdit>) -> Result<Stamp> {
        self.change_catalogue_as(edit).await
    }

    /// Changes one row of the catalogue by compare-and-set; answers the number of the catalogue with the change.
    pub(crate) async fn change_catalogue_as<E: From<Error>>(
        &self,
        edit: impl Fn(&Catalogue) -> std::result::Result<CatalogueEdit, E>,
    ) -> std::result::Result<Stamp, E> {
        let deadline = Instant::now() + self.config.timeout;
        let partition = Partition::catalogue();
        for conflicts in 0..ATTEMPTS_MAX {
            let writer = self.wait_for_turn(&partition, deadline).await?;
            self.refresh_catalogue().await?;
            let catalogue = self.catalogue.load_full();
            let number = self.now().max(catalogue.number() + 2);
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
            let expected = Some(catalogue.number()).filter(|&number| number != 0);
            let options =
                CallOptions { durability: Durability::Disk, ..self.internal_options(ConsistencyLevel::Quorum) };
            let swapped = self.ports.store.apply_if(&partition, expected, head.into(), vec![change], &options).await;
            match swapped.map_err(Error::from)? {
                CasResult::Applied => {
                    // Installed before the answer, so that the next request through this gateway sees the change.
                    self.install_change(&catalogue, number, &edit).await?;
                    return Ok(number);
                }
                CasResult::Conflict(_) => drop(writer),
            }
            self.back_off(conflicts, deadline).await?;
        }
        Err(Error::Overloaded { retry_after: 1 }.into())
    }

    /// Waits until every running node serves from a catalogue of this number and no guarded write relies on an older one.
    pub(crate) async fn await_propagation(&self, number: Stamp) -> Result<()> {
        if self.is_propagated_within(number, PROPAGATION_TIMEOUT).await? { Ok(()) } else { Err(Error::TimedOut) }
    }

    /// As [`Self::await_propagation`], but gives up after `within`: `false`.
    async fn is_propagated_within(&self, number: Stamp, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        loop {
            // The last guarded write on an older catalogue may have ended since the last heartbeat: no wait for the next one.
            self.advertise_catalogue().await?;
            if self.is_propagated(number).await? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::time::sleep(PROPAGATION_POLL).await;
        }
    }

    async fn is_propagated(&self, number: Stamp) -> Result<bool> {
        Ok(self.members().await?.iter().all(|member| member.row.catalogue >= number))
    }
}

fn check_name(name: &Bytes) -> Result<()> {
    if name == DEFAULT_TYPE {
        return Err(larder_model::props::PropsError::Type(TypeRefusal::DefaultType).into());
    }
    larder_model::address::BucketAddress::new(name.clone(), Bytes::from_static(b"b"))?;
    Ok(())
}
