//! Queries of secondary indexes (Riak KV HTTP reference §6).
//!
//! ```text
//! whole    {"keys":["a","b",…],"continuation":"…"}        with terms: {"results":[{"TERM":"KEY"},…],…}
//! stream   multipart/mixed: one part for each page, then one with the continuation
//! ```
//! A deadline before the first page is 503. A later one ends a stream with a part that says so, and breaks a whole answer off.

mod index_params;
mod index_reply;

use std::sync::Arc;

use larder_gateway::{Error, Gateway};

use crate::index::IndexPager;

use super::accept;
use super::call::RiakCall;
use super::errors::RiakFault;
use super::props::unknown_type_page;
use super::reply::RiakResponse;
use index_params::IndexParams;

/// The media types of the answers.
const OFFERED: [&str; 2] = ["application/json", "multipart/mixed"];

/// GET and HEAD of `/…/index/FIELD/…`.
///
/// # Errors
/// 400 with Riak's text for an invalid parameter or query, and those of the gateway; an unknown type gets the 404 page.
pub(super) async fn get(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let params = IndexParams::of(call)?;
    accept::require(call.headers, if params.stream { &OFFERED } else { &OFFERED[..1] })?;
    if let Err(error) = call.gateway.types.props(&call.bucket_type()).await {
        return unknown_type_page(error);
    }
    let Some(query) = params.query else { return Ok(index_reply::nothing()) };
    let reader = gateway.kv.query_index(query, params.after, params.timeout);
    let pager = IndexPager::new(reader, params.max_results, params.return_terms);
    match params.stream {
        true => Ok(index_reply::stream(pager, &gateway.core.new_request_id())),
        false => match index_reply::whole(pager).await {
            Err(error @ Error::UnknownType(_)) => unknown_type_page(error),
            answered => Ok(answered?),
        },
    }
}
