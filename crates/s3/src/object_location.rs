//! A key of a bucket: its place in the store, the row of its head, and its versions as clients name them.

use bytes::Bytes;
use larder_core::Core;
use larder_rows::{Row, Timestamp};
use larder_store::{CallOptions, Partition, Range, ReadQuery};

use crate::rules::{Bucket, BucketId, ObjectBody, Release, S3Action, Version, VersionId, Versioning};
use crate::{Error, Result};

/// A key of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectLocation {
    /// The bucket's name.
    pub(crate) name: String,
    /// The bucket's id.
    pub(crate) id: BucketId,
    /// The key.
    pub(crate) key: Bytes,
}

impl ObjectLocation {
    /// The location of `key` in this bucket.
    pub(crate) fn new(bucket: &Bucket, key: &Bytes) -> Self {
        Self { name: bucket.name.clone(), id: bucket.id, key: key.clone() }
    }

    /// The partition of the key's head and versions.
    pub(crate) fn partition(&self) -> Partition {
        Partition::head(self.id, &self.key)
    }
}

pub(crate) async fn read_head_row(gateway: &Core, partition: &Partition, options: &CallOptions) -> Result<Option<Row>> {
    // The head has the empty name; a version row may hold a body, and is not read.
    let range = Range { from: None, to: Some(Bytes::from_static(b"\0")) };
    let query = ReadQuery { range, ..ReadQuery::all(1) };
    Ok(gateway.context().ports.store.read(partition, &query, options).await?.rows.into_iter().next())
}

/// A version's id for clients; `None` in a bucket that never had versioning.
pub(crate) fn client_version_id(bucket: &Bucket, version: &Version) -> Option<String> {
    (bucket.versioning != Versioning::Off).then(|| version_id_text(version))
}

/// When, and by which rule, the lifecycle will remove a version that is the current one.
pub(crate) fn lifecycle_expiry(bucket: &Bucket, key: &[u8], version: &Version) -> Option<(Timestamp, String)> {
    let (when, rule) = bucket.lifecycle.as_ref()?.version_expiry(key, version)?;
    Some((when, rule.to_owned()))
}

/// A version's id for clients in a bucket with versioning.
pub(crate) fn version_id_text(version: &Version) -> String {
    if version.null { "null".to_owned() } else { version.id.text() }
}

/// The blob or manifest a version references; `None` for an inline body.
pub(crate) fn external_body(version: &Version) -> Option<Release> {
    match version.object.as_ref()?.body {
        ObjectBody::Inline(_) => None,
        ObjectBody::Blob { id, .. } => Some(Release::Blob(id)),
        ObjectBody::Parts { manifest, .. } => Some(Release::Parts(manifest)),
    }
}

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
