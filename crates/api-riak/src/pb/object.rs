//! Get, put and delete of an object. The checks run in Riak's order: bucket, key, type.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_core::body::PutBody;
use larder_kv::rules::causality::{Conditions, EtagMatcher};
use larder_kv::{Gateway, KvDelete, KvGet, KvPut, Quorums};
use larder_net::UNCOUNTED_BYTES;

use super::content::{put_fields, put_object, put_single, stored_content};
use super::fault::PbFault;
use super::fields::{address, check_n_val, quorum, timeout};
use super::frame::{put_head, put_message};
use super::messages::{RpbDelReq, RpbGetReq, RpbPutReq, RpbUnchangedResp};
use super::reply::PbReply;

const GET_RESP: u8 = 10;
const PUT_RESP: u8 = 12;
const DEL_RESP: u8 = 14;

/// The longest row of an answer at once: with what is shown beside it, the answer needs no memory of its client's share.
const ROW_BYTES_MAX: usize = UNCOUNTED_BYTES as usize - 2048;

/// Code 9. A key without a live value gets a message without fields; with `deletedvclock`, that of a tombstone has its context.
///
/// # Errors
/// An invalid address or parameter, or an error of the gateway.
pub(super) async fn get(gateway: &Arc<Gateway>, request: RpbGetReq, output: &mut BytesMut) -> Result<PbReply, PbFault> {
    let GetOptions { blank, deleted_context, if_modified, n_val } = GetOptions::from_request(&request);
    let request = gateway_request(request)?;
    if let Some(n_val) = n_val {
        Box::pin(check_n_val(gateway, &request.address.bucket, n_val)).await?;
    }
    let object = gateway.kv.get(request).await?;
    if object.versions.siblings.is_empty() {
        let shown = object.context.filter(|_| object.versions.deleted && deleted_context);
        put_fields(output, GET_RESP, shown.as_deref(), None);
        return Ok(PbReply::Done);
    }
    if if_modified.is_some() && if_modified == object.context {
        put_unchanged(output);
        return Ok(PbReply::Done);
    }
    put_object(output, GET_RESP, object, blank, None).map(PbReply::from)
}

/// As [`get`], at once: appends the whole answer, if the gateway has the object without a wait. `false`: nothing was appended,
/// and [`get`] answers. A value is copied once, into the output: that costs less than a write of its own.
pub(super) fn try_get(gateway: &Gateway, request: RpbGetReq, output: &mut BytesMut) -> bool {
    let GetOptions { blank, if_modified, n_val, .. } = GetOptions::from_request(&request);
    if n_val.is_some() {
        return false;
    }
    let Ok(request) = gateway_request(request) else { return false };
    let Some(object) = gateway.kv.try_get(&request, ROW_BYTES_MAX) else { return false };
    if if_modified.is_some_and(|seen| seen == object.encoded_context) {
        put_unchanged(output);
    } else {
        put_single(output, GET_RESP, &object, blank);
    }
    true
}

/// The fields of a get that the gateway does not take.
struct GetOptions {
    /// Whether the answer has no value.
    blank: bool,
    /// Whether that of a deleted key has a context.
    deleted_context: bool,
    /// The context that the client has.
    if_modified: Option<Bytes>,
    /// The number of copies that the client expects.
    n_val: Option<u32>,
}

impl GetOptions {
    fn from_request(request: &RpbGetReq) -> Self {
        Self {
            blank: request.head == Some(true),
            deleted_context: request.deletedvclock == Some(true),
            if_modified: request.if_modified.clone(),
            n_val: request.n_val,
        }
    }
}

fn gateway_request(request: RpbGetReq) -> Result<KvGet, PbFault> {
    let address = address(request.bucket, request.key, request.r#type)?;
    let quorums = Quorums {
        r: quorum(request.r),
        pr: quorum(request.pr),
        node_confirms: quorum(request.node_confirms),
        basic_quorum: request.basic_quorum,
        notfound_ok: request.notfound_ok,
        sloppy_quorum: request.sloppy_quorum,
        ..Quorums::default()
    };
    Ok(KvGet { address, quorums, bodies: request.head != Some(true), timeout: timeout(request.timeout)? })
}

fn put_unchanged(output: &mut BytesMut) {
    put_message(output, GET_RESP, &RpbUnchangedResp { unchanged: Some(true) });
}

/// Code 11.
///
/// # Errors
/// An invalid address, parameter or index term, or an error of the gateway.
pub(super) async fn put(gateway: &Arc<Gateway>, request: RpbPutReq, output: &mut BytesMut) -> Result<PbReply, PbFault> {
    let new_key = request.key.is_none().then(|| Bytes::from(gateway.context().new_unique_name()));
    let address = address(request.bucket, new_key.clone().or(request.key), request.r#type)?;
    let content = request.content.ok_or_else(|| PbFault::Undecodable("the put has no content".into()))?;
    if content.deleted == Some(true) {
        return Err(PbFault::Text("A put cannot store a tombstone: use a delete".into()));
    }
    if let Some(n_val) = request.n_val {
        Box::pin(check_n_val(gateway, &address.bucket, n_val)).await?;
    }
    let quorums = Quorums {
        w: quorum(request.w),
        dw: quorum(request.dw),
        pw: quorum(request.pw),
        node_confirms: quorum(request.node_confirms),
        sloppy_quorum: request.sloppy_quorum,
        ..Quorums::default()
    };
    let context = request.vclock.filter(|context| !context.is_empty());
    let if_none_match = (request.if_none_match == Some(true)).then_some(EtagMatcher::Any);
    // Without a context any live value counts as modified: no context names it.
    let if_not_modified = (request.if_not_modified == Some(true)).then(|| context.clone().unwrap_or_default());
    let blank = request.return_head == Some(true);
    let upload = PutBody::Bytes(content.value.clone().unwrap_or_default());
    let put = KvPut {
        address,
        context,
        conditions: Conditions { if_none_match, ..Conditions::default() },
        if_not_modified,
        content: stored_content(content)?,
        upload,
        quorums,
        return_body: blank || request.return_body == Some(true),
        timeout: timeout(request.timeout)?,
    };
    let written = gateway.kv.put(put).await?;
    match written.filter(|object| !object.versions.siblings.is_empty()) {
        Some(object) => put_object(output, PUT_RESP, object, blank, new_key).map(PbReply::from),
        None => {
            put_fields(output, PUT_RESP, None, new_key.as_deref());
            Ok(PbReply::Done)
        }
    }
}

/// Code 13. Unlike over HTTP, a key that does not exist is deleted with success.
///
/// # Errors
/// An invalid address or parameter, or an error of the gateway.
pub(super) async fn delete(
    gateway: &Arc<Gateway>,
    request: RpbDelReq,
    output: &mut BytesMut,
) -> Result<PbReply, PbFault> {
    let address = address(request.bucket, request.key, request.r#type)?;
    if let Some(n_val) = request.n_val {
        Box::pin(check_n_val(gateway, &address.bucket, n_val)).await?;
    }
    let delete = KvDelete {
        address,
        context: request.vclock.filter(|context| !context.is_empty()),
        conditions: Conditions::default(),
        quorums: Quorums {
            r: quorum(request.r),
            pr: quorum(request.pr),
            w: quorum(request.w),
            dw: quorum(request.dw),
            pw: quorum(request.pw),
            rw: quorum(request.rw),
            sloppy_quorum: request.sloppy_quorum,
            ..Quorums::default()
        },
        timeout: timeout(request.timeout)?,
    };
    gateway.kv.delete(delete).await?;
    put_head(output, DEL_RESP, 0);
    Ok(PbReply::Done)
}
