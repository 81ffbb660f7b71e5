//! Queries of secondary indexes (Riak KV HTTP reference §6).
//!
//! ```text
//! whole    {"keys":["a","b",…],"continuation":"…"}        with terms: {"results":[{"TERM":"KEY"},…],…}
//! stream   multipart/mixed: one part for each page, then one with the continuation
//! count    {"count":2}                                     of any query: Larder's own, as are prefixes and POST
//! ```
//! A deadline before the first page is 503. A later one ends a stream with a part that says so, and breaks a whole answer off.

mod index_document;
mod index_params;
mod index_reply;

use std::sync::Arc;

use hyper::StatusCode;
use larder_core::Error;
use larder_kv::Gateway;
use larder_net::ArrivingBody;

use super::accept;
use super::body::{check_md5, collect_admitted};
use super::call::RiakCall;
use super::errors::RiakFault;
use super::params::printed;
use super::props::{is_json, unknown_type_page};
use super::reply::RiakResponse;
use crate::index::IndexPager;
use index_document::IndexDocument;
use index_params::IndexParams;

/// The media types of the answers.
const OFFERED: [&str; 2] = ["application/json", "multipart/mixed"];

/// Bytes of memory that a document takes for each of its own.
const DECODED_PER_BYTE: u64 = 16;

/// GET and HEAD of `/…/index/FIELD/…`.
///
/// # Errors
/// 400 with Riak's text for an invalid parameter or query, and those of the gateway; an unknown type gets the 404 page.
pub(super) async fn get(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let params = IndexParams::from_call(call)?;
    accept::require(call.headers, if params.stream { &OFFERED } else { &OFFERED[..1] })?;
    if let Err(error) = call.gateway.types().props(&call.bucket_type()).await {
        return unknown_type_page(error);
    }
    let pager = params.query.map(|query| {
        let reader = gateway.kv.query_index(query, params.after, params.timeout);
        IndexPager::new(reader, params.max_results, params.return_terms)
    });
    match pager {
        Some(pager) if params.stream => Ok(index_reply::stream(pager, &gateway.context().new_request_id())),
        pager => respond(pager, params.count).await,
    }
}

/// Checks the parameters of a query.
///
/// # Errors
/// 400 with Riak's text.
pub(super) fn check_form(call: &RiakCall<'_>) -> Result<(), RiakFault> {
    IndexParams::from_call(call).map(drop)
}

/// POST of `/…/index`: a query of several conditions.
///
/// # Errors
/// 400 for a parameter, 400 with the fault of the document, and as [`get`].
pub(super) async fn post(
    call: &RiakCall<'_>,
    gateway: &Arc<Gateway>,
    body: ArrivingBody<'_>,
) -> Result<RiakResponse, RiakFault> {
    if !is_json(call.headers) {
        return Err(RiakFault::page(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    // Its options are members of the document.
    if let Some(name) = call.query.first_name() {
        return Err(RiakFault::bad(format!("Invalid query: the request takes no parameter {}\n", printed(name))));
    }
    let (incoming, requester) = body.into_parts();
    let max = index_document::DOCUMENT_BYTES_MAX;
    let document = collect_admitted(incoming, requester, max, |length| length * DECODED_PER_BYTE).await?;
    check_md5(call.headers, &document)?;
    let document = IndexDocument::parse(call.bucket()?, &document).map_err(RiakFault::bad)?;
    let IndexDocument { queries, after, max_results, count, timeout } = document;
    accept::require(call.headers, &OFFERED[..1])?;
    if let Err(error) = call.gateway.types().props(&call.bucket_type()).await {
        return unknown_type_page(error);
    }
    let after = std::iter::once(after).chain(std::iter::repeat(None));
    let readers = queries.into_iter().zip(after);
    let readers = readers.map(|(query, after)| gateway.kv.query_index(query, after, timeout)).collect();
    respond(IndexPager::chain(readers, max_results), count).await
}

/// The answer with all results of a query, or their number.
async fn respond(pager: Option<IndexPager>, count: bool) -> Result<RiakResponse, RiakFault> {
    let answered = match pager {
        Some(pager) if count => pager.count().await.map(index_reply::counted),
        Some(pager) => index_reply::whole(pager).await,
        None if count => Ok(index_reply::counted(0)),
        None => Ok(index_reply::nothing()),
    };
    match answered {
        Err(error @ Error::UnknownType(_)) => unknown_type_page(error),
        answered => Ok(answered?),
    }
}
