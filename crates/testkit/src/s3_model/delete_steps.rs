//! Deletes of objects and versions.

use super::answers::{differs, elements, header, same};
use super::asks::{Faults, ModelRequest};
use super::object_steps::NamedVersion;
use super::state::{Certainty, ModelLock, ModelVersion, ModelVersioning};
use super::{Checked, S3Model};
use crate::http::element;

impl S3Model<'_> {
    pub(super) fn delete_object(&mut self) -> Checked {
        let named = self.any_version();
        let (request, bypass) = self.ask_bypass(ModelRequest::new("DELETE", self.target(&named, "")));
        let mut faults: Faults = Vec::new();
        if self.bucket(named.bucket).is_none() {
            faults.push("NoSuchBucket");
        } else if named.id.is_some() {
            let lock = self.version(&named).map(ModelVersion::lock).unwrap_or_default();
            match self.state.protects(lock, self.now(), bypass) {
                Certainty::Yes => faults.push("AccessDenied"),
                Certainty::No => {}
                Certainty::Unsure => return Ok(()),
            }
        }
        let Some(answer) = self.expect(&request, &faults, &[204])? else { return Ok(()) };
        let (is_marker, id) = self.follow_delete(&named, answer.header("x-amz-version-id"))?;
        header(&answer, "x-amz-delete-marker", is_marker.then_some("true"))?;
        let never = self.bucket(named.bucket).is_some_and(|bucket| bucket.versioning == ModelVersioning::Never);
        match answer.header("x-amz-version-id") {
            None if never => Ok(()),
            shown => same("version id", id.as_deref(), shown),
        }
    }

    /// Adds the header that asks for a bypass, or not. It has no meaning where a bucket has no object lock.
    pub(super) fn ask_bypass(&mut self, request: ModelRequest) -> (ModelRequest, bool) {
        match self.dice.chance(300) {
            true => (request.header("x-amz-bypass-governance-retention", "true"), true),
            false => (request, false),
        }
    }

    /// Follows a served delete: whether it made or removed a delete marker, and the id that its answer has to show.
    pub(super) fn follow_delete(
        &mut self,
        named: &NamedVersion,
        shown: Option<&str>,
    ) -> Result<(bool, Option<String>), String> {
        if let Some(id) = &named.id {
            let is_marker = self.version(named).is_some_and(|version| version.object.is_none());
            if let Some(at) = named.at {
                self.bucket_mut(named.bucket).remove(named.key, at);
            }
            return Ok((is_marker, Some(id.clone())));
        }
        let versioning = self.bucket(named.bucket).expect("the delete was served").versioning;
        if versioning == ModelVersioning::Never {
            if named.at.is_some() {
                self.bucket_mut(named.bucket).remove(named.key, 0);
            }
            return Ok((false, None));
        }
        let id = self.new_version_id(named.bucket, named.key, shown)?;
        let marker = ModelVersion { id: Some(id.clone()), modified: self.now(), object: None };
        self.bucket_mut(named.bucket).add(named.key, marker);
        Ok((true, Some(id)))
    }

    pub(super) fn delete_objects(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let mut listed: Vec<NamedVersion> = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            let named = self.any_version();
            // Two of one key would depend on their order.
            if named.bucket == bucket && listed.iter().all(|other| other.key != named.key) {
                listed.push(named);
            }
        }
        if listed.is_empty() {
            return Ok(());
        }
        let path = format!("/{}?delete", self.bucket_name(bucket));
        let (request, bypass) = self.ask_bypass(ModelRequest::new("POST", path));
        let now = self.now();
        let lock = |named: &NamedVersion| match named.id {
            Some(_) => self.version(named).map(ModelVersion::lock).unwrap_or_default(),
            None => ModelLock::default(),
        };
        let protected: Vec<Certainty> =
            listed.iter().map(|named| self.state.protects(lock(named), now, bypass)).collect();
        if protected.contains(&Certainty::Unsure) {
            return Ok(());
        }
        let one = |named: &NamedVersion| {
            let id = named.id.as_ref().map(|id| format!("<VersionId>{id}</VersionId>")).unwrap_or_default();
            format!("<Object><Key>{}</Key>{id}</Object>", named.key)
        };
        let document = format!("<Delete>{}</Delete>", listed.iter().map(one).collect::<String>());
        let faults: Faults = if self.bucket(bucket).is_none() { vec!["NoSuchBucket"] } else { vec![] };
        let Some(answer) = self.expect(&request.document(&document), &faults, &[200])? else { return Ok(()) };
        let text = answer.text();
        let (deleted, refused) = (elements(&text, "Deleted"), elements(&text, "Error"));
        let outcome_of = |list: &[&str], key: &str| {
            list.iter().find(|one| element(one, "Key") == Some(key)).map(|one| (*one).to_owned())
        };
        for (named, protected) in listed.iter().zip(protected) {
            if protected == Certainty::Yes {
                let Some(error) = outcome_of(&refused, named.key) else { return differs("error", named, &text) };
                same("code", Some("AccessDenied"), element(&error, "Code"))?;
                continue;
            }
            let Some(one) = outcome_of(&deleted, named.key) else { return differs("deleted", named, &text) };
            let shown = element(&one, "DeleteMarkerVersionId").map(str::to_owned);
            let (is_marker, id) = self.follow_delete(named, shown.as_deref())?;
            same("delete marker", is_marker.then_some("true"), element(&one, "DeleteMarker"))?;
            same("marker's id", id.filter(|_| is_marker), shown)?;
        }
        Ok(())
    }
}
