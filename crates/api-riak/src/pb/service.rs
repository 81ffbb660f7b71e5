//! Answers one request: its code, its message, its handler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use larder_core::Error;
use larder_kv::Gateway;
use larder_kv::rules::datatypes::DatatypeError;
use larder_rows::limits::{DATATYPE_EDITS_MAX, METADATA_BYTES_MAX};

use super::access::{self, PbUser};
use super::bucket_scan::PbBucketScan;
use super::datatypes::{self, DtUpdateReq, PbValueAnswer, count_edits};
use super::fault::{PbFault, decode};
use super::index::PbIndexAnswer;
use super::listing::PbListing;
use super::mapred::PbJob;
use super::messages::RpbPutReq;
use super::operations::{PUT_BESIDES_VALUE, PbOperation, find};
use super::reply::{PagedReply, PbReply};
use super::session::PbSession;
use super::{info, object, props, put_scan};
use crate::failure::log_server_error;

/// Answers the request with this code and message: appends to `output`, and returns the rest of the answer. A panic becomes an
/// error and a log line.
///
/// # Errors
/// The request was not carried out.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    session: &mut PbSession,
    code: u8,
    message: Bytes,
    output: &mut BytesMut,
) -> Result<PbReply, PbFault> {
    match AssertUnwindSafe(dispatch(gateway, session, code, message, output)).catch_unwind().await {
        Ok(answered) => {
            if let Err(PbFault::Gateway(error)) = &answered {
                log_server_error(error, None);
            }
            answered
        }
        Err(panic) => {
            gateway.context().report_panic("protocol buffers", &*panic);
            Err(PbFault::Undecodable("the server failed".into()))
        }
    }
}

/// Answers the request with this code and message at once, if that takes no wait: appends to `output`. `false`: nothing was
/// appended, and [`answer`] takes the request.
pub(super) fn try_answer(gateway: &Gateway, code: u8, message: &Bytes, output: &mut BytesMut) -> bool {
    if !find(code).is_some_and(|row| row.operation == PbOperation::Get) {
        return false;
    }
    let answered_before = output.len();
    let answered = catch_unwind(AssertUnwindSafe(|| {
        decode(message.clone()).is_ok_and(|request| object::try_get(gateway, request, output))
    }));
    answered.unwrap_or_else(|panic| {
        gateway.context().report_panic("protocol buffers", &*panic);
        // The other way may answer what this one could not.
        output.truncate(answered_before);
        false
    })
}

async fn dispatch(
    gateway: &Arc<Gateway>,
    session: &mut PbSession,
    code: u8,
    message: Bytes,
    output: &mut BytesMut,
) -> Result<PbReply, PbFault> {
    let row = find(code);
    let user = match gateway.security().is_surely_off() {
        true => PbUser::NotNeeded,
        // A box: most servers run without security, and need no room for it.
        false => Box::pin(access::admit(gateway, session, row, &message)).await?,
    };
    let Some(row) = row else { return Err(PbFault::Text(format!("Unknown message code: {code}"))) };
    match row.operation {
        PbOperation::Get => return object::get(gateway, decode(message)?, output).await,
        // Boxes keep the future small that every request moves: a get needs far less room than these.
        PbOperation::Put => return Box::pin(object::put(gateway, decode_put(message)?, output)).await,
        PbOperation::Delete => return Box::pin(object::delete(gateway, decode(message)?, output)).await,
        PbOperation::FetchDatatype => {
            return Box::pin(datatypes::fetch(gateway, decode(message)?, output)).await.map(valued);
        }
        PbOperation::UpdateDatatype => {
            return Box::pin(datatypes::update(gateway, decode_update(message)?, output)).await.map(valued);
        }
        PbOperation::ListBuckets => return PbListing::from_buckets(gateway, decode(message)?).map(paged),
        PbOperation::ListKeys => return PbListing::from_keys(gateway, decode(message)?).map(paged),
        PbOperation::Index => {
            let answer = PbIndexAnswer::new(gateway, decode(message)?)?;
            return Ok(PbReply::Paged(PagedReply::Index(answer.into())));
        }
        PbOperation::ScanBucket => {
            let scan = PbBucketScan::new(gateway, decode(message)?)?;
            return Ok(PbReply::Paged(PagedReply::Scan(scan.into())));
        }
        PbOperation::MapReduce => {
            let job = Box::pin(PbJob::start(gateway, session, user.name(), decode(message)?)).await?;
            return Ok(PbReply::Paged(PagedReply::Job(job.into())));
        }
        PbOperation::GetCounter => Box::pin(datatypes::get_counter(gateway, decode(message)?, output)).await?,
        PbOperation::UpdateCounter => Box::pin(datatypes::update_counter(gateway, decode(message)?, output)).await?,
        PbOperation::Ping => info::ping(output),
        PbOperation::GetServerInfo => info::server_info(gateway, output),
        PbOperation::GetClientId => info::client_id(&session.client_id, output),
        PbOperation::SetClientId => session.client_id = info::set_client_id(decode(message)?, output),
        PbOperation::GetPreflist => Box::pin(info::preflist(gateway, decode(message)?, output)).await?,
        PbOperation::GetBucket => Box::pin(props::get_bucket(gateway, decode(message)?, output)).await?,
        PbOperation::SetBucket | PbOperation::ResetBucket | PbOperation::SetBucketType => {
            Box::pin(props::change(gateway, session, row.operation, message, output)).await?;
        }
        PbOperation::GetBucketType => Box::pin(props::get_type(gateway, decode(message)?, output)).await?,
        PbOperation::StartTls => return access::start_tls(session, &user, output),
        PbOperation::Authenticate => {
            Box::pin(access::log_in(gateway, session, &user, decode(message)?, output)).await?
        }
    }
    Ok(PbReply::Done)
}

fn paged(listing: PbListing) -> PbReply {
    PbReply::Paged(PagedReply::Listing(listing.into()))
}

fn valued(answer: Option<Box<PbValueAnswer>>) -> PbReply {
    answer.map_or(PbReply::Done, |answer| PbReply::Paged(PagedReply::Value(answer)))
}

/// Decodes the update of a data type, after a count of its edits: two bytes of a message may become hundreds in memory.
fn decode_update(message: Bytes) -> Result<DtUpdateReq, PbFault> {
    let Some(edits) = count_edits(&message) else {
        return Err(PbFault::Undecodable("the update is no sequence of fields, or is nested too deep".into()));
    };
    if edits > DATATYPE_EDITS_MAX {
        return Err(Error::from(DatatypeError::TooMany { part: "edits", max: DATATYPE_EDITS_MAX }).into());
    }
    decode(message)
}

/// Decodes a put, after a check of its size without the value: a short message may become long in memory.
fn decode_put(message: Bytes) -> Result<RpbPutReq, PbFault> {
    let Some(bytes) = put_scan::bytes_besides_value(&message) else {
        return Err(PbFault::Undecodable("the put is no sequence of fields".into()));
    };
    if bytes > PUT_BESIDES_VALUE {
        return Err(Error::MetadataTooLarge { bytes, max: METADATA_BYTES_MAX }.into());
    }
    decode(message)
}
