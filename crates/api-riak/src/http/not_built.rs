//! Features of Riak that are not built: refused by name, after the checks that need no such feature.

use hyper::StatusCode;

use larder_gateway::{Error, Feature};

use super::call::RiakCall;
use super::errors::RiakFault;
use super::reply::{RiakResponse, text};
use super::routes::PathPart;

/// 501 with the name of the feature.
///
/// # Errors
/// Always [`Error::NotBuilt`].
pub(super) fn answer(feature: Feature) -> Result<RiakResponse, RiakFault> {
    Err(Error::NotBuilt(feature).into())
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
