//! What a request has to say about itself, by condition key.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::access::{Asked, Circumstances};
use super::super::tags::Tag;
use super::super::user::User;

/// A request, as conditions and variables see it.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// Who asks.
    pub(super) user: Option<&'a User>,
    /// For what.
    pub(super) asked: &'a Asked<'a>,
    /// And all else.
    pub(super) circumstances: &'a Circumstances,
}

/// Prefixes of keys that end in the key of a tag.
const EXISTING_TAG: &str = "s3:existingobjecttag/";
const REQUEST_TAG: &str = "s3:requestobjecttag/";

impl Context<'_> {
    /// The values of a condition key, which is in lower case; none when the request does not have it.
    pub(super) fn values(&self, key: &str) -> Vec<String> {
        if let Some(tag) = key.strip_prefix(EXISTING_TAG) {
            return tagged(self.existing_tags(), tag);
        }
        if let Some(tag) = key.strip_prefix(REQUEST_TAG) {
            return tagged(&self.circumstances.request_tags, tag);
        }
        let at = &self.circumstances;
        let one = match key {
            "aws:sourceip" => at.source.map(|source| source.to_canonical().to_string()),
            "aws:securetransport" => Some(at.secure.to_string()),
            "aws:currenttime" => time_text(at.now),
            "aws:epochtime" => Some((at.now / 1_000_000).to_string()),
            "aws:username" => self.user.map(|user| user.name.clone()),
            "aws:userid" => self.user.map(|user| user.id.clone()),
            "aws:principaltype" => Some(if self.user.is_some() { "User" } else { "Anonymous" }.to_owned()),
            "s3:requestobjecttagkeys" => return at.request_tags.iter().map(|tag| tag.key.clone()).collect(),
            _ => return self.others(key),
        };
        one.into_iter().collect()
    }

    fn others(&self, key: &str) -> Vec<String> {
        let keys = self.circumstances.keys.iter();
        keys.filter(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.clone()).collect()
    }

    fn existing_tags(&self) -> &[Tag] {
        self.asked.version.and_then(|version| version.object.as_ref()).map_or(&[], |object| &object.tags)
    }
}

/// Condition keys are compared without case, so the keys of tags are as well.
fn tagged(tags: &[Tag], key: &str) -> Vec<String> {
    tags.iter().filter(|tag| tag.key.to_ascii_lowercase() == key).map(|tag| tag.value.clone()).collect()
}

fn time_text(micros: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(micros / 1_000_000).ok()?).ok()?;
    time.format(&Rfc3339).ok()
}
