//! Data types as key-value requests see them: an object with Riak's content type and opaque bytes.

use bytes::Bytes;
use larder_core::Result;
use larder_core::body::GetBody;
use larder_rows::address::Address;
use larder_rows::content::{KvBody, KvContent};
use larder_rows::{ActorId, Timestamp, hash};
use larder_store::Partition;

use super::may_hold_counter;
use super::reader::read_head;
use crate::request_plan::{ReplicaPlan, RequestPlan};
use crate::rules::causality::{Context, Dot, DotFlags, KeyVersions, Sibling, Slot};
use crate::rules::datatypes::{Datatype, DatatypeContext, DatatypeHead};
use crate::{FetchedObject, Kv, KvGet};

impl Kv {
    /// The data type at a key without an object, as an object; `None` if there is none. Its bytes and its tag change with every
    /// update and mean nothing else.
    pub(crate) async fn datatype_as_object(
        &self,
        request: &KvGet,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<FetchedObject>> {
        let address = &request.address;
        let Some(head) = self.datatype_head(address, plan, replicas).await? else { return Ok(None) };
        let token = DatatypeContext::new(head.clocks.clone()).encode(address);
        Ok(Some(FetchedObject {
            versions: versions_of(plan.props.datatype, &head, token.clone()),
            bodies: if request.bodies { vec![GetBody::Bytes(token.clone())] } else { Vec::new() },
            context: Some(token),
            downgraded: false,
        }))
    }

    /// The legacy counter that a read shows where the object has no value, as versions of the object: conditions of a write are
    /// checked against these. A counter is made or updated beside the check, as it is beside an object.
    pub(crate) async fn counter_shown_for(
        &self,
        object: &KeyVersions,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<KeyVersions>> {
        if !object.siblings.is_empty() {
            return Ok(None);
        }
        let head = self.datatype_head(address, plan, replicas).await?;
        Ok(head.map(|head| versions_of(plan.props.datatype, &head, Bytes::new())))
    }

    /// The head of the data type that may stand at a key without an object; `None` if there is none.
    pub(super) async fn datatype_head(
        &self,
        address: &Address,
        plan: &RequestPlan,
        replicas: ReplicaPlan,
    ) -> Result<Option<DatatypeHead>> {
        let is_possible = plan.props.datatype.is_some() || may_hold_counter(&address.bucket, &plan.props);
        if !is_possible || self.check_engine_has_datatypes().is_err() {
            return Ok(None);
        }
        let partition = Partition::datatype(address, plan.props.copies);
        let head = read_head(&self.core, &partition, &replicas.options).await?;
        Ok(head.exists().then_some(head))
    }
}

/// The versions of a data type as an object: one value, named by its clocks.
pub(super) fn versions_of(datatype: Option<Datatype>, head: &DatatypeHead, body: Bytes) -> KeyVersions {
    let context = object_context(&DatatypeContext::new(head.clocks.clone()));
    // Without a data type the bucket is of the type `default`, and the value a counter of Riak 1.4.
    let datatype = datatype.unwrap_or(Datatype::Counter);
    let content = KvContent {
        content_type: Some(format!("application/riak_{}", datatype.name()).into()),
        body: KvBody::Inline(body),
        ..KvContent::default()
    };
    let siblings = context.dots.iter().map(|dot| Sibling::of_write(*dot, content.clone())).collect();
    KeyVersions { siblings, context, deleted: false }
}

/// The context of a data type as one of an object that consists of one write, so that conditions can compare the two.
pub(crate) fn object_context(context: &DatatypeContext) -> Context {
    // All clocks name the write: concurrent updates through two gateways may have stamps in any order.
    let clocks: Vec<u8> = context
        .clocks
        .iter()
        .flat_map(|(actor, clock)| [actor.0.to_be_bytes(), clock.0.to_be_bytes()])
        .flatten()
        .collect();
    let slot = Slot { actor: ActorId(hash::id64(&[&clocks])), birth: Timestamp::ZERO };
    let dot = Dot { slot, clock: context.latest(), flags: DotFlags::default() };
    Context { dots: vec![dot], ..Context::default() }
}
