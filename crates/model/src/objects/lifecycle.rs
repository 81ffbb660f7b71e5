//! Rules for what is old: objects, versions that are not current, uploads nobody completed.

use serde::{Deserialize, Serialize};

use crate::rows::Micros;

use super::tags::Tag;

/// The rules of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Up to 1000.
    pub rules: Vec<LifecycleRule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
