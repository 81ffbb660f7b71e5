//! Features of Riak that are not built: refused by name, after the checks that need no such feature.

use larder_core::{Error, Feature};

use super::errors::RiakFault;
use super::reply::RiakResponse;

/// 501 with the name of the feature.
///
/// # Errors
/// Always [`Error::NotBuilt`].
pub(super) fn answer(feature: Feature) -> Result<RiakResponse, RiakFault> {
    Err(Error::NotBuilt(feature).into())
}
