//! What can be told from a listing entry: whether a key may have something old. Pure.

use bytes::Bytes;
use larder_model::objects::lifecycle::{Lifecycle, LifecycleRule};
use larder_model::objects::{Bucket, Entry, Object, ObjectBody, Version, VersionId, Versioning};
use larder_model::rows::Micros;

/// The rules of a bucket without what entries do not show: tags. They say yes at least where the rules do.
pub(super) struct Relaxed {
    rules: Lifecycle,
    /// Whether versions that are not current may be old: no entry shows these.
    hidden: bool,
}

impl Relaxed {
    /// Relaxes the rules of a bucket.
    pub(super) fn of(bucket: &Bucket, rules: &Lifecycle) -> Self {
        let mut rules = rules.clone();
        rules.rules.retain(|rule| rule.enabled && (rule.expiration.is_some() || rule.noncurrent.is_some()));
        for rule in &mut rules.rules {
            rule.filter.tags.clear();
        }
        Self { rules, hidden: bucket.versioning != Versioning::Off }
    }

    /// What the keys of the rules begin with; none of them begins with another.
    pub(super) fn prefixes(&self) -> Vec<Bytes> {
        let prefix = |rule: &LifecycleRule| rule.filter.prefix.clone().unwrap_or_default();
        let mut all: Vec<String> = self.rules.rules.iter().map(prefix).collect();
        all.sort_unstable();
        all.dedup_by(|behind, before| behind.starts_with(before.as_str()));
        all.into_iter().map(Bytes::from).collect()
    }

    /// Whether a key with this entry may have something that has to go.
    pub(super) fn may_act(&self, key: &[u8], entry: &Entry, now: Micros) -> bool {
        let due = |decision: Option<(Micros, &str)>| decision.is_some_and(|(when, _)| when <= now);
        let hidden = self.hidden
            && self.rules.rules.iter().any(|rule| {
                rule.noncurrent.is_some()
                    && key.starts_with(rule.filter.prefix.as_deref().unwrap_or_default().as_bytes())
            });
        let current = current(entry);
        hidden
            || due(self.rules.expires(key, &current))
            || (current.object.is_none() && due(self.rules.marker_left(key, entry.modified)))
    }
}

/// The current version as far as its entry shows it.
fn current(entry: &Entry) -> Version {
    let id = VersionId::new(entry.modified, 0);
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
