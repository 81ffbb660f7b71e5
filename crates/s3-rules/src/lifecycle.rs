//! Lifecycle rules: the expiry of objects, noncurrent versions, delete markers and unfinished uploads.
//!
//! A decision is the time of expiry and the id of the rule, the earliest when several rules apply. The caller compares it with
//! the current time. Days count as at AWS: so many days after the event, and on to the next midnight UTC.

use larder_rows::Timestamp;
use larder_rows::limits::LIFECYCLE_RULES_MAX;
use serde::{Deserialize, Serialize};

use super::tags::Tag;
use super::version::{Object, Version};

/// Longest ID of a rule, in characters.
const ID_CHARS_MAX: usize = 255;

/// Most noncurrent versions that a rule may keep.
const KEPT_VERSIONS_MAX: u32 = 100;

/// Most days of a rule.
const DAYS_MAX: u32 = i32::MAX as u32;

/// One day.
const DAY_MICROS: u64 = 86_400_000_000;

/// The end of the year 9999. An expiry from then on counts as none: a header could not show it.
const NEVER: Timestamp = Timestamp(253_402_300_800_000_000);

/// The lifecycle rules of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lifecycle {
    /// The rules, at most [`LIFECYCLE_RULES_MAX`].
    pub rules: Vec<LifecycleRule>,
}

/// A lifecycle rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LifecycleRule {
    /// Its ID; the server makes one when the client sends none.
    pub id: String,
    /// Whether it applies.
    pub enabled: bool,
    /// The objects that it applies to.
    pub filter: LifecycleFilter,
    /// Whether the client sent the prefix in the old form, as a child of the rule. Documents then show it in that form.
    pub legacy_prefix: bool,
    /// The expiry of current versions.
    pub expiration: Option<Expiration>,
    /// The expiry of noncurrent versions.
    pub noncurrent: Option<NoncurrentExpiration>,
    /// Days after which an unfinished upload is aborted.
    pub abort_uploads_days: Option<u32>,
}

/// The conditions for objects that a rule applies to. All must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LifecycleFilter {
    /// The prefix of the key.
    pub prefix: Option<String>,
    /// Tags that the object has.
    pub tags: Vec<Tag>,
    /// The object is larger than this, in bytes.
    pub larger_than: Option<u64>,
    /// The object is smaller than this, in bytes.
    pub smaller_than: Option<u64>,
}

/// The expiry of current versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiration {
    /// At the first midnight UTC more than so many days after their last modification.
    Days(u32),
    /// At this time, a midnight UTC.
    Date(Timestamp),
    /// `ExpiredObjectDeleteMarker`: at once, but only delete markers that are the last version of their key.
    #[serde(rename = "MarkersLeft")]
    ExpiredDeleteMarkers,
}

/// The expiry of noncurrent versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoncurrentExpiration {
    /// Days after the version became noncurrent.
    pub days: u32,
    /// `NewerNoncurrentVersions`: so many of the newest stay at any age.
    pub keep: Option<u32>,
}

impl Lifecycle {
    /// The expiry of the current `version` of `key`, with the id of the rule. `None` for a delete marker, which
    /// [`Self::delete_marker_expiry`] decides.
    #[must_use]
    pub fn version_expiry(&self, key: &[u8], version: &Version) -> Option<(Timestamp, &str)> {
        let object = version.object.as_ref()?;
        self.earliest(|rule| match rule.expiration? {
            _ if !rule.filter.matches(key, Some(object)) => None,
            Expiration::Days(days) => Some(midnight_after(version.modified, days)),
            Expiration::Date(date) => Some(date),
            Expiration::ExpiredDeleteMarkers => None,
        })
    }

    /// The expiry of a delete marker that is the last version of `key`, with the id of the rule. `marked` is the time of the
    /// delete. A rule for days expires it like an object of its age.
    #[must_use]
    pub fn delete_marker_expiry(&self, key: &[u8], marked: Timestamp) -> Option<(Timestamp, &str)> {
        self.earliest(|rule| match rule.expiration? {
            _ if !rule.filter.matches(key, None) => None,
            Expiration::Days(days) => Some(midnight_after(marked, days)),
            Expiration::ExpiredDeleteMarkers => Some(marked),
            Expiration::Date(_) => None,
        })
    }

    /// The expiry of a `version` of `key` that became noncurrent at `replaced_at`, with the id of the rule. `newer` is the
    /// number of noncurrent versions that are newer than this one.
    #[must_use]
    pub fn noncurrent_expiry(
        &self,
        key: &[u8],
        version: &Version,
        replaced_at: Timestamp,
        newer: u64,
    ) -> Option<(Timestamp, &str)> {
        self.earliest(|rule| {
            let noncurrent = rule.noncurrent?;
            let is_kept = noncurrent.keep.is_some_and(|keep| newer < u64::from(keep));
            let expires = !is_kept && rule.filter.matches(key, version.object.as_ref());
            expires.then(|| midnight_after(replaced_at, noncurrent.days))
        })
    }

    /// The time at which an upload of `key`, created at `initiated`, is aborted, with the id of the rule.
    #[must_use]
    pub fn upload_expiry(&self, key: &[u8], initiated: Timestamp) -> Option<(Timestamp, &str)> {
        self.earliest(|rule| {
            let days = rule.abort_uploads_days?;
            rule.filter.matches(key, None).then(|| midnight_after(initiated, days))
        })
    }

