//! Tags of a version, and the attributes of multipart objects: requests that need no object bytes.

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::commit::{ObjectLocation, client_version_id};
use super::events::ChangeCause;
use super::get::{FoundObject, GetObject, ManifestCursor, VersionSpec};
use super::{Caller, Objects, Result};
use crate::rules::notification::EventAction;
use crate::rules::{Bucket, ManifestPart, Object, ObjectBody, S3Action, Tag, VersionId};

/// Most attempts to read attributes of an object that is being replaced.
const RETRIES_MAX: usize = 8;

impl Objects {
    /// The tags of a version, and its id for clients.
    ///
    /// # Errors
    /// As a get of the object.
    pub async fn object_tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
    ) -> Result<(Vec<Tag>, Option<String>)> {
        let located = self.locate(caller, bucket, key, version).await?;
        let shown = client_version_id(&located.bucket, &located.version);
        Ok((located.version.object.map(|object| object.tags).unwrap_or_default(), shown))
    }

    /// Replaces or deletes the tags of a version; returns its id for clients.
    ///
    /// # Errors
    /// As a get of the object, and the errors of a commit.
    pub async fn put_object_tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        tags: Vec<Tag>,
    ) -> Result<Option<String>> {
        let located = self.locate(caller, bucket, key, version).await?;
        let is_removal = matches!(caller.action, Some(S3Action::DeleteObjectTagging));
        let action = if is_removal { EventAction::DeleteTags } else { EventAction::PutTags };
        let cause = ChangeCause::request(action, caller);
        let change = |object: &mut Object| {
            object.tags.clone_from(&tags);
            Ok(())
        };
        self.change_object(&located.bucket, key, version, cause, change).await
    }

    /// Changes the object of a version in place; returns its id for clients. The permission is checked before.
    ///
    /// # Errors
    /// Those of `change`, of a version that is not there, and of a commit.
    pub(super) async fn change_object(
        &self,
        bucket: &Bucket,
        key: &Bytes,
        version: &VersionSpec,
        cause: ChangeCause<'_>,
        change: impl Fn(&mut Object) -> Result<()>,
    ) -> Result<Option<String>> {
        let location = ObjectLocation::new(bucket, key);
        let mut cas = self.heads.cas_loop(&location, None);
        loop {
            let attempt = cas.next_attempt().await?;
            // Race: a put may have come since the check; the change goes to the version that the compare-and-set expects. It is
            // judged by that one's lock, too: of two changes at once the second sees the first, and a removal that was decided on
            // an older lock fails [invariant 166].
            let mut stored_version = attempt.find(version).await?.ok_or_else(|| version.missing_error(None))?;
            let Some(object) = &mut stored_version.object else {
                return Err(version.missing_error(Some(&stored_version)));
            };
            change(object)?;
            let shown = client_version_id(attempt.bucket(), &stored_version);
            let next = attempt.rewrite(stored_version.clone());
            if attempt.commit(next, &cause.event(Some(&stored_version))).await? {
                return Ok(shown);
            }
        }
    }

    /// An object and a page of its parts: those with numbers above `after`, at most `max`; whether there are more. The
    /// caller needs permission to get the object too.
    ///
    /// # Errors
    /// As a head of the object.
    pub async fn object_attributes(
        &self,
        caller: &Caller,
        request: &GetObject,
        after: u32,
        max: usize,
    ) -> Result<(FoundObject, Vec<ManifestPart>, bool)> {
        let reader = caller.with_action(S3Action::GetObject);
        for _ in 0..RETRIES_MAX {
            let found_object = self.head(&reader, request).await?;
            let bucket = self.buckets.find(&request.bucket).await?;
            let action = request.version.action(caller.action()?);
            caller.check(&bucket, &action.on_version(&request.key, Some(&found_object.version)))?;
            let body = found_object.version.object.as_ref().map(|object| &object.body);
            let Some(ObjectBody::Parts { manifest, count, .. }) = body else {
                return Ok((found_object, Vec::new(), false));
            };
            // Race: an overwrite may remove the manifest after the head was read; the next round finds its version.
            if let Some((parts, more)) = self.parts_page(*manifest, *count, after, max).await? {
                return Ok((found_object, parts, more));
            }
        }
        Err(super::get::missing_bytes())
    }

    /// The parts with numbers above `after`, at most `max`, and whether there are more; `None` if the manifest is incomplete.
    async fn parts_page(
        &self,
        manifest: VersionId,
        count: u32,
        after: u32,
        max: usize,
    ) -> Result<Option<(Vec<ManifestPart>, bool)>> {
        let (mut cursor, mut page) = (ManifestCursor::new(manifest), Vec::new());
        for _ in 0..count {
            let Some((_, part)) = cursor.next(&self.gateway).await? else { return Ok(None) };
            if u32::from(part.number) <= after {
                continue;
            }
            if page.len() == max {
                return Ok(Some((page, true)));
            }
            page.push(part);
        }
        Ok(Some((page, false)))
    }
}
