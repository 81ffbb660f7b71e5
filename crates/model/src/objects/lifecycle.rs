//! Rules for what is old: objects, versions that are not current, uploads nobody completed.
//!
//! Every decision is the moment from which something may go and the rule that says so, the earliest if several do; whoever
//! asks compares it with the time. Days are counted as AWS counts them: so many after the event, and on to the next
//! midnight UTC.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::LIFECYCLE_RULES_MAX;
use crate::rows::Micros;

use super::tags::Tag;
use super::version::{Object, Version};

/// What a name of a rule may have, in characters.
const MAX_ID: usize = 255;

/// How many versions a rule may keep.
const MAX_KEPT: u32 = 100;

/// How many days a rule may count.
const MAX_DAYS: u32 = i32::MAX as u32;

/// One day.
const DAY: Micros = 86_400_000_000;

/// The end of the year 9999: what is later is never, and could not be written in a header.
const NEVER: Micros = 253_402_300_800_000_000;

/// The rules of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lifecycle {
    /// Up to 1000.
    pub rules: Vec<LifecycleRule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LifecycleRule {
    /// Its name; made up when none was given.
    pub id: String,
    /// Whether it is in force.
    pub enabled: bool,
    /// Which objects.
    pub filter: Filter,
    /// Whether the prefix was given in the old form, directly in the rule: it is shown as it came.
    pub legacy_prefix: bool,
    /// When current versions go.
    pub expiration: Option<Expiration>,
    /// When versions go that are not current.
    pub noncurrent: Option<Noncurrent>,
    /// Days after which an upload that was not completed is given up.
    pub abort_uploads_days: Option<u32>,
}

/// Which objects a rule is for: all conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// What keys begin with.
    pub prefix: Option<String>,
    /// Tags objects have.
    pub tags: Vec<Tag>,
    /// Objects larger than this, in bytes.
    pub larger_than: Option<u64>,
    /// Objects smaller than this, in bytes.
    pub smaller_than: Option<u64>,
}

/// When current versions go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiration {
    /// So many days after they were written, at the next midnight UTC.
    Days(u32),
    /// From this moment, a midnight UTC.
    Date(Micros),
    /// Delete markers behind which no version is left.
    MarkersLeft,
}

/// When versions go that are not current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noncurrent {
    /// So many days after they ceased to be current.
    pub days: u32,
    /// This many of the newest are kept whatever their age.
    pub keep: Option<u32>,
}

impl Lifecycle {
    /// When the current `version` of `key` goes, and by which rule. A delete marker never does: see [`Self::marker_left`].
    #[must_use]
    pub fn expires(&self, key: &[u8], version: &Version) -> Option<(Micros, &str)> {
        let object = version.object.as_ref()?;
        self.earliest(|rule| match rule.expiration? {
            _ if !rule.filter.covers(key, Some(object)) => None,
            Expiration::Days(days) => Some(midnight_after(version.modified, days)),
            Expiration::Date(date) => Some(date),
            Expiration::MarkersLeft => None,
        })
    }

    /// When a delete marker goes that is the only version left of `key` and was written at `marked`, and by which rule: at
    /// once where that is said, or when an object of that age would.
    #[must_use]
    pub fn marker_left(&self, key: &[u8], marked: Micros) -> Option<(Micros, &str)> {
        self.earliest(|rule| match rule.expiration? {
            _ if !rule.filter.covers(key, None) => None,
            Expiration::Days(days) => Some(midnight_after(marked, days)),
            Expiration::MarkersLeft => Some(marked),
            Expiration::Date(_) => None,
        })
    }

    /// When a `version` of `key` goes that ceased to be current at `ceased`, and by which rule. `newer` is how many versions
    /// there are that are not current and newer than this one.
    #[must_use]
    pub fn noncurrent(&self, key: &[u8], version: &Version, ceased: Micros, newer: u64) -> Option<(Micros, &str)> {
        self.earliest(|rule| {
            let noncurrent = rule.noncurrent?;
            let spared = noncurrent.keep.is_some_and(|keep| newer < u64::from(keep));
            let goes = !spared && rule.filter.covers(key, version.object.as_ref());
            goes.then(|| midnight_after(ceased, noncurrent.days))
        })
    }

    /// When an upload of `key` that was begun at `initiated` is given up, and by which rule.
    #[must_use]
    pub fn abort_upload(&self, key: &[u8], initiated: Micros) -> Option<(Micros, &str)> {
        self.earliest(|rule| {
            let days = rule.abort_uploads_days?;
            rule.filter.covers(key, None).then(|| midnight_after(initiated, days))
        })
    }

