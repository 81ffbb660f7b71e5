//! Removal of due versions of one key.

use bytes::Bytes;
use larder_rows::{ActorId, Timestamp};
use larder_store::ReadQuery;

use super::{BucketScan, LifecyclePass, LifecycleWorker};
use crate::commit::{CasAttempt, ObjectLocation, version_id_text};
use crate::delete::Deleter;
use crate::get::VersionSpec;
use crate::rules::lifecycle::{Lifecycle, LifecycleRule};
use crate::rules::{Bucket, ListingEntry, Object, ObjectBody, ObjectLock, Version, VersionId, Versioning};
use crate::{Error, Result};

/// Versions per read: each may hold an inline body.
const PAGE_ROWS: usize = 32;

impl LifecycleWorker {
    /// Removes due versions of a key: the current one first, then noncurrent ones, then a delete marker that is left alone.
    pub(super) async fn expire_key(&self, scan: &BucketScan<'_>, location: &ObjectLocation, pass: &mut LifecyclePass) {
        let aged = async {
            pass.expired += u64::from(self.expire_current(scan, location).await?);
            pass.removed += self.remove_noncurrent(scan, location).await?;
            pass.removed += u64::from(self.remove_single_marker(scan, location).await?);
            Result::Ok(())
        };
        match aged.await {
            // The bucket is being deleted, with all its objects.
            Ok(()) | Err(Error::NoSuchBucket(_)) => {}
            Err(error) => pass.record_failure("an object", scan.bucket, &error),
        }
    }

    /// Removes the current version, or hides it with a delete marker, if it is due.
    async fn expire_current(&self, scan: &BucketScan<'_>, location: &ObjectLocation) -> Result<bool> {
        let options = self.heads.options();
        let observed = self.heads.read_head(&location.partition(), &options).await?;
        let old = |rules: &Lifecycle, version: &Version| scan.is_due(rules.version_expiry(&location.key, version));
        if !observed.head.current.as_ref().is_some_and(|current| old(scan.rules, current)) {
            return Ok(false);
        }
        // Race: the rules and the version are those of the attempt, so a newer object or changed rules win.
        let deleted = self.heads.delete_if(
            location,
            &VersionSpec::Current,
            Deleter::lifecycle(&scan.bucket.owner),
            |attempt, stored_version| {
                let rules = attempt.bucket().lifecycle.as_ref();
                Ok(stored_version.zip(rules).is_some_and(|(stored_version, rules)| old(rules, stored_version)))
            },
        );
        Ok(deleted.await?.is_some())
    }

    /// Removes versions that have been noncurrent for too long.
    async fn remove_noncurrent(&self, scan: &BucketScan<'_>, location: &ObjectLocation) -> Result<u64> {
        if scan.rules.rules.iter().all(|rule| !rule.enabled || rule.noncurrent.is_none()) {
            return Ok(0);
        }
        let observed = self.heads.read_head(&location.partition(), &self.heads.options()).await?;
        let Some(current) = observed.head.current.filter(|_| observed.head.older) else { return Ok(0) };
        let (mut replaced_at, mut newer, mut removed) = (current.modified, 0, 0);
        let mut left = Some(ReadQuery::after(Some(&Bytes::new()), PAGE_ROWS));
        while let Some(rows) = self.page(&location.partition(), &mut left).await? {
            for row in rows {
                let version = Version::decode(row.value)?;
                let due = scan.is_due(scan.rules.noncurrent_expiry(&location.key, &version, replaced_at, newer));
                if due && self.remove_noncurrent_version(scan, location, &version, replaced_at, newer).await? {
                    removed += 1;
                }
                // A version is noncurrent since the next newer one was written.
                replaced_at = version.modified;
                newer += 1;
            }
        }
        Ok(removed)
    }

    async fn remove_noncurrent_version(
        &self,
        scan: &BucketScan<'_>,
        location: &ObjectLocation,
        version: &Version,
        replaced_at: Timestamp,
        newer: u64,
    ) -> Result<bool> {
        // A locked version stays until it is free; the rules go on.
        if self.heads.is_locked(version, false).await? {
            return Ok(false);
        }
        let spec = VersionSpec::Id(version_id_text(version));
        let deleter = Deleter::lifecycle(&scan.bucket.owner);
        let deleted = self.heads.delete_if(location, &spec, deleter, |attempt, stored_version| {
            let rules = attempt.bucket().lifecycle.as_ref();
            let due = rules
                .is_some_and(|rules| scan.is_due(rules.noncurrent_expiry(&location.key, version, replaced_at, newer)));
            // Race: the version may have become current since, when the newer one was deleted.
            Ok(due && is_still(stored_version, version.id) && !is_current(attempt, version.id))
        });
        match deleted.await {
            // Race: it was locked after the look above.
            Err(Error::Locked) => Ok(false),
            deleted => Ok(deleted?.is_some()),
        }
    }

    /// Removes a delete marker with no version after it.
    async fn remove_single_marker(&self, scan: &BucketScan<'_>, location: &ObjectLocation) -> Result<bool> {
        let observed = self.heads.read_head(&location.partition(), &self.heads.options()).await?;
        let marker = observed.head.current.filter(|current| current.object.is_none() && !observed.head.older);
        let Some(marker) = marker else { return Ok(false) };
        let old = |rules: &Lifecycle| scan.is_due(rules.delete_marker_expiry(&location.key, marker.modified));
        if !old(scan.rules) {
            return Ok(false);
        }
        let spec = VersionSpec::Id(version_id_text(&marker));
        let deleter = Deleter::lifecycle(&scan.bucket.owner);
        let deleted = self.heads.delete_if(location, &spec, deleter, |attempt, stored_version| {
            // Race: a put since the read makes the marker noncurrent, and other rules apply to it.
            let alone = is_current(attempt, marker.id) && !attempt.head.older;
            // Race: without the marker of a deletion an import would bring the key back [invariant 201].
            let alone = alone && !attempt.bucket().hides_markers();
            Ok(alone && is_still(stored_version, marker.id) && attempt.bucket().lifecycle.as_ref().is_some_and(old))
        });
        Ok(deleted.await?.is_some())
    }
}

fn is_still(version: Option<&Version>, id: VersionId) -> bool {
    version.is_some_and(|version| version.id == id)
}

fn is_current(attempt: &CasAttempt<'_>, id: VersionId) -> bool {
    attempt.head.current.as_ref().is_some_and(|current| current.id == id)
}

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
        encryption: None,
        lock: ObjectLock::default(),
    });
    Version { id, null: false, modified: entry.modified, owner: entry.owner.clone(), object }
}
