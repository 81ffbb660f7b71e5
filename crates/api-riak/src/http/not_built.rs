//! What Riak has and Larder not yet: refused by name, after the checks that do not need it.

use hyper::StatusCode;
use hyper::header::LOCATION;

use larder_gateway::{Error, Feature};

use super::call::Call;
use super::headers::insert;
use super::props::unknown_is_a_page;
use super::reply::{Fault, Reply, text};
use super::routes::Part;
use crate::errors::unknown_type;

/// 501 with the name of the feature.
///
/// # Errors
/// Always: that is the answer.
pub(super) fn answer(feature: Feature) -> Result<Reply, Fault> {
    Err(Error::NotBuilt(feature).into())
}

/// A secondary-index query: of an unknown type, the page of a 404.
///
/// # Errors
/// The feature is not built.
pub(super) async fn index(call: &Call<'_>) -> Result<Reply, Fault> {
    match call.gateway.type_props(&call.bucket_type()).await {
        Ok(_) => answer(Feature::SecondaryIndexes),
        Err(error) => unknown_is_a_page(error),
    }
}

/// A link walk: never in a type, as in Riak.
///
/// # Errors
/// The feature is not built.
pub(super) fn link_walk(call: &Call<'_>) -> Result<Reply, Fault> {
    if call.route.place(Part::Type).is_some() && !call.raw(Part::Type).eq("default") {
        return Ok(text(StatusCode::FORBIDDEN, "Link-walking is not allowed on keys stored in bucket-types."));
    }
    answer(Feature::LinkWalking)
}

/// A data type: in type `default` it is an old counter, at its old place.
///
/// # Errors
/// The feature is not built.
pub(super) async fn data_type(call: &Call<'_>) -> Result<Reply, Fault> {
    let name = call.bucket_type();
    if name == larder_model::address::DEFAULT_TYPE && call.route.place(Part::Key).is_some() {
        let place = format!("/buckets/{}/counters/{}", call.raw(Part::Bucket), call.raw(Part::Key));
        let moved = "Counters in the default bucket-type should use the legacy URL\n";
        let mut reply = text(StatusCode::MOVED_PERMANENTLY, moved);
        insert(reply.headers_mut(), LOCATION, place);
        return Ok(reply);
    }
    match call.gateway.type_props(&name).await {
        Ok(_) => answer(Feature::DataTypes),
        Err(Error::UnknownType(name)) => Ok(text(StatusCode::NOT_FOUND, unknown_type(&name) + "\n")),
        Err(error) => Err(error.into()),
    }
}
