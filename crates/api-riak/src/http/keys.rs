//! The keys of a bucket.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use larder_kv::Gateway;

use super::call::RiakCall;
use super::errors::RiakFault;
use super::listing::ListingMode;
use super::params::timeout;
use super::reply::{RiakResponse, json};
use super::{accept, props};
use crate::listing::{Lister, ListingTarget};

/// GET and HEAD of `/…/keys`: with `keys=true` or `keys=stream` the keys, else an empty object.
///
/// # Errors
/// An invalid `timeout`, or an error of the gateway.
pub(super) async fn get(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let timeout = timeout(&call.query)?;
    accept::require(call.headers, &["application/json"])?;
    match ListingMode::from_query(&call.query, "keys") {
        ListingMode::None => match call.gateway.types.props(&call.bucket_type()).await {
            Ok(_) => Ok(json(StatusCode::OK, "{}")),
            Err(error) => props::unknown_type_page(error),
        },
        mode => Lister::new(gateway, ListingTarget::Keys(call.bucket()?), timeout).reply(mode, Bytes::new()).await,
    }
}
