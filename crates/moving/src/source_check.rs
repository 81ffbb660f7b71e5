//! The first steps of a move: what the source is and has, and the bucket types and properties that it needs here.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::rules::props::display;
use larder_core::types::TypeStage;
use larder_rows::address::BucketAddress;
use serde_json::{Map, Value};

use crate::move_run::{MoveRun, MoveSource, MoveSteps, MoveStopped, SweepKind};
use crate::progress::{MovePhase, MoveVerification};
use crate::rules::MovedProps;
use crate::source::Source;

/// The type of buckets without one.
const DEFAULT_TYPE: &[u8] = b"default";

impl MoveSource for Source {
    fn requests(&self) -> u64 {
        self.requests()
    }
}

#[async_trait]
impl MoveSteps for MoveRun<Source> {
    /// The bucket types that move.
    type Scope = Vec<Bytes>;

    async fn check(&self) -> Result<Vec<Bytes>, MoveStopped> {
        self.check_source().await
    }

    async fn prepare(&self, types: &Vec<Bytes>) -> Result<(), MoveStopped> {
        self.make_types(types).await?;
        // Before the first key is listed: a change that comes during the listing is in the queue.
        self.look_for_queues(types, true, true).await
    }

    async fn follow_beside(self: Arc<Self>) {
        if self.is_back() {
            // What the Riak has in its queues now are its own changes, and those that it fetched here.
            let _open = self.open_back_queue();
            return std::future::pending().await;
        }
        self.follow_queues().await;
        std::future::pending().await
    }

    async fn await_pass(&self) {
        self.await_due_pass().await;
    }

    async fn pass(self: Arc<Self>, types: &Vec<Bytes>, kind: SweepKind) -> Result<MoveVerification, MoveStopped> {
        match self.phase() == MovePhase::Back {
            true => self.sweep_back(types, kind).await,
            false => self.sweep(types, kind).await,
        }
    }
}

impl MoveRun<Source> {
    /// Reaches every node, and looks at each type; returns the types that move.
    ///
    /// # Errors
    /// A node does not answer, or the source has not one of the types.
    async fn check_source(&self) -> Result<Vec<Bytes>, MoveStopped> {
        // One node that is down later does not hold up the move.
        self.source.ping(self.phase() == MovePhase::Check).await?;
        let mut moving = Vec::new();
        for bucket_type in &self.order.types {
            if self.moves(bucket_type).await?.is_some() {
                moving.push(bucket_type.clone());
            }
        }
        if self.is_back() {
            return Ok(moving);
        }
        let has_types = !matches!(self.phase(), MovePhase::Check | MovePhase::Types);
        self.look_for_queues(&moving, has_types, false).await?;
        Ok(moving)
    }

    /// Creates and activates the types that are missing.
    ///
    /// # Errors
    /// The source or the store does not answer, or the properties of a type are refused here.
    async fn make_types(&self, moving: &[Bytes]) -> Result<(), MoveStopped> {
        for bucket_type in moving.iter().filter(|name| **name != DEFAULT_TYPE) {
            let Some(props) = self.moves(bucket_type).await? else { continue };
            self.make_type(bucket_type, &props).await?;
        }
        Ok(())
    }

    async fn make_type(&self, bucket_type: &Bytes, props: &MovedProps) -> Result<(), MoveStopped> {
        let (types, name) = (self.gateway.types(), bucket_type.escape_ascii());
        let stopped = |error| MoveStopped(format!("type {name}: {error}"));
        match types.status(bucket_type).await {
            Ok(status) if status.stage == TypeStage::Active => {
                let differing = differing(&props.props, &display::to_json(&status.props));
                if differing.contains_key("datatype") {
                    return Err(MoveStopped(format!("type {name} exists here with another datatype")));
                }
                if !differing.is_empty() {
                    let names: Vec<_> = differing.keys().map(String::as_str).collect();
                    self.tell(format!("type {name} exists here with other properties: {}", names.join(", ")));
                }
                return Ok(());
            }
            Ok(_) => {}
            Err(larder_core::Error::Type(_)) => types.create(bucket_type, &props.props).await.map_err(stopped)?,
            Err(error) => return Err(stopped(error)),
        }
        types.activate(bucket_type).await.map_err(stopped)
    }

    /// Gives a bucket the properties that it has at the source where they differ.
    ///
    /// # Errors
    /// The source or the store does not answer. Properties that are refused here are told.
    pub(crate) async fn move_bucket_props(&self, bucket: &BucketAddress) -> Result<(), MoveStopped> {
        let Some(props) = self.source.bucket_props(bucket).await? else { return Ok(()) };
        props.notes.iter().for_each(|note| self.tell(format!("{bucket}: {note}")));
        let here = display::to_json(&self.gateway.types().bucket_props(bucket).await?);
        let own = differing(&props.props, &here);
        if own.is_empty() {
            return Ok(());
        }
        match self.gateway.types().set_bucket_props(bucket, &own).await {
            Err(larder_core::Error::Refused(refused)) => {
                self.tell(format!("{bucket}: its properties are not taken: {}", refused.console().join("; ")));
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// The properties of a type that moves; `None`: it does not, which is told.
    async fn moves(&self, bucket_type: &Bytes) -> Result<Option<MovedProps>, MoveStopped> {
        let name = bucket_type.escape_ascii();
        let Some(props) = self.source.type_props(bucket_type).await? else {
            return Err(MoveStopped(format!("the source has no active type {name}")));
        };
        props.notes.iter().for_each(|note| self.tell(format!("type {name}: {note}")));
        if props.is_consistent() {
            self.tell(format!(
                "type {name} does not move: it is consistent; copy its keys while its writers are stopped"
            ));
            return Ok(None);
        }
        Ok(Some(props))
    }
}

/// The properties of the source that are other ones here.
fn differing(there: &Map<String, Value>, here: &Map<String, Value>) -> Map<String, Value> {
    let is_other = |(name, value): &(&String, &Value)| here.get(*name) != Some(*value);
    there.iter().filter(is_other).map(|(name, value)| (name.clone(), value.clone())).collect()
}
