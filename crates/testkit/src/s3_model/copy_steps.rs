//! Copies of objects.

use std::rc::Rc;

use super::answers::{self, differs, same};
use super::asks::{AskedEncryption, Faults, ModelRequest};
use super::object_steps::{NamedVersion, escaped_key};
use super::state::{ModelEncryption, ModelMetadata, ModelObject, etag};
use super::{Checked, S3Model};
use crate::http::element;

/// The prefix of a copy source's headers of encryption.
const SOURCE: &str = "copy-source-";

impl S3Model<'_> {
    /// Adds a source with its conditions and its key; what is wrong with it joins the faults.
    pub(super) fn ask_source(
        &mut self,
        request: ModelRequest,
        source: &NamedVersion,
        faults: &mut Faults,
    ) -> (ModelRequest, Option<ModelObject>) {
        let id = source.id.as_ref().map(|id| format!("?versionId={id}")).unwrap_or_default();
        let path = format!("/{}/{}{id}", self.bucket_name(source.bucket), escaped_key(source.key));
        faults.extend(self.missing(source, if source.id.is_some() { "InvalidRequest" } else { "NoSuchKey" }));
        let object = self.version(source).and_then(|version| version.object.clone());
        let encryption = object.as_ref().map_or(ModelEncryption::Plain, |object| object.encryption);
        let request = request.header("x-amz-copy-source", path);
        let request = self.ask_key(request, SOURCE, encryption, object.is_some(), faults);
        let request = match (&object, self.dice.below(16)) {
            (Some(object), 0) => request.header("x-amz-copy-source-if-match", format!("\"{}\"", object.etag)),
            (Some(_), 1) => {
                faults.push("PreconditionFailed");
                request.header("x-amz-copy-source-if-match", format!("\"{}\"", "0".repeat(32)))
            }
            (Some(object), 2) => {
                faults.push("PreconditionFailed");
                request.header("x-amz-copy-source-if-none-match", format!("\"{}\"", object.etag))
            }
            _ => request,
        };
        (request, object)
    }

    pub(super) fn copy_object(&mut self) -> Checked {
        let (source, bucket, key) = (self.any_version(), self.any_bucket(), self.any_key());
        let mut faults: Faults = Vec::new();
        let request = ModelRequest::new("PUT", self.object_path(bucket, key));
        let (request, object) = self.ask_source(request, &source, &mut faults);
        // A copy onto itself has to change something.
        let replaces = self.dice.chance(400) || (source.bucket, source.key) == (bucket, key);
        let own = self.new_metadata();
        let is_public = own.is_public;
        let mut request = if replaces {
            let request = request.header("x-amz-metadata-directive", "REPLACE");
            self.ask_metadata(request.header("x-amz-tagging-directive", "REPLACE"), &own)
        } else if is_public {
            request.header("x-amz-acl", "public-read")
        } else {
            request
        };
        if replaces && own.tags.is_empty() {
            request = request.header("x-amz-tagging", "");
        }
        let (request, encryption) = self.ask_encryption(request, &mut faults);
        let has_lock = self.bucket(bucket).is_some_and(|bucket| bucket.lock.is_some());
        let (request, lock) = self.ask_lock(request, has_lock, &mut faults);
        if self.bucket(bucket).is_none() {
            faults.push("NoSuchBucket");
        }
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let Some(object) = object else { return differs("copy", "a refusal", answer.status) };
        let found = self.bucket(bucket).expect("the copy was served");
        let encryption = match encryption {
            AskedEncryption::Default => found.default_encryption(),
            AskedEncryption::Named(named) => named,
        };
        let lock = found.new_lock(lock, self.now());
        let text = answer.text();
        let shown = element(&text, "ETag").unwrap_or_default().replace("&quot;", "");
        // A copy of an object that was uploaded in parts may keep its tag and its parts, as a server does that copies no bytes.
        let keeps_parts = object.parts.is_some() && shown == object.etag;
        let etag = if keeps_parts { shown.clone() } else { etag(&object.bytes, encryption, &shown) };
        same("etag", &etag, &shown)?;
        answers::encryption(&answer, encryption)?;
        let source_id = self.version(&source).and_then(|version| version.id.clone());
        if source.id.is_some() && answer.header("x-amz-copy-source-version-id").is_some() {
            answers::header(&answer, "x-amz-copy-source-version-id", source_id.as_deref())?;
        }
        let metadata = match replaces {
            true => own,
            false => ModelMetadata { is_public, ..object.metadata },
        };
        let (bytes, parts) = (Rc::clone(&object.bytes), object.parts.filter(|_| keeps_parts));
        self.add_object(
            bucket,
            key,
            &answer,
            ModelObject { bytes, parts, etag, metadata, encryption, lock, sha256: None },
        )
    }
}
