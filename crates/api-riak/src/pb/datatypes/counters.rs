//! The counters of Riak 1.4, in buckets of the type `default` that keep siblings.

use std::sync::Arc;

use bytes::BytesMut;
use larder_core::Error;
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::datatypes::{DatatypeUpdate, DatatypeValue};
use larder_kv::{Gateway, Quorums};
use larder_rows::address::Address;

use super::messages::{RpbCounterGetReq, RpbCounterUpdateReq, RpbCounterValueResp};
use super::pb_value::saturated;
use crate::pb::fault::PbFault;
use crate::pb::fields::{address, quorum};
use crate::pb::frame::put_message;

const UPDATE_RESP: u8 = 51;
const GET_RESP: u8 = 53;
/// Memory for the value of a counter.
const COUNTER_BYTES: usize = 1024;

/// Code 52. A key without a counter gets a message without fields.
///
/// # Errors
/// An invalid address or parameter, or an error of the gateway.
pub(in crate::pb) async fn get_counter(
    gateway: &Arc<Gateway>,
    request: RpbCounterGetReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let quorums = Quorums {
        r: quorum(request.r),
        pr: quorum(request.pr),
        node_confirms: quorum(request.node_confirms),
        basic_quorum: request.basic_quorum,
        notfound_ok: request.notfound_ok,
        ..Quorums::default()
    };
    let value = read(gateway, address(request.bucket, request.key, None)?, quorums).await?;
    put_message(output, GET_RESP, &RpbCounterValueResp { value });
    Ok(())
}

/// Code 50.
///
/// # Errors
/// An invalid address or parameter, a bucket without siblings, or an error of the gateway.
pub(in crate::pb) async fn update_counter(
    gateway: &Arc<Gateway>,
    request: RpbCounterUpdateReq,
    output: &mut BytesMut,
) -> Result<(), PbFault> {
    let address = address(request.bucket, request.key, None)?;
    let amount = request.amount.ok_or_else(|| PbFault::Undecodable("the update has no amount".into()))?;
    let quorums = Quorums {
        w: quorum(request.w),
        dw: quorum(request.dw),
        pw: quorum(request.pw),
        node_confirms: quorum(request.node_confirms),
        ..Quorums::default()
    };
    let change = DatatypeChange {
        address: address.clone(),
        update: DatatypeUpdate::Counter(amount),
        context: None,
        request_id: request.request_id,
        quorums,
        timeout: None,
    };
    match gateway.kv.update_datatype(change).await {
        Ok(()) => {}
        Err(Error::DatatypeNeedsSiblings) => {
            return Err(PbFault::Text("\"Counters require bucket property 'allow_mult=true'\"".into()));
        }
        Err(error) => return Err(error.into()),
    }
    let value = match request.returnvalue {
        // Deleted since the update, or before a repeat of it, it is at zero.
        Some(true) => Some(read(gateway, address, Quorums::default()).await?.unwrap_or(0)),
        _ => None,
    };
    put_message(output, UPDATE_RESP, &RpbCounterValueResp { value });
    Ok(())
}

async fn read(gateway: &Arc<Gateway>, address: Address, quorums: Quorums) -> Result<Option<i64>, Error> {
    let fetch = DatatypeFetch { address, quorums, include_context: false, begin: DatatypeBegin::First, timeout: None };
    let Some(reader) = gateway.kv.fetch_datatype(fetch).await? else { return Ok(None) };
    Ok(match reader.whole(COUNTER_BYTES).await?.0 {
        DatatypeValue::Counter(total) => Some(saturated(total)),
        _ => None,
    })
}
