//! `test`: writes, reads and deletes one object through the calls that clients use, and one value of each data type that an
//! active bucket type has.

mod datatypes;

use bytes::Bytes;
use larder_core::Result;
use larder_core::body::PutBody;
use larder_core::rules::props::Value;
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_kv_admin::frame::AdminAnswer;
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_rows::content::KvContent;

use super::command::{CommandCall, CommandResult, reasons};

/// Riak's name for the bucket of this command.
const BUCKET: &[u8] = b"__riak_client_test__";

pub(super) async fn test(call: CommandCall<'_>) -> CommandResult {
    let gateway = call.gateway();
    let node = Value::Node(gateway.context().config.node.clone()).console();
    let mut lines = vec![verdict(round_trip(gateway).await, "read/write cycle", &node)?];
    let types = datatypes::types_in_use(gateway).await.map_err(|error| AdminAnswer::failed(reasons(&error)))?;
    for (bucket_type, datatype) in types {
        let cycle = format!("{} cycle in type {}", datatype.name(), bucket_type.escape_ascii());
        lines.push(verdict(datatypes::round_trip(gateway, bucket_type, datatype).await, &cycle, &node)?);
    }
    Ok(AdminAnswer::done(lines.join("\n")))
}

/// The line of one cycle: that it was completed, or why not.
fn verdict(ended: Result<bool>, cycle: &str, node: &str) -> std::result::Result<String, AdminAnswer> {
    match ended {
        Ok(true) => Ok(format!("Successfully completed 1 {cycle} to {node}")),
        Ok(false) => {
            Err(AdminAnswer::failed(format!("Failed to read test value from {node}: it is not what was written")))
        }
        Err(error) => Err(AdminAnswer::failed(format!("Failed to complete a {cycle} to {node}: {}", reasons(&error)))),
    }
}

async fn round_trip(gateway: &Gateway) -> Result<bool> {
    let key = Bytes::from(gateway.context().new_unique_name());
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), Bytes::from_static(BUCKET))?;
    let address = Address::new(bucket, key.clone())?;
    gateway.kv.put(put(&address, key.clone())).await?;
    let object = gateway
        .kv
        .get(KvGet { address: address.clone(), quorums: Quorums::default(), bodies: true, timeout: None })
        .await?;
    let same = match object.bodies.into_iter().next() {
        Some(mut body) => body.piece(0, key.len() + 1).await? == key,
        None => false,
    };
    let conditions = Conditions::default();
    let quorums = Quorums::default();
    gateway.kv.delete(KvDelete { address, context: object.context, conditions, quorums, timeout: None }).await?;
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
