//! `test`: one object written, read back and deleted through the same calls that clients use.

use bytes::Bytes;

use larder_gateway::body::Upload;
use larder_gateway::kv::{DeleteObject, GetObject, PutObject, Quorums};
use larder_gateway::{Gateway, Result};
use larder_model::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_model::causality::Conditions;
use larder_model::content::Content;
use larder_model::props::Value;

use super::Answer;
use super::answer::reasons;
use super::table::Call;

/// Riak's own name for the bucket.
const BUCKET: &[u8] = b"__riak_client_test__";

pub(super) async fn test(call: Call<'_>) -> Answer {
    let node = Value::Node(call.gateway.config().node.clone()).console();
    match cycle(call.gateway).await {
        Ok(true) => Answer::done(format!("Successfully completed 1 read/write cycle to {node}")),
        Ok(false) => Answer::failed(format!("Failed to read test value from {node}: it is not what was written")),
        Err(error) => Answer::failed(format!("Failed to complete a read/write cycle to {node}: {}", reasons(&error))),
    }
}

async fn cycle(gateway: &Gateway) -> Result<bool> {
    let key = Bytes::from(gateway.new_key());
    let bucket = BucketAddress::new(Bytes::from_static(DEFAULT_TYPE), Bytes::from_static(BUCKET))?;
    let address = Address::new(bucket, key.clone())?;
    gateway.put(put(&address, key.clone())).await?;
    let found = gateway
        .get(GetObject { address: address.clone(), quorums: Quorums::default(), bodies: true, timeout: None })
        .await?;
    let same = match found.bodies.into_iter().next() {
        Some(mut body) => body.piece(0, key.len() + 1).await? == key,
        None => false,
    };
    let conditions = Conditions::default();
    let quorums = Quorums::default();
    gateway.delete(DeleteObject { address, context: found.context, conditions, quorums, timeout: None }).await?;
    Ok(same)
}

fn put(address: &Address, value: Bytes) -> PutObject {
    PutObject {
        address: address.clone(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: Content { content_type: Some(Bytes::from_static(b"text/plain")), ..Content::default() },
        upload: Upload::Bytes(value),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    }
}
