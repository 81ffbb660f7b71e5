//! Prefilter by listing entries: whether a key may have a due version. Pure.

use bytes::Bytes;
use larder_rows::{ActorId, Timestamp};

use crate::rules::lifecycle::{Lifecycle, LifecycleRule};
use crate::rules::{Bucket, ListingEntry, Object, ObjectBody, Version, VersionId, Versioning};

/// The rules of a bucket without their tags, which entries do not show. Matches at least the keys the rules match.
pub(super) struct LifecyclePrefilter {
    rules: Lifecycle,
    /// Whether the bucket may have noncurrent versions, which entries do not show.
    hidden: bool,
}

impl LifecyclePrefilter {
    /// Makes the prefilter of a bucket's rules.
    pub(super) fn new(bucket: &Bucket, rules: &Lifecycle) -> Self {
        let mut rules = rules.clone();
        rules.rules.retain(|rule| rule.enabled && (rule.expiration.is_some() || rule.noncurrent.is_some()));
        for rule in &mut rules.rules {
            rule.filter.tags.clear();
        }
        Self { rules, hidden: bucket.versioning != Versioning::Off }
    }

    /// The prefixes of the rules; none is a prefix of another.
    pub(super) fn prefixes(&self) -> Vec<Bytes> {
        let prefix = |rule: &LifecycleRule| rule.filter.prefix.clone().unwrap_or_default();
        let mut all: Vec<String> = self.rules.rules.iter().map(prefix).collect();
        all.sort_unstable();
        all.dedup_by(|later, earlier| later.starts_with(earlier.as_str()));
        all.into_iter().map(Bytes::from).collect()
    }

    /// Whether a key with this entry may have a due version.
    pub(super) fn may_have_due(&self, key: &[u8], entry: &ListingEntry, now: Timestamp) -> bool {
        let due = |decision: Option<(Timestamp, &str)>| decision.is_some_and(|(when, _)| when <= now);
        let hidden = self.hidden
            && self.rules.rules.iter().any(|rule| {
                rule.noncurrent.is_some()
                    && key.starts_with(rule.filter.prefix.as_deref().unwrap_or_default().as_bytes())
            });
        let current = current(entry);
        hidden
            || due(self.rules.version_expiry(key, &current))
            || (current.object.is_none() && due(self.rules.delete_marker_expiry(key, entry.modified)))
    }
}

/// The current version as far as its entry shows it.
fn current(entry: &ListingEntry) -> Version {
    let id = VersionId::new(entry.modified, ActorId(0));
    let object = entry.object.as_ref().map(|object| Object {
        body: ObjectBody::Parts { manifest: id, count: 0, length: object.length },
        etag: object.etag,
        headers: Vec::new(),
        meta: Vec::new(),
        tags: Vec::new(),
        acl: None,
        checksum: None,
        upload: None,
    });
    Version { id, null: false, modified: entry.modified, owner: entry.owner.clone(), object }
}
