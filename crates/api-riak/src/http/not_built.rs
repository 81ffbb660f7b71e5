//! Features of Riak that are not built: refused by name, after the checks that need no such feature.

use hyper::StatusCode;
use hyper::header::LOCATION;

use larder_gateway::{Error, Feature};

use super::call::RiakCall;
use super::errors::{RiakFault, unknown_type};
use super::headers::insert;
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

/// A data type. In type `default` it redirects to the path of the old counters.
///
/// # Errors
/// The feature is not built.
pub(super) async fn data_type(call: &RiakCall<'_>) -> Result<RiakResponse, RiakFault> {
    let name = call.bucket_type();
    if name == larder_model::address::DEFAULT_TYPE && call.route.place(PathPart::Key).is_some() {
        let place = format!("/buckets/{}/counters/{}", call.raw(PathPart::Bucket), call.raw(PathPart::Key));
        let moved = "Counters in the default bucket-type should use the legacy URL\n";
        let mut reply = text(StatusCode::MOVED_PERMANENTLY, moved);
        insert(reply.headers_mut(), LOCATION, place);
        return Ok(reply);
    }
    match call.gateway.types.props(&name).await {
        Ok(_) => answer(Feature::DataTypes),
        Err(Error::UnknownType(name)) => Ok(text(StatusCode::NOT_FOUND, unknown_type(&name) + "\n")),
        Err(error) => Err(error.into()),
    }
}
