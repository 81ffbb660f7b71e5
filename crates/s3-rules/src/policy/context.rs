//! The values of condition keys in a request.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::access_request::{AccessContext, AccessRequest};
use super::super::condition_keys::{EXISTING_TAG, REQUEST_TAG};
use super::super::tags::Tag;
use super::super::user::User;

/// A request, as conditions and variables read it.
#[derive(Clone, Copy)]
pub(super) struct ConditionContext<'a> {
    /// The caller; `None` is anonymous.
    pub(super) user: Option<&'a User>,
    /// The action and its target.
    pub(super) request: &'a AccessRequest<'a>,
    /// The other properties of the request.
    pub(super) context: &'a AccessContext,
}

impl ConditionContext<'_> {
    /// The values of a condition key in lower case; empty when the request does not have the key.
    pub(super) fn values(&self, key: &str) -> Vec<String> {
        if let Some(tag) = tag_key(key, EXISTING_TAG) {
            return tag_values(self.existing_tags(), tag);
        }
        if let Some(tag) = tag_key(key, REQUEST_TAG) {
            return tag_values(&self.context.request_tags, tag);
        }
        let at = &self.context;
        let value = match key {
            "aws:sourceip" => at.source.map(|source| source.to_canonical().to_string()),
            "aws:securetransport" => Some(at.secure.to_string()),
            "aws:currenttime" => time_text(at.now.0),
            "aws:epochtime" => Some((at.now.0 / 1_000_000).to_string()),
            "aws:username" => self.user.and_then(User::trusted_name).map(str::to_owned),
            "aws:userid" => self.user.map(|user| user.id.clone()),
            "aws:principaltype" => Some(self.principal_type().to_owned()),
            "s3:requestobjecttagkeys" => return at.request_tags.iter().map(|tag| tag.key.clone()).collect(),
            _ => return self.other_values(key),
        };
        value.into_iter().collect()
    }

    fn principal_type(&self) -> &'static str {
        match self.user {
            None => "Anonymous",
            Some(_) if self.context.is_session => "AssumedRole",
            Some(_) => "User",
        }
    }

    fn other_values(&self, key: &str) -> Vec<String> {
        let keys = self.context.keys.iter();
        keys.filter(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.clone()).collect()
    }

    fn existing_tags(&self) -> &[Tag] {
        self.request.version.and_then(|version| version.object.as_ref()).map_or(&[], |object| &object.tags)
    }
}

/// Whether a condition key is a tag of the object.
pub(super) fn is_existing_tag(key: &str) -> bool {
    tag_key(key, EXISTING_TAG).is_some()
}

/// The key of a tag at the end of a condition key with this prefix.
fn tag_key<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    key.split_at_checked(prefix.len()).filter(|(begin, _)| begin.eq_ignore_ascii_case(prefix)).map(|(_, tag)| tag)
}

/// The values of the tags with this key. Condition keys ignore case, so keys of tags do as well.
fn tag_values(tags: &[Tag], key: &str) -> Vec<String> {
    tags.iter().filter(|tag| tag.key.to_ascii_lowercase() == key).map(|tag| tag.value.clone()).collect()
}

fn time_text(micros: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(micros / 1_000_000).ok()?).ok()?;
    time.format(&Rfc3339).ok()
}
