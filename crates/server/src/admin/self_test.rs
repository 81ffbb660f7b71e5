//! `test`: writes, reads and deletes one object through the calls that clients use.

use bytes::Bytes;

use larder_admin_frame::AdminAnswer;
use larder_gateway::body::PutBody;
use larder_gateway::kv::{KvDelete, KvGet, KvPut, Quorums};
use larder_gateway::{Gateway, Result};
use larder_model::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_model::causality::Conditions;
use larder_model::content::KvContent;
use larder_model::props::Value;

use super::command::{CommandCall, CommandResult};
use super::text::reasons;

/// Riak's name for the bucket of this command.
const BUCKET: &[u8] = b"__riak_client_test__";

pub(super) async fn test(call: CommandCall<'_>) -> CommandResult {
    let node = Value::Node(call.gateway().core.config().node.clone()).console();
    match round_trip(call.gateway()).await {
        Ok(true) => Ok(AdminAnswer::done(format!("Successfully completed 1 read/write cycle to {node}"))),
        Ok(false) => Err(format!("Failed to read test value from {node}: it is not what was written")),
        Err(error) => Err(format!("Failed to complete a read/write cycle to {node}: {}", reasons(&error))),
    }
    .map_err(AdminAnswer::failed)
}

async fn round_trip(gateway: &Gateway) -> Result<bool> {
    let key = Bytes::from(gateway.core.new_unique_name());
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), Bytes::from_static(BUCKET))?;
    let address = Address::new(bucket, key.clone())?;
    gateway.kv.put(put(&address, key.clone())).await?;
    let found = gateway
        .kv
        .get(KvGet { address: address.clone(), quorums: Quorums::default(), bodies: true, timeout: None })
        .await?;
    let same = match found.bodies.into_iter().next() {
        Some(mut body) => body.piece(0, key.len() + 1).await? == key,
        None => false,
    };
    let conditions = Conditions::default();
    let quorums = Quorums::default();
    gateway.kv.delete(KvDelete { address, context: found.context, conditions, quorums, timeout: None }).await?;
    Ok(same)
}

fn put(address: &Address, value: Bytes) -> KvPut {
    KvPut {
        address: address.clone(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent { content_type: Some(Bytes::from_static(b"text/plain")), ..KvContent::default() },
        upload: PutBody::Bytes(value),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    }
}
