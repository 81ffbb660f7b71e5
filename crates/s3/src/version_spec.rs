//! The version that a request names.

use crate::rules::{S3Action, Version, VersionId};
use crate::{Error, Result};

/// The version a request names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum VersionSpec {
    /// The current version.
    #[default]
    Current,
    /// The version with this id, as given; `null` is one.
    Id(String),
}

impl VersionSpec {
    /// The action that `action` is on this version.
    pub(crate) fn action(&self, action: S3Action) -> S3Action {
        match self {
            Self::Current => action,
            Self::Id(_) => action.versioned(),
        }
    }

    /// The error for this version without an object: a delete marker, or absent.
    pub(crate) fn missing_error(&self, marker: Option<&Version>) -> Error {
        match (marker, self) {
            (Some(&Version { id, null, modified, .. }), spec) => {
                Error::DeleteMarker { id, null, modified, current: *spec == Self::Current }
            }
            (None, Self::Current) => Error::NoSuchKey,
            (None, Self::Id(text)) => Error::NoSuchVersion(text.clone()),
        }
    }

    /// Refuses a malformed version id.
    ///
    /// # Errors
    /// `BadVersionId`.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Id(text) if text != "null" && VersionId::from_text(text).is_none() => {
                Err(Error::BadVersionId(text.clone()))
            }
            _ => Ok(()),
        }
    }
}
