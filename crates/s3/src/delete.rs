//! Deletes of objects, versions and delete markers.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::commit::{CasAttempt, HeadStore, KeyChange, ObjectLocation, version_id_text};
use super::conditions::{ask_for_tags, matches_etag};
use super::events::{ChangeCause, EventOrigin};
use super::get::VersionSpec;
use super::object_lock::GovernanceBypass;
use super::{Caller, Error, Objects, Result};
use crate::rules::notification::EventAction;
use crate::rules::{Bucket, ObjectHead, Version, Versioning};

/// The result of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletedObject {
    /// Whether it wrote or removed a delete marker.
    pub marker: bool,
    /// The id for clients of that version; `None` in a bucket that never had versioning.
    pub version_id: Option<String>,
}

impl Objects {
    /// Deletes the current object (in a bucket with versioning: adds a delete marker) or, with a version id, that version
    /// permanently. A missing object is no error. `if_match`: the current entity tag must be among these, `*` for any.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `BadVersionId`, `PreconditionFailed`; `Locked` for a version that a lock protects;
    /// `InvalidArgument` for a bypass in a bucket without object lock.
    #[expect(clippy::too_many_arguments, reason = "what the request names, as for every other call on a version")]
    pub async fn delete(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        if_match: Option<Vec<String>>,
        bypass: GovernanceBypass,
    ) -> Result<DeletedObject> {
        let bucket = self.buckets.find(bucket).await?;
        let asked = version.action(caller.action()?);
        caller.with_version(version).check(&bucket, &asked.on_key(key))?;
        version.check()?;
        let decides = if_match.is_some();
        self.heads.bring_before_change(&bucket, key, decides).await?;
        let bypass = bypass.resolve(&caller.with_version(version), &bucket, key)?;
        let location = ObjectLocation::new(&bucket, key);
        let owner = caller.object_owner(&bucket, false);
        let deleter = Deleter { owner: &owner, bypass, origin: EventOrigin::Request(caller) };
        let deleted = self
            .heads
            .delete_if(&location, version, deleter, |attempt, stored_version| match &if_match {
                Some(tags) => {
                    if ask_for_tags(tags) {
                        caller.check_tag_reader(attempt.bucket(), key, version, stored_version)?;
                    }
                    check_if_match(tags, version, stored_version)
                }
                None => Ok(true),
            })
            .await?;
        match deleted {
            Some(deleted) => Ok(deleted),
            None => self.heads.answer_absent(DeletedObject::default()).await,
        }
    }
}

impl HeadStore {
    /// Deletes like [`Objects::delete`], without a permission check, if `condition` accepts the bucket and version of the
    /// attempt; `None` otherwise.
    ///
    /// # Errors
    /// The errors of `condition` and of a commit; `Locked`.
    pub(super) async fn delete_if(
        &self,
        location: &ObjectLocation,
        spec: &VersionSpec,
        deleter: Deleter<'_>,
        condition: impl Fn(&CasAttempt<'_>, Option<&Version>) -> Result<bool>,
    ) -> Result<Option<DeletedObject>> {
        let Deleter { owner, bypass, origin } = deleter;
        // A full disk must accept deletes, or it stays full.
        let mut cas = self.cas_loop(location, None).reclaiming();
        loop {
            let attempt = cas.next_attempt().await?;
            // Race: a moving bucket keeps the marker of a deletion, whatever the request names [invariant 201].
            let hides = attempt.bucket().hides_markers() && !attempt.head.older;
            let spec = if hides && *spec == VersionSpec::Id("null".to_owned()) { &VersionSpec::Current } else { spec };
            let stored_version = attempt.find(spec).await?;
            // Race: `condition` tests the version of this attempt; the commit conflicts if it changes.
            if !condition(&attempt, stored_version.as_ref())? {
                return Ok(None);
            }
            // Race: while versioning is being enabled, removing the newest would bring an older one back [invariant 105].
            let is_versioned = attempt.bucket().versioning != Versioning::Off || attempt.head.older;
            let keeps = attempt.bucket().marks_deletions() || is_versioned;
            let told = |deletion: Deletion| ChangeCause { action: deletion.action(origin), origin };
            let (deleted, next, cause, marker) = match (spec, &stored_version) {
                (VersionSpec::Current, _) if keeps => {
                    let marker = attempt.new_version(owner.to_owned(), None);
                    let next = attempt.add(marker.clone()).await?;
                    if is_versioned {
                        let deleted = DeletedObject { marker: true, version_id: Some(version_id_text(&marker)) };
                        (deleted, next, told(Deletion::Hidden), Some(marker))
                    } else {
                        // The move alone knows the marker.
                        (DeletedObject::default(), next, told(Deletion::Removed), None)
                    }
                }
                (_, Some(stored_version)) => {
                    let deletion =
                        if stored_version.object.is_some() { Deletion::Removed } else { Deletion::MarkerRemoved };
                    let next = attempt.remove(stored_version, bypass).await?;
                    (removed(attempt.bucket(), stored_version), next, told(deletion), None)
                }
                (VersionSpec::Current, None) if !self.gateway.context().config.single_process => {
                    // Race: a put without an answer may still be finished, and no read shows it; after this swap it is not [invariant 164].
                    let head = ObjectHead { release: Vec::new(), ..attempt.head.clone() };
                    let next = KeyChange { head, ..KeyChange::default() };
                    (absent(attempt.bucket(), spec), next, told(Deletion::Removed), None)
                }
                (_, None) => {
                    let deleted = absent(attempt.bucket(), spec);
                    // As AWS does; a version that is not there is nobody's news.
                    if *spec == VersionSpec::Current {
                        attempt.announce(&told(Deletion::Removed).event(None)).await?;
                    }
                    return self.answer_absent(deleted).await.map(Some);
                }
            };
            let event = cause.event(marker.as_ref().or(stored_version.as_ref()));
            if attempt.commit(next, &event).await? {
                return Ok(Some(deleted));
            }
        }
    }
}

/// Who deletes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deleter<'a> {
    /// The owner of a new delete marker.
    pub(super) owner: &'a str,
    /// Whether it may bypass a governance retention, and asks to.
    pub(super) bypass: bool,
    pub(super) origin: EventOrigin<'a>,
}