    /// Checks what a client wants to store.
    ///
    /// # Errors
    /// [`BadLifecycle`] for the first thing that is wrong.
    pub fn validate(&self) -> Result<(), BadLifecycle> {
        if self.rules.is_empty() {
            return refuse(Fault::Malformed, "There has to be at least one Rule.");
        }
        if self.rules.len() > LIFECYCLE_RULES_MAX {
            return refuse(
                Fault::Argument,
                format!("A bucket may have at most {LIFECYCLE_RULES_MAX} lifecycle rules."),
            );
        }
        let mut ids: Vec<_> = self.rules.iter().map(|rule| rule.id.as_str()).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse(Fault::Argument, "The IDs of lifecycle rules have to differ.");
        }
        self.rules.iter().try_for_each(LifecycleRule::validate)
    }

    fn earliest(&self, when: impl Fn(&LifecycleRule) -> Option<Micros>) -> Option<(Micros, &str)> {
        let enabled = self.rules.iter().filter(|rule| rule.enabled);
        let moments = enabled.filter_map(|rule| Some((when(rule).filter(|when| *when < NEVER)?, rule.id.as_str())));
        moments.min_by_key(|(when, _)| *when)
    }
}

impl LifecycleRule {
    fn validate(&self) -> Result<(), BadLifecycle> {
        if self.id.chars().count() > MAX_ID {
            return refuse(Fault::Argument, format!("The ID of a lifecycle rule has at most {MAX_ID} characters."));
        }
        if self.expiration.is_none() && self.noncurrent.is_none() && self.abort_uploads_days.is_none() {
            return refuse(Fault::Request, "A lifecycle rule needs an action.");
        }
        if self.legacy_prefix && (self.filter.prefix.is_none() || self.filter.is_about_objects()) {
            return refuse(Fault::Malformed, "A lifecycle rule has either a Filter or a Prefix.");
        }
        let days = [
            self.expiration
                .and_then(|expiration| if let Expiration::Days(days) = expiration { Some(days) } else { None }),
            self.noncurrent.map(|noncurrent| noncurrent.days),
            self.abort_uploads_days,
        ];
        if days.into_iter().flatten().any(|days| !(1..=MAX_DAYS).contains(&days)) {
            return refuse(Fault::Argument, "The days of a lifecycle rule are a positive number.");
        }
        if matches!(self.expiration, Some(Expiration::Date(date)) if date % DAY != 0) {
            return refuse(Fault::Argument, "The Date of a lifecycle rule is a midnight UTC.");
        }
        let kept = self.noncurrent.and_then(|noncurrent| noncurrent.keep);
        if kept.is_some_and(|keep| !(1..=MAX_KEPT).contains(&keep)) {
            return refuse(Fault::Argument, format!("NewerNoncurrentVersions is a number from 1 to {MAX_KEPT}."));
        }
        self.validate_filter()
    }

    fn validate_filter(&self) -> Result<(), BadLifecycle> {
        let filter = &self.filter;
        if let (Some(above), Some(below)) = (filter.larger_than, filter.smaller_than)
            && above.saturating_add(1) >= below
        {
            return refuse(Fault::Request, "No size is above ObjectSizeGreaterThan and below ObjectSizeLessThan.");
        }
        let mut tags: Vec<_> = filter.tags.iter().map(|tag| tag.key.as_str()).collect();
        tags.sort_unstable();
        if tags.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse(Fault::Request, "The tags of a filter have to have different keys.");
        }
        let other = self.expiration == Some(Expiration::MarkersLeft) || self.abort_uploads_days.is_some();
        if other && filter.is_about_objects() {
            return refuse(Fault::Request, "Delete markers and uploads have no tags and no size to filter by.");
        }
        Ok(())
    }
}

impl Filter {
    /// Whether it is about this: an object of `key`, or a marker or upload, which has neither tags nor a size.
    fn covers(&self, key: &[u8], object: Option<&Object>) -> bool {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        key.starts_with(prefix.as_bytes())
            && object.map_or(!self.is_about_objects(), |object| self.covers_object(object))
    }

    fn covers_object(&self, object: &Object) -> bool {
        self.tags.iter().all(|tag| object.tags.contains(tag))
            && self.larger_than.is_none_or(|least| object.length() > least)
            && self.smaller_than.is_none_or(|most| object.length() < most)
    }

    /// Whether it asks for what only objects have.
    fn is_about_objects(&self) -> bool {
        !self.tags.is_empty() || self.larger_than.is_some() || self.smaller_than.is_some()
    }
}

/// The first midnight UTC more than so many days after `moment`.
fn midnight_after(moment: Micros, days: u32) -> Micros {
    let old = moment.saturating_add(DAY.saturating_mul(Micros::from(days)));
    (old - old % DAY).saturating_add(DAY)
}

/// Why rules are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLifecycle {
    /// Which kind of error it is.
    pub fault: Fault,
    /// What is wrong, for the client.
    pub message: String,
}

/// The kind of an error in lifecycle rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A value is wrong: `InvalidArgument`.
    Argument,
    /// Values do not go together: `InvalidRequest`.
    Request,
    /// The document has the wrong shape: `MalformedXML`.
    Malformed,
}

fn refuse(fault: Fault, message: impl Into<String>) -> Result<(), BadLifecycle> {
    Err(BadLifecycle { fault, message: message.into() })
}

impl fmt::Display for BadLifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadLifecycle {}

#[cfg(test)]
mod tests;