    /// Checks rules that a client wants to store.
    ///
    /// # Errors
    /// [`LifecycleError`] for the first fault.
    pub fn validate(&self) -> Result<(), LifecycleError> {
        if self.rules.is_empty() {
            return refuse(LifecycleFault::Malformed, "There has to be at least one Rule.");
        }
        if self.rules.len() > LIFECYCLE_RULES_MAX {
            return refuse(
                LifecycleFault::Argument,
                format!("A bucket may have at most {LIFECYCLE_RULES_MAX} lifecycle rules."),
            );
        }
        let mut ids: Vec<_> = self.rules.iter().map(|rule| rule.id.as_str()).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse(LifecycleFault::Argument, "The IDs of lifecycle rules have to differ.");
        }
        self.rules.iter().try_for_each(LifecycleRule::validate)
    }

    fn earliest(&self, when: impl Fn(&LifecycleRule) -> Option<Timestamp>) -> Option<(Timestamp, &str)> {
        let enabled = self.rules.iter().filter(|rule| rule.enabled);
        let moments = enabled.filter_map(|rule| Some((when(rule).filter(|when| *when < NEVER)?, rule.id.as_str())));
        moments.min_by_key(|(when, _)| *when)
    }
}

impl LifecycleRule {
    fn validate(&self) -> Result<(), LifecycleError> {
        if self.id.chars().count() > ID_CHARS_MAX {
            return refuse(
                LifecycleFault::Argument,
                format!("The ID of a lifecycle rule has at most {ID_CHARS_MAX} characters."),
            );
        }
        if self.expiration.is_none() && self.noncurrent.is_none() && self.abort_uploads_days.is_none() {
            return refuse(LifecycleFault::Request, "A lifecycle rule needs an action.");
        }
        if self.legacy_prefix && (self.filter.prefix.is_none() || self.filter.is_for_objects_only()) {
            return refuse(LifecycleFault::Malformed, "A lifecycle rule has either a Filter or a Prefix.");
        }
        let days = [
            self.expiration
                .and_then(|expiration| if let Expiration::Days(days) = expiration { Some(days) } else { None }),
            self.noncurrent.map(|noncurrent| noncurrent.days),
            self.abort_uploads_days,
        ];
        if days.into_iter().flatten().any(|days| !(1..=DAYS_MAX).contains(&days)) {
            return refuse(LifecycleFault::Argument, "The days of a lifecycle rule are a positive number.");
        }
        if matches!(self.expiration, Some(Expiration::Date(date)) if date.0 % DAY_MICROS != 0) {
            return refuse(LifecycleFault::Argument, "The Date of a lifecycle rule is a midnight UTC.");
        }
        let kept = self.noncurrent.and_then(|noncurrent| noncurrent.keep);
        if kept.is_some_and(|keep| !(1..=KEPT_VERSIONS_MAX).contains(&keep)) {
            return refuse(
                LifecycleFault::Argument,
                format!("NewerNoncurrentVersions is a number from 1 to {KEPT_VERSIONS_MAX}."),
            );
        }
        self.validate_filter()
    }

    fn validate_filter(&self) -> Result<(), LifecycleError> {
        let filter = &self.filter;
        if let (Some(above), Some(below)) = (filter.larger_than, filter.smaller_than)
            && above.saturating_add(1) >= below
        {
            return refuse(
                LifecycleFault::Request,
                "No size is above ObjectSizeGreaterThan and below ObjectSizeLessThan.",
            );
        }
        let mut tags: Vec<_> = filter.tags.iter().map(|tag| tag.key.as_str()).collect();
        tags.sort_unstable();
        if tags.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse(LifecycleFault::Request, "The tags of a filter have to have different keys.");
        }
        let other = self.expiration == Some(Expiration::ExpiredDeleteMarkers) || self.abort_uploads_days.is_some();
        if other && filter.is_for_objects_only() {
            return refuse(
                LifecycleFault::Request,
                "Delete markers and uploads have no tags and no size to filter by.",
            );
        }
        Ok(())
    }
}

impl LifecycleFilter {
    /// Whether it selects this object of `key`, or a delete marker or upload of `key` for `None`.
    fn matches(&self, key: &[u8], object: Option<&Object>) -> bool {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        key.starts_with(prefix.as_bytes())
            && object.map_or(!self.is_for_objects_only(), |object| self.matches_object(object))
    }

    fn matches_object(&self, object: &Object) -> bool {
        self.tags.iter().all(|tag| object.tags.contains(tag))
            && self.larger_than.is_none_or(|least| object.length() > least)
            && self.smaller_than.is_none_or(|most| object.length() < most)
    }

    /// Whether it has a condition on tags or size, which only objects have.
    fn is_for_objects_only(&self) -> bool {
        !self.tags.is_empty() || self.larger_than.is_some() || self.smaller_than.is_some()
    }
}

/// The first midnight UTC that is more than `days` days after `moment`.
fn midnight_after(moment: Timestamp, days: u32) -> Timestamp {
    let old = moment.saturating_add(DAY_MICROS.saturating_mul(u64::from(days)));
    (old - old.0 % DAY_MICROS).saturating_add(DAY_MICROS)
}

/// Why lifecycle rules are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LifecycleError {
    /// The kind of error.
    pub fault: LifecycleFault,
    /// The reason, for the client.
    pub message: String,
}

/// The kind of an error in lifecycle rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleFault {
    /// A wrong value: `InvalidArgument`.
    Argument,
    /// Values that exclude each other: `InvalidRequest`.
    Request,
    /// A document of the wrong form: `MalformedXML`.
    Malformed,
}

fn refuse(fault: LifecycleFault, message: impl Into<String>) -> Result<(), LifecycleError> {
    Err(LifecycleError { fault, message: message.into() })
}

#[cfg(test)]
mod tests;
