//! Changes of the catalogue: a compare-and-set on its number, then waiting until it is seen.

use std::time::Duration;

use bytes::Bytes;
use larder_model::props::types::DEFAULT_TYPE;
use larder_model::props::{State, TypeRecord, Whole, display};
use larder_model::rows::{CatalogueKey, CatalogueRow, Change, Row, Stamp};
use larder_store::{Durability, Level, Options, Partition, Swap};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{Catalogue, Edit, Refusal, Stage, TypeStatus};
use crate::metrics::Op;
use crate::{Error, Gateway, Result, Rule};

const ATTEMPTS_MAX: usize = 200;
const SEEN_WITHIN: Duration = Duration::from_secs(15);
const SEEN_POLL: Duration = Duration::from_millis(50);
/// How long a creation waits for the other gateways: as long as a running one takes, no longer for one that is stopped.
const CREATED_WITHIN: Duration = Duration::from_secs(2);
const FORMAT: &[u8] = b"\x01";

impl Gateway {
    /// Creates a type, or replaces one that is not active yet. The heartbeats of all running gateways show the type before this
    /// answers, so that create and activate in one script work; one that does not is waited for two seconds only.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn create_type(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            check_name(name)?;
            let change = self.change(|catalogue| {
                let current = catalogue.types().get(name).map(|found| found.record.as_ref());
                let record = TypeRecord::create(name, current, &self.config.node, props)?;
                self.check_copies(&record)?;
                Ok(Edit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
            });
            self.is_seen_within(change.await?, CREATED_WITHIN).await.map(drop)
        };
        self.measured(Op::Types, work).await
    }

    /// Activates a type that every running node has; one that is active stays so.
    ///
    /// # Errors
    /// [`Error::Type`] when there is no such type or a running node does not have it; what the store answers.
    pub async fn activate_type(&self, name: &Bytes) -> Result<()> {
        if name == DEFAULT_TYPE {
            return Ok(());
        }
        let work = async {
            if self.type_status(name).await?.stage == Stage::Created {
                return Err(Refusal::NotReady.into());
            }
            self.make_place(name).await?;
            let number = self
                .change(|catalogue| {
                    let found = catalogue.types().get(name).ok_or(Refusal::Unknown)?;
                    if found.record.state == State::Active {
                        return Ok(Edit::Nothing);
                    }
                    Ok(Edit::Write(CatalogueKey::Type(name.clone()), found.record.activate().to_json()))
                })
                .await?;
            self.seen_by_all(number).await
        };
        self.measured(Op::Types, work).await
    }

    /// Changes properties of an active type; its buckets see it once this answers, on every running node.
    ///
    /// # Errors
    /// [`Error::Refused`] with each reason.
    pub async fn update_type(&self, name: &Bytes, props: &Map<String, Value>) -> Result<()> {
        let work = async {
            let number = self
                .change(|catalogue| {
                    let current = catalogue.types().get(name).map(|found| found.record.as_ref());
                    let record = TypeRecord::update(name, current, props)?;
                    Ok(Edit::Write(CatalogueKey::Type(name.clone()), record.to_json()))
                })
                .await?;
            self.seen_by_all(number).await
        };
        self.measured(Op::Types, work).await
    }

    /// How far a type has come, and its properties.
    ///
    /// # Errors
    /// [`Error::Type`] when there is no such type.
    pub async fn type_status(&self, name: &Bytes) -> Result<TypeStatus> {
        if name == DEFAULT_TYPE {
            let mut props = display::of_type(None);
            self.show_copies(None, &mut props);
            return Ok(TypeStatus { stage: Stage::Active, props });
        }
        self.refresh().await?;
        let catalogue = self.catalogue.load_full();
        let found = catalogue.types().get(name).ok_or(Refusal::Unknown)?;
        let mut props = display::of_type(Some(&found.record));
        self.show_copies(Some(&found.record), &mut props);
        let stage = match found.record.state {
            State::Active => Stage::Active,
            State::Created if self.is_seen_by_all(found.number).await? => Stage::Ready,
            State::Created => Stage::Created,
        };
        Ok(TypeStatus { stage, props })
    }

    /// Every type and whether it is active: `default` first, then by name.
    ///
    /// # Errors
    /// What the store answers.
    pub async fn list_types(&self) -> Result<Vec<(Bytes, bool)>> {
        self.refresh().await?;
        let catalogue = self.catalogue.load_full();
        let default = (Bytes::from_static(DEFAULT_TYPE), true);
        let types = catalogue.types().iter().map(|(name, one)| (name.clone(), one.record.state == State::Active));
        Ok(std::iter::once(default).chain(types).collect())
    }

    /// As [`Self::change_as`], refused with the gateway's own errors.
    pub(super) async fn change(&self, edit: impl Fn(&Catalogue) -> Result<Edit>) -> Result<Stamp> {
        self.change_as(edit).await
    }

    /// Changes one row of the catalogue by compare-and-set; answers the catalogue's number with the change in it.
    pub(crate) async fn change_as<E: From<Error>>(
        &self,
        edit: impl Fn(&Catalogue) -> std::result::Result<Edit, E>,
    ) -> std::result::Result<Stamp, E> {
        let deadline = Instant::now() + self.config.timeout;
        let partition = Partition::catalogue();
        for conflicts in 0..ATTEMPTS_MAX {
            let writer = self.line_up(&partition, deadline).await?;
            self.refresh().await?;
            let catalogue = self.catalogue.load_full();
            let number = self.now().max(catalogue.number() + 2);
            let edit = edit(&catalogue)?;
            let change = match &edit {
                Edit::Nothing => return Ok(catalogue.number()),
                Edit::Remove(key) => Change::Remove { name: key.encode(), stamp: number },
                Edit::Write(key, json) => {
                    let value = CatalogueRow::encode(json);
                    Change::Put(Row { name: key.encode(), value, stamp: number, expires: None })
                }
            };
            let head = Row { name: Bytes::new(), value: Bytes::from_static(FORMAT), stamp: number, expires: None };
            let expected = Some(catalogue.number()).filter(|&number| number != 0);
            let options = Options { durability: Durability::Disk, ..self.own(Level::Quorum) };
            let swapped = self.ports.store.apply_if(&partition, expected, head.into(), vec![change], &options).await;
            match swapped.map_err(Error::from)? {
                Swap::Applied => {
                    self.take_over(&catalogue, number, &edit).await?;
                    return Ok(number);
                }
                Swap::Conflict(_) => drop(writer),
            }
            self.give_way(conflicts, deadline).await?;
        }
        Err(Error::Overloaded { retry_after: 1 }.into())
    }

    /// Waits until every running node serves from a catalogue with this number, and no write relies on an older one.
    pub(crate) async fn seen_by_all(&self, number: Stamp) -> Result<()> {
        if self.is_seen_within(number, SEEN_WITHIN).await? { Ok(()) } else { Err(Error::TimedOut) }
    }

    /// The same, for some time.
    async fn is_seen_within(&self, number: Stamp, within: Duration) -> Result<bool> {
        let deadline = Instant::now() + within;
        loop {
            // Once the last write that relied on an older one has ended, there is no need to wait for the next heartbeat.
            self.tell().await?;
            if !self.rule(Rule::AwaitMembers) || self.is_seen_by_all(number).await? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::time::sleep(SEEN_POLL).await;
        }
    }

    async fn is_seen_by_all(&self, number: Stamp) -> Result<bool> {
        Ok(self.members().await?.iter().all(|member| member.row.catalogue >= number))
    }
}

fn check_name(name: &Bytes) -> Result<()> {
    if name == DEFAULT_TYPE {
        return Err(larder_model::props::Refused::Whole(Whole::DefaultType).into());
    }
    larder_model::address::BucketAddress::new(name.clone(), Bytes::from_static(b"b"))?;
    Ok(())
}
