//! Data types: fetch and update (Riak KV protocol buffers reference §6, §8).

mod answer;
mod counters;
mod messages;
mod pb_value;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_core::Error;
use larder_core::rules::erlang;
use larder_kv::datatypes::{DatatypeBegin, DatatypeChange, DatatypeFetch};
use larder_kv::rules::datatypes::{Datatype, DatatypeError};
use larder_kv::{Gateway, Quorums};
use larder_rows::address::Address;

use super::fault::PbFault;
use super::fields::{address, check_n_val, quorum, timeout};
use answer::{put_absent, put_updated, put_updated_to_nothing};

pub(super) use answer::PbValueAnswer;
pub(super) use counters::{get_counter, update_counter};
pub(super) use messages::{DtFetchReq, DtUpdateReq};

#[cfg(test)]
pub(super) use messages::{RpbCounterGetReq, RpbCounterUpdateReq};
use pb_value::ValueMessage;
pub(super) use pb_value::count_edits;
use pb_value::decode_update;

/// Code 80. In type `default` it fetches a counter of Riak 1.4. It returns an answer that is not short.
///
/// # Errors
/// An invalid address or parameter, a bucket without a data type, or an error of the gateway.
pub(super) async fn fetch(
    gateway: &Arc<Gateway>,
    request: DtFetchReq,
    output: &mut BytesMut,
) -> Result<Option<Box<PbValueAnswer>>, PbFault> {
    let address = typed_address(request.bucket, request.key, request.r#type)?;
    if let Some(n_val) = request.n_val {
        check_n_val(gateway, &address.bucket, n_val).await?;
    }
    let bucket = address.bucket.clone();
    let deadline = deadline(request.timeout);
    let fetch = DatatypeFetch {
        address,
        quorums: Quorums {
            r: quorum(request.r),
            pr: quorum(request.pr),
            node_confirms: quorum(request.node_confirms),
            basic_quorum: request.basic_quorum,
            notfound_ok: request.notfound_ok,
            sloppy_quorum: request.sloppy_quorum,
            ..Quorums::default()
        },
        include_context: request.include_context != Some(false),
        begin: DatatypeBegin::First,
        timeout: deadline,
    };
    let refused = |error| refusal(error, "`undefined` is not a supported type");
    match gateway.kv.fetch_datatype(fetch).await.map_err(refused)? {
        Some(reader) => {
            let bytes_max = gateway.context().config.object_bytes_max;
            PbValueAnswer::new(reader, ValueMessage::Fetched, None, bytes_max).begin(output).await
        }
        None => {
            let datatype = gateway.kv.bucket_datatype(&bucket, deadline).await.map_err(refused)?;
            put_absent(datatype, output);
            Ok(None)
        }
    }
}

/// Code 82. Without a key the server makes one. It returns an answer that is not short.
///
/// # Errors
/// An invalid address or parameter, an operation of another type than the bucket's, or an error of the gateway.
pub(super) async fn update(
    gateway: &Arc<Gateway>,
    request: DtUpdateReq,
    output: &mut BytesMut,
) -> Result<Option<Box<PbValueAnswer>>, PbFault> {
    // Each try would make a key of its own, and count there.
    if request.key.is_none() && request.request_id.is_some() {
        return Err(PbFault::Text("\"a request id needs a key\"".into()));
    }
    let new_key = request.key.is_none().then(|| Bytes::from(gateway.context().new_unique_name()));
    let address = typed_address(request.bucket, new_key.clone().or(request.key), request.r#type)?;
    let update =
        decode_update(request.op.unwrap_or_default()).map_err(|error| PbFault::Undecodable(error.to_string()))?;
    if address.bucket.is_default_type() && update.datatype() != Datatype::Counter {
        return Err(PbFault::Text("\"non-counter operation on default bucket\"".into()));
    }
    if let Some(n_val) = request.n_val {
        check_n_val(gateway, &address.bucket, n_val).await?;
    }
    let quorums = Quorums {
        w: quorum(request.w),
        dw: quorum(request.dw),
        pw: quorum(request.pw),
        node_confirms: quorum(request.node_confirms),
        sloppy_quorum: request.sloppy_quorum,
        ..Quorums::default()
    };
    let datatype = update.datatype();
    let change = DatatypeChange {
        address: address.clone(),
        update,
        // An empty one is refused: taken for none, a removal would take what its client never saw.
        context: request.context,
        request_id: request.request_id,
        quorums,
        timeout: deadline(request.timeout),
    };
    let refused = |error| refusal(error, "Bucket datatype `undefined` is not a supported type");
    gateway.kv.update_datatype(change).await.map_err(refused)?;
    if request.return_body != Some(true) {
        put_updated(new_key.as_ref(), output);
        return Ok(None);
    }
    let include_context = request.include_context != Some(false);
    let quorums = Quorums::default();
    let fetch = DatatypeFetch {
        address,
        quorums,
        include_context,
        begin: DatatypeBegin::First,
        timeout: deadline(request.timeout),
    };
    match gateway.kv.fetch_datatype(fetch).await? {
        Some(reader) => {
            let bytes_max = gateway.context().config.object_bytes_max;
            PbValueAnswer::new(reader, ValueMessage::Updated, new_key, bytes_max).begin(output).await
        }
        None => {
            put_updated_to_nothing(datatype, new_key.as_ref(), output);
            Ok(None)
        }
    }
}

/// The address of a request that must name its type.
fn typed_address(bucket: Option<Bytes>, key: Option<Bytes>, bucket_type: Option<Bytes>) -> Result<Address, PbFault> {
    if bucket_type.is_none() {
        return Err(PbFault::Undecodable("the request has no type".into()));
    }
    Ok(address(bucket, key, bucket_type)?)
}

/// The deadline of a request; zero asks for that of the server, unlike for objects.
fn deadline(millis: Option<u32>) -> Option<std::time::Duration> {
    timeout(millis.filter(|millis| *millis > 0)).unwrap_or_default()
}

/// The error of the gateway in Riak's words for data types. `untyped` is the text for a bucket without a data type.
fn refusal(error: Error, untyped: &str) -> PbFault {
    match error {
        Error::UnknownType(name) => PbFault::Text(format!("Error no bucket type `{}`", erlang::binary(&name))),
        Error::NotDatatype => PbFault::Text(untyped.into()),
        Error::Datatype(DatatypeError::WrongOperation { update, bucket }) => {
            let (update, bucket) = (update.name(), bucket.name());
            // Two blanks, as Riak has them.
            PbFault::Text(format!("Operation type is `{update}` but  bucket type is `{bucket}`."))
        }
        other => other.into(),
    }
}
