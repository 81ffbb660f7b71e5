//! Tags, ACLs and attributes of versions.

use std::collections::BTreeMap;

use super::answers::{differs, elements, same};
use super::asks::{Faults, ModelRequest};
use super::object_steps::NamedVersion;
use super::state::{ModelEncryption, ModelObject};
use super::{Checked, S3Model};
use crate::http::element;

/// The tags of a document.
pub(super) fn parse_tags(text: &str) -> BTreeMap<String, String> {
    let pair = |tag: &&str| {
        let part = |name| element(tag, name).unwrap_or_default().to_owned();
        (part("Key"), part("Value"))
    };
    elements(text, "Tag").iter().map(pair).collect()
}

/// The document of these tags.
pub(super) fn tagging(tags: &BTreeMap<String, String>) -> String {
    let one = |(key, value): (&String, &String)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
    format!("<Tagging><TagSet>{}</TagSet></Tagging>", tags.iter().map(one).collect::<String>())
}

impl S3Model<'_> {
    /// The object of a served request about a version.
    pub(super) fn object_mut(&mut self, named: &NamedVersion) -> Option<&mut ModelObject> {
        self.bucket_mut(named.bucket).keys.get_mut(named.key)?.get_mut(named.at?)?.object.as_mut()
    }

    /// What is wrong with a request about the metadata of a version. For a delete marker that is not named AWS answers by operation.
    pub(super) fn missing_metadata(&self, named: &NamedVersion) -> Faults {
        let is_marker = self.version(named).is_some_and(|version| version.object.is_none());
        let other = (is_marker && named.id.is_none()).then_some("MethodNotAllowed");
        self.missing(named, "MethodNotAllowed").into_iter().chain(other).collect()
    }

    pub(super) fn put_tags(&mut self) -> Checked {
        let named = self.any_version();
        let mut faults = self.missing_metadata(&named);
        let target = self.target(&named, "tagging");
        if self.dice.chance(250) {
            let request = ModelRequest::new("DELETE", target);
            if self.expect(&request, &faults, &[204])?.is_some()
                && let Some(object) = self.object_mut(&named)
            {
                object.metadata.tags.clear();
            }
            return Ok(());
        }
        let tags: BTreeMap<String, String> =
            (0..self.dice.below(4)).map(|number| (format!("t{number}"), self.dice.below(9).to_string())).collect();
        let mut document = tagging(&tags);
        if self.dice.chance(80) {
            faults.push("InvalidTag");
            let twice = "<Tag><Key>x</Key><Value>1</Value></Tag>".repeat(2);
            document = document.replace("<TagSet>", &format!("<TagSet>{twice}"));
        }
        let request = ModelRequest::new("PUT", target).document(&document);
        if self.expect(&request, &faults, &[200])?.is_some()
            && let Some(object) = self.object_mut(&named)
        {
            object.metadata.tags = tags;
        }
        Ok(())
    }

    pub(super) fn get_tags(&mut self) -> Checked {
        let named = self.any_version();
        let faults = self.missing_metadata(&named);
        let request = ModelRequest::new("GET", self.target(&named, "tagging"));
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let tags = self.version(&named).and_then(|version| Some(&version.object.as_ref()?.metadata.tags));
        same("tags", tags.cloned(), Some(parse_tags(&answer.text())))
    }

    pub(super) fn put_acl(&mut self) -> Checked {
        let named = self.any_version();
        let faults = self.missing_metadata(&named);
        let is_public = self.dice.chance(400);
        let target = self.target(&named, "acl");
        let request = ModelRequest::new("PUT", &target);
        let request = request.header("x-amz-acl", if is_public { "public-read" } else { "private" });
        if self.expect(&request, &faults, &[200])?.is_none() {
            return Ok(());
        }
        if let Some(object) = self.object_mut(&named) {
            object.metadata.is_public = is_public;
        }
        let Some(answer) = self.expect(&ModelRequest::new("GET", target), &[], &[200])? else { return Ok(()) };
        same("public grant", is_public, answer.text().contains("/AllUsers"))
    }

    pub(super) fn get_attributes(&mut self) -> Checked {
        let named = self.any_version();
        let mut faults: Faults = self.missing(&named, "MethodNotAllowed").into_iter().collect();
        let object = self.version(&named).and_then(|version| version.object.clone());
        let encryption = object.as_ref().map_or(ModelEncryption::Plain, |object| object.encryption);
        let request = ModelRequest::new("GET", self.target(&named, "attributes"));
        let request = request.header("x-amz-object-attributes", "ETag,ObjectSize,ObjectParts");
        let request = self.ask_key(request, "", encryption, object.is_some(), &mut faults);
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let Some(object) = object else { return differs("attributes", "a refusal", answer.status) };
        let text = answer.text();
        same("etag", Some(object.etag.as_str()), element(&text, "ETag").map(|tag| tag.trim_matches('"')))?;
        same("size", Some(object.bytes.len().to_string().as_str()), element(&text, "ObjectSize"))?;
        let parts = object.parts.map(|parts| parts.len().to_string());
        same("parts", parts.as_deref(), element(&text, "PartsCount").or(element(&text, "TotalPartsCount")))
    }
}
