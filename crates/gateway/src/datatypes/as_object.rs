//! Data types as key-value reads show them: an object with Riak's content type and opaque bytes.

use larder_model::address::Address;
use larder_model::causality::{Dot, DotFlags, KeyVersions, Sibling, Slot};
use larder_model::content::{KvBody, KvContent};
use larder_model::datatypes::{Datatype, DatatypeContext};
use larder_store::Partition;

use super::may_hold_counter;
use super::reader::read_head;
use crate::Result;
use crate::body::GetBody;
use crate::kv::request_plan::{ReplicaPlan, RequestPlan};
use crate::kv::{FetchedObject, Kv, KvGet};

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
        let is_possible = plan.props.datatype.is_some() || may_hold_counter(&address.bucket, &plan.props);
        if !is_possible || self.check_engine_has_datatypes().is_err() {
            return Ok(None);
        }
        let datatype = plan.props.datatype.unwrap_or(Datatype::Counter);
        let partition = Partition::datatype(address, plan.props.copies);
        let head = read_head(&self.core, &partition, &replicas.options).await?;
        if !head.exists() {
            return Ok(None);
        }
        let context = DatatypeContext::of(head.clocks.clone());
        Ok(Some(as_object(datatype, &context, request.bodies, address)))
    }
}

fn as_object(datatype: Datatype, context: &DatatypeContext, bodies: bool, address: &Address) -> FetchedObject {
    let (token, clock) = (context.encode(address), context.latest());
    let newest = context.clocks.iter().max_by_key(|(_, clock)| **clock);
    let slot = Slot { actor: newest.map_or(larder_model::ActorId(0), |(actor, _)| *actor), birth: clock };
    let content = KvContent {
        content_type: Some(format!("application/riak_{}", datatype.name()).into()),
        body: KvBody::Inline(token.clone()),
        ..KvContent::default()
    };
    let sibling = Sibling::of_write(Dot { slot, clock, flags: DotFlags::default() }, content);
    FetchedObject {
        versions: KeyVersions { siblings: vec![sibling], ..KeyVersions::default() },
        bodies: if bodies { vec![GetBody::Bytes(token.clone())] } else { Vec::new() },
        context: Some(token),
        downgraded: false,
    }
}