impl<'a> Deleter<'a> {
    /// The lifecycle of a bucket, for its owner.
    pub(super) fn lifecycle(owner: &'a str) -> Self {
        Self { owner, bypass: false, origin: EventOrigin::Lifecycle }
    }
}

/// How a delete changes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deletion {
    /// A new delete marker hides its versions.
    Hidden,
    /// An object is removed.
    Removed,
    /// A delete marker is removed.
    MarkerRemoved,
}

impl Deletion {
    fn action(self, origin: EventOrigin<'_>) -> EventAction {
        match (self, origin) {
            (Self::Hidden, EventOrigin::Request(_)) => EventAction::Mark,
            (Self::Hidden, EventOrigin::Lifecycle) => EventAction::ExpireMark,
            (Self::Removed | Self::MarkerRemoved, EventOrigin::Request(_)) => EventAction::Delete,
            (Self::Removed, EventOrigin::Lifecycle) => EventAction::Expire,
            (Self::MarkerRemoved, EventOrigin::Lifecycle) => EventAction::ExpireMarker,
        }
    }
}

impl HeadStore {
    /// The answer for something that is not there, once that is on disk.
    async fn answer_absent(&self, deleted: DeletedObject) -> Result<DeletedObject> {
        // Crash: another delete may have no sync yet, and a power cut would bring the object back [invariant 149].
        self.gateway.blobs().releases.await_sync().await?;
        Ok(deleted)
    }
}

/// Whether a delete with entity tags proceeds. An object that is absent counts as deleted.
fn check_if_match(tags: &[String], spec: &VersionSpec, stored_version: Option<&Version>) -> Result<bool> {
    let object = stored_version.and_then(|stored_version| stored_version.object.as_ref());
    match object {
        Some(object) if matches_etag(tags, Some(object.etag)) => Ok(true),
        None if stored_version.is_none() || *spec == VersionSpec::Current => Ok(false),
        _ => Err(Error::PreconditionFailed("If-Match")),
    }
}

fn removed(bucket: &Bucket, version: &Version) -> DeletedObject {
    let shown = bucket.versioning != Versioning::Off;
    DeletedObject { marker: version.object.is_none(), version_id: shown.then(|| version_id_text(version)) }
}

fn absent(bucket: &Bucket, spec: &VersionSpec) -> DeletedObject {
    match spec {
        VersionSpec::Id(text) if bucket.versioning != Versioning::Off => {
            DeletedObject { marker: false, version_id: Some(text.clone()) }
        }
        _ => DeletedObject::default(),
    }
}
