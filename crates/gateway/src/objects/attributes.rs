//! What can be changed or asked of a version without its bytes: tags, and the attributes of objects made of parts.

use bytes::Bytes;
use larder_model::objects::{ManifestPart, Tag};

use super::get::{Found, GetObject, VersionSpec};
use super::{Caller, Objects, Result};

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
        unimplemented!()
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
        unimplemented!()
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
        unimplemented!()
    }
}
