//! Requests about the connection and the server.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_core::metrics::{PROTOCOL_VERSION, RING_PARTITIONS};
use larder_kv::Gateway;

use super::fault::PbFault;
use super::fields::{address, default_n_val};
use super::frame::{put_head, put_message};
use super::messages::{
    RpbBucketKeyPreflistItem, RpbClientId, RpbGetBucketKeyPreflistReq, RpbGetBucketKeyPreflistResp,
    RpbGetServerInfoResp,
};

const PING_RESP: u8 = 2;
const CLIENT_ID_RESP: u8 = 4;
const SET_CLIENT_ID_RESP: u8 = 6;
const SERVER_INFO_RESP: u8 = 8;
const PREFLIST_RESP: u8 = 34;

/// Code 1.
pub(super) fn ping(output: &mut BytesMut) {
    put_head(output, PING_RESP, 0);
}

/// Code 3: the id set on this connection, four zero bytes before that.
pub(super) fn client_id(id: &Bytes, output: &mut BytesMut) {
    put_message(output, CLIENT_ID_RESP, &RpbClientId { client_id: Some(id.clone()) });
}

/// Code 5. Returns the id to keep.
pub(super) fn set_client_id(request: RpbClientId, output: &mut BytesMut) -> Bytes {
    put_head(output, SET_CLIENT_ID_RESP, 0);
    // A copy: the id would keep the whole frame in memory as long as the connection is open.
    Bytes::copy_from_slice(&request.client_id.unwrap_or_default())
}

/// Code 7. Clients parse the version for the features of the server.
pub(super) fn server_info(gateway: &Arc<Gateway>, output: &mut BytesMut) {
    let info = RpbGetServerInfoResp {
        node: Some(gateway.context().config.node.clone().into()),
        server_version: Some(Bytes::from_static(PROTOCOL_VERSION.as_bytes())),
    };
    put_message(output, SERVER_INFO_RESP, &info);
}

/// Code 33: one entry per copy. This gateway reaches every copy, so it stands for all of them.
///
/// # Errors
/// An invalid address, or an error of the gateway.
pub(super) async fn preflist(
    gateway: &Arc<Gateway>,
    request: RpbGetBucketKeyPreflistReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let address = address(request.bucket, request.key, request.r#type)?;
    // Bound: an n_val may be any number, and no ring has more partitions.
    let copies = u64::from(default_n_val(gateway, &address.bucket).await?).min(RING_PARTITIONS);
    let node = Bytes::from(gateway.context().config.node.clone());
    let item = |partition| RpbBucketKeyPreflistItem { partition, node: node.clone(), primary: true };
    let preflist = (0..copies as i64).map(item).collect();
    put_message(output, PREFLIST_RESP, &RpbGetBucketKeyPreflistResp { preflist });
    Ok(())
}
