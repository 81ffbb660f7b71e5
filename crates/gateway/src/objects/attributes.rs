//! What can be changed or asked of a version without its bytes: tags, and the attributes of objects made of parts.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_model::objects::access::Asked;
use larder_model::objects::{ManifestPart, Object, ObjectBody, Permission, Tag, Version, VersionId};

use super::commit::{Place, shown_id};
use super::get::{Deed, Found, GetObject, VersionSpec, Walk};
use super::{Caller, Error, Objects, Result};

/// Reading tags: no list of grants grants that.
pub(super) const GET_TAGS: Deed =
    Deed { current: "s3:GetObjectTagging", versioned: "s3:GetObjectVersionTagging", permission: None };
/// Replacing tags.
const PUT_TAGS: Deed =
    Deed { current: "s3:PutObjectTagging", versioned: "s3:PutObjectVersionTagging", permission: None };
/// Asking for attributes, beside reading the object.
const ATTRIBUTES: Deed = Deed {
    current: "s3:GetObjectAttributes",
    versioned: "s3:GetObjectVersionAttributes",
    permission: Some(Permission::Read),
};
/// How often attributes are looked for again because their object was replaced meanwhile.
const RETRIES_MAX: usize = 8;

impl Objects {
    /// The tags of a version, and its id as clients see it.
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
        let located = self.locate(caller, bucket, key, version, GET_TAGS).await?;
        let shown = shown_id(&located.bucket, &located.version);
        Ok((located.version.object.map(|object| object.tags).unwrap_or_default(), shown))
    }

    /// Replaces the tags of a version; answers its id as clients see it.
    ///
    /// # Errors
    /// As a get of the object.
    pub async fn put_object_tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &Bytes,
        version: &VersionSpec,
        tags: Vec<Tag>,
    ) -> Result<Option<String>> {
        let located = self.locate(caller, bucket, key, version, PUT_TAGS).await?;
        let place = Place::of(&located.bucket, key);
        self.rewrite(&place, version, |object, _| object.tags.clone_from(&tags)).await
    }

    /// Changes what an object says beside its bytes, in whichever row its version is; answers its id as clients see it.
    /// `change` gets the object and its owner. Who may was asked before.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchVersion` or `DeleteMarker` when it is gone by now, and what a commit answers.
    pub(super) async fn rewrite(
        &self,
        place: &Place,
        spec: &VersionSpec,
        change: impl Fn(&mut Object, &str),
    ) -> Result<Option<String>> {
        let mut race = self.race(place, None);
        loop {
            let turn = race.turn().await?;
            let mut version = turn.find(spec).await?.ok_or_else(|| gone(spec))?;
            let Version { id, null, modified, owner, object } = &mut version;
            let Some(object) = object else {
                let current = *spec == VersionSpec::Current;
                return Err(Error::DeleteMarker { id: *id, null: *null, modified: *modified, current });
            };
            change(object, owner);
            let shown = shown_id(turn.bucket(), &version);
            let next = turn.rewrite(version);
            if turn.commit(next).await? {
                return Ok(shown);
            }
        }
    }

    /// An object and a page of its parts: those behind `after`, at most `max`; whether there are more.
    ///
    /// # Errors
    /// As a head of the object.
    pub async fn object_attributes(
        &self,
        caller: &Caller,
        request: &GetObject,
        after: u32,
        max: usize,
    ) -> Result<(Found, Vec<ManifestPart>, bool)> {
        for _ in 0..RETRIES_MAX {
            let found = self.head(caller, request).await?;
            let bucket = self.bucket(&request.bucket).await?;
            let (action, permission) = (ATTRIBUTES.action(&request.version), ATTRIBUTES.permission);
            let asked = Asked { action, permission, key: Some(&request.key), version: Some(&found.version) };
            caller.check(&bucket, &asked)?;
            let body = found.version.object.as_ref().map(|object| &object.body);
            let Some(ObjectBody::Parts { manifest, count, .. }) = body else { return Ok((found, Vec::new(), false)) };
            if let Some((parts, more)) = self.parts_page(*manifest, *count, after, max).await? {
                return Ok((found, parts, more));
            }
        }
        Err(super::get::missing_bytes())
    }

    /// The parts with numbers above `after`, at most `max`, and whether there are more; `None` when not all are there.
    async fn parts_page(
        &self,
        manifest: VersionId,
        count: u32,
        after: u32,
        max: usize,
    ) -> Result<Option<(Vec<ManifestPart>, bool)>> {
        let (mut walk, mut page) = (Walk::new(manifest), Vec::new());
        for _ in 0..count {
            let Some((_, part)) = walk.next(&self.gateway).await? else { return Ok(None) };
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

fn gone(spec: &VersionSpec) -> Error {
    match spec {
        VersionSpec::Current => Error::NoSuchKey,
        VersionSpec::Id(text) => Error::NoSuchVersion(text.clone()),
    }
}
