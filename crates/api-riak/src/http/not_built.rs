//! Features of Riak that are not built: refused by name, after the checks that need no such feature.

use hyper::StatusCode;

use larder_gateway::{Error, Feature};

use super::call::RiakCall;
use super::errors::RiakFault;
use super::props::unknown_type_page;
use super::reply::{RiakResponse, text};
use super::routes::PathPart;

/// 501 with the name of the feature.
///
/// # Errors
/// Always [`Error::NotBuilt`].
pub(super) fn answer(feature: Feature) -> Result<RiakResponse, RiakFault> {
    Err(Error::NotBuilt(feature).into())
}

/// A secondary-index query. An unknown type gets the 404 page.
///
/// # Errors
/// The feature is not built.
pub(super) async fn index(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    match call.gateway.types.props(&call.bucket_type()).await {
        Ok(_) => answer(Feature::SecondaryIndexes),
        Err(error) => unknown_type_page(error),
    }
}

/// A link walk. Riak forbids it in bucket types.
///
/// # Errors
/// The feature is not built.
pub(super) fn link_walk(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    if call.route.place(PathPart::Type).is_some() && !call.raw(PathPart::Type).eq("default") {
        return Ok(text(StatusCode::FORBIDDEN, "Link-walking is not allowed on keys stored in bucket-types."));
    }
    answer(Feature::LinkWalking)
}
