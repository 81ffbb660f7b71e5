//! The buckets of a type, and the old resource with the properties and keys of a bucket.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use larder_kv::Gateway;

use super::call::RiakCall;
use super::errors::RiakFault;
use super::listing::ListingMode;
use super::params::timeout;
use super::reply::{RiakResponse, json, page};
use super::{accept, props};
use crate::listing::{Lister, ListingTarget};

/// GET and HEAD of `/buckets`, `/types/T/buckets` and `/riak`.
///
/// # Errors
/// An invalid `timeout`, or an error of the gateway.
pub(super) async fn get(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let timeout = timeout(&call.query)?;
    accept::require(call.headers, &["application/json"])?;
    let bucket_type = call.bucket_type();
    match ListingMode::from_query(&call.query, "buckets") {
        ListingMode::None => match call.gateway.types.props(&bucket_type).await {
            Ok(_) => Ok(json(StatusCode::OK, r#"{"buckets":[]}"#)),
            Err(error) => props::unknown_type_page(error),
        },
        mode => Lister::new(gateway, ListingTarget::Buckets(bucket_type), timeout).reply(mode, Bytes::new()).await,
    }
}

/// GET and HEAD of `/riak/B`: properties unless `props=false`, and keys if `keys` asks for them.
///
/// # Errors
/// An invalid `timeout`, or an error of the gateway.
pub(super) async fn get_old(call: &RiakCall<'_>, gateway: &Arc<Gateway>) -> Result<RiakResponse, RiakFault> {
    let (mode, with_props) = (ListingMode::from_query(&call.query, "keys"), !call.query.is("props", "false"));
    if mode == ListingMode::None && !with_props {
        return Ok(page(StatusCode::NOT_FOUND));
    }
    let timeout = timeout(&call.query)?;
    accept::require(call.headers, &["application/json"])?;
    let bucket = call.bucket()?;
    let shown = if with_props { props::object(&call.gateway.types.bucket_props(&bucket).await?) } else { "{}".into() };
    let head = match mode {
        ListingMode::None => return Ok(json(StatusCode::OK, shown)),
        ListingMode::Stream => shown,
        // The members without the object's braces.
        ListingMode::Whole => {
            shown.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default().to_owned()
        }
    };
    Lister::new(gateway, ListingTarget::Keys(bucket), timeout).reply(mode, Bytes::from(head)).await
}
