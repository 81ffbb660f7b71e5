//! Deleting objects, versions and delete markers.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_model::objects::access::Asked;
use larder_model::objects::{Bucket, Permission, Version, Versioning};

use super::commit::{Place, Turn, id_text};
use super::get::{Deed, VersionSpec, holds};
use super::put::owner_of;
use super::{Caller, Error, Objects, Result};

/// Deleting an object.
const DELETE: Deed =
    Deed { current: "s3:DeleteObject", versioned: "s3:DeleteObjectVersion", permission: Some(Permission::Write) };

/// What a delete did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Whether a delete marker was written or removed.
    pub marker: bool,
    /// The version written or removed, as clients see it; `None` in a bucket that never kept versions.
    pub version_id: Option<String>,
}

impl Objects {
    /// Deletes: without a version the current object (a marker is written where versions are kept), with one that version for
    /// ever. What is not there is no error. `if_match`: entity tags of which one must be current, `*` any.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `BadVersionId`, `PreconditionFailed`.
    pub async fn delete(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        if_match: Option<Vec<String>>,
    ) -> Result<Deleted> {
        let bucket = self.bucket(bucket).await?;
        let action = DELETE.action(version);
        caller.check(&bucket, &Asked { action, permission: DELETE.permission, key: Some(key), version: None })?;
        version.check()?;
        let place = Place::of(&bucket, key);
        let owner = owner_of(caller, &bucket);
        let deleted = self
            .delete_if(&place, version, &owner, |_, found| match &if_match {
                Some(tags) => settled(tags, version, found),
                None => Ok(true),
            })
            .await?;
        Ok(deleted.unwrap_or_default())
    }

    /// Deletes as [`Self::delete`] does, whoever asks, if `wanted` says so of the bucket and the version as they are at that
    /// moment; `None`: it did not. `owner` owns the marker, if one is written.
    ///
    /// # Errors
    /// What `wanted` answers, and what a commit does.
    pub(super) async fn delete_if(
        &self,
        place: &Place,
        spec: &VersionSpec,
        owner: &str,
        wanted: impl Fn(&Turn<'_>, Option<&Version>) -> Result<bool>,
    ) -> Result<Option<Deleted>> {
        let mut race = self.race(place, None).reclaiming();
        loop {
            let turn = race.turn().await?;
            let found = turn.find(spec).await?;
            if !wanted(&turn, found.as_ref())? {
                return Ok(None);
            }
            // Older versions mean that versions are being switched on this moment: removing the newest would bring them back.
            let keeps = turn.bucket().versioning != Versioning::Off || turn.head.older;
            let (deleted, next) = match (spec, &found) {
                (VersionSpec::Current, _) if keeps => {
                    let marker = turn.new_version(owner.to_owned(), None);
                    let deleted = Deleted { marker: true, version_id: Some(id_text(&marker)) };
                    (deleted, turn.add(marker).await?)
                }
                (_, Some(found)) => (removed(turn.bucket(), found), turn.remove(found).await?),
                (_, None) => return Ok(Some(absent(turn.bucket(), spec))),
            };
            if turn.commit(next).await? {
                return Ok(Some(deleted));
            }
        }
    }
}

/// Whether to go on with a delete that names entity tags. What is not there, or reads as not there, is as good as deleted.
fn settled(tags: &[String], spec: &VersionSpec, found: Option<&Version>) -> Result<bool> {
    let object = found.and_then(|found| found.object.as_ref());
    match object {
        Some(object) if holds(tags, Some(object.etag)) => Ok(true),
        None if found.is_none() || *spec == VersionSpec::Current => Ok(false),
        _ => Err(Error::PreconditionFailed("If-Match")),
    }
}

fn removed(bucket: &Bucket, version: &Version) -> Deleted {
    let shown = bucket.versioning != Versioning::Off;
    Deleted { marker: version.object.is_none(), version_id: shown.then(|| id_text(version)) }
}

fn absent(bucket: &Bucket, spec: &VersionSpec) -> Deleted {
    match spec {
        VersionSpec::Id(text) if bucket.versioning != Versioning::Off => {
            Deleted { marker: false, version_id: Some(text.clone()) }
        }
        _ => Deleted::default(),
    }
}
