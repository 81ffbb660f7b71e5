//! Effects of a change on the versions of a key: the current version, the rows of older ones, and the bytes to release.
//!
//! ```text
//! row ""        the head: the current version inside
//! row <id>      a version that is not current; newer ids sort first
//! ```

use bytes::Bytes;
use larder_core::node_context::yield_after;
use larder_rows::{Change, Row};
use larder_store::{CallOptions, Partition, ReadQuery, Stopped};

use super::{CasAttempt, HeadStore, KeyChange};
use crate::get::VersionSpec;
use crate::object_location::{external_body, version_id_text};
use crate::rules::{Object, ObjectHead, Release, Version, VersionId, Versioning};
use crate::{Error, Result};

/// Rows per read: each may hold an inline body.
const PAGE_ROWS: usize = 32;

impl HeadStore {
    /// The version `spec` names, current or not. A malformed id names none.
    ///
    /// # Errors
    /// Any error of the store.
    pub(crate) async fn find_version(
        &self,
        partition: &Partition,
        head: &ObjectHead,
        spec: &VersionSpec,
        options: &CallOptions,
    ) -> Result<Option<Version>> {
        let VersionSpec::Id(text) = spec else { return Ok(head.current.clone()) };
        let asks_null = text == "null";
        if let Some(current) = head.current.as_ref().filter(|current| version_id_text(current) == *text) {
            return Ok(Some(current.clone()));
        }
        // The head tells which reads can find nothing: most keys have no older version.
        let id = if asks_null { head.null } else { VersionId::from_text(text).filter(|_| head.older) };
        let Some(id) = id else { return Ok(None) };
        let version = self.read_version(partition, id, options).await?;
        Ok(version.filter(|version| version.null == asks_null))
    }

    /// Reads a version that is not current.
    ///
    /// # Errors
    /// Any error of the store.
    pub(crate) async fn read_version(
        &self,
        partition: &Partition,
        id: VersionId,
        options: &CallOptions,
    ) -> Result<Option<Version>> {
        let query = ReadQuery::one(Bytes::copy_from_slice(&id.0));
        let page = self.gateway.context().ports.store.read(partition, &query, options).await?;
        Ok(page.rows.into_iter().next().map(|row| Version::decode(row.value)).transpose()?)
    }
}

impl CasAttempt<'_> {
    /// A new version: `object`, or a delete marker. The bucket of this attempt decides whether it is `null`, and gives the object
    /// its default retention.
    pub(crate) fn new_version(&self, owner: String, mut object: Option<Object>) -> Version {
        if let (Some(object), Some(bucket_lock)) = (&mut object, self.bucket().object_lock) {
            object.lock = bucket_lock.for_new_version(object.lock, self.locks_begin);
        }
        Version {
            // The stamp is above the replaced head's, so this version sorts before the older ones.
            id: VersionId::new(self.stamp, self.heads.gateway.context().ports.actor),
            null: self.bucket().versioning != Versioning::Enabled,
            // Clients compare `modified` with their own clocks; after a crash stamps may run ahead of all clocks.
            modified: self.heads.gateway.context().now().min(self.stamp),
            owner,
            object,
        }
    }

    /// The version `spec` names, by the head of this attempt.
    ///
    /// # Errors
    /// Any error of the store.
    pub(crate) async fn find(&self, spec: &VersionSpec) -> Result<Option<Version>> {
        self.heads.find_version(&self.partition, &self.head, spec, &self.options).await
    }

    /// Makes `version` current. A `null` version replaces the earlier `null` version; all others stay.
    ///
    /// # Errors
    /// `Locked` when a lock protects the replaced version, and any error of the store.
    pub(crate) async fn add(&self, version: Version) -> Result<KeyChange> {
        let ObjectHead { current, null, older, shared, .. } = &self.head;
        let head = ObjectHead { null: *null, older: *older, shared: *shared, ..ObjectHead::default() };
        let mut next = KeyChange { head, changes: Vec::new(), replaces_all: false };
        let mut gone = Vec::new();
        match current {
            Some(current) if version.null && current.null => gone.push(current.clone()),
            Some(current) => {
                // Older versions are rows of the key's partition: as entries they would slow down listings [invariant 55].
                next.changes.push(self.put_row(current));
                next.head.older = true;
                if current.null {
                    next.head.null = Some(current.id);
                }
            }
            None => {}
        }
        if let Some(id) = null.filter(|_| version.null) {
            next.head.null = None;
            next.changes.push(self.remove_row(id));
            gone.extend(self.heads.read_version(&self.partition, id, &self.options).await?);
        }
        next.head.current = Some(version);
        self.with_releases(next, &gone, false).await
    }

    /// Makes `version` current, whose bytes another version references too.
    ///
    /// # Errors
    /// Any error of the store.
    pub(crate) async fn add_shared(&self, version: Version) -> Result<KeyChange> {
        let names = external_body(&version).is_some();
        let mut next = self.add(version).await?;
        next.head.shared |= names && next.head.older;
        Ok(next)
    }

    /// The newest version that stays when `version` is added.
    ///
    /// # Errors
    /// Any error of the store.
    pub(crate) async fn newest_remaining(&self, version: &Version) -> Result<Option<VersionId>> {
        match &self.head.current {
            Some(current) if version.null && current.null => {
                let newest = self.older_rows(1).await?.into_iter().next();
                Ok(newest.map(|row| Version::decode(row.value)).transpose()?.map(|version| version.id))
            }
            current => Ok(current.as_ref().map(|current| current.id)),
        }
    }

    /// Removes a version permanently. If it was current, the newest remaining version becomes current. `bypass`: the caller may
    /// bypass a governance retention, and asks to.
    ///
    /// # Errors
    /// `Locked`, and any error of the store.
    pub(crate) async fn remove(&self, target: &Version, bypass: bool) -> Result<KeyChange> {
        let mut next = KeyChange {
            head: ObjectHead { release: Vec::new(), ..self.head.clone() },
            changes: Vec::new(),
            replaces_all: false,
        };
        // Two rows decide: one may be promoted or removed, and the other tells whether any remain.
        let older = self.older_rows(2).await?;
        if self.is_current(target) {
            let mut rows = older.into_iter();
            next.head.current = rows.next().map(|row| Version::decode(row.value)).transpose()?;
            next.head.older = rows.next().is_some();
            if let Some(promoted) = &next.head.current {
                next.changes.push(self.remove_row(promoted.id));
                next.head.null = next.head.null.filter(|id| *id != promoted.id);
            }
        } else {
            next.changes.push(self.remove_row(target.id));
            next.head.older = older.iter().any(|row| row.name != target.row_name());
            next.head.null = next.head.null.filter(|id| *id != target.id);
        }
        next.head.shared &= next.head.older;
        self.with_releases(next, std::slice::from_ref(target), bypass).await
    }

    /// Rewrites a version in place.
    pub(crate) fn rewrite(&self, version: Version) -> KeyChange {
        let mut next = KeyChange {
            head: ObjectHead { release: Vec::new(), ..self.head.clone() },
            changes: Vec::new(),
            replaces_all: false,
        };
        if self.is_current(&version) {
            next.head.current = Some(version);
        } else {
            next.changes.push(self.put_row(&version));
        }
        next
    }

    fn is_current(&self, version: &Version) -> bool {
        self.head.current.as_ref().is_some_and(|current| current.id == version.id)
    }

    fn put_row(&self, version: &Version) -> Change {
        Change::Put(Row { name: version.row_name(), value: version.encode(), stamp: self.stamp, expires: None })
    }

    fn remove_row(&self, id: VersionId) -> Change {
        Change::Remove { name: Bytes::copy_from_slice(&id.0), stamp: self.stamp }
    }

    /// The name after which all version rows sort: they are older than the current one. Reads that start here skip the
    /// tombstones of removed newer versions.
    fn current_row_name(&self) -> Bytes {
        self.head.current.as_ref().map_or_else(Bytes::new, Version::row_name)
    }

    /// The newest versions that are not current, at most `limit`.
    async fn older_rows(&self, limit: usize) -> Result<Vec<Row>> {
        if !self.head.older {
            return Ok(Vec::new());
        }
        let query = ReadQuery::after(Some(&self.current_row_name()), limit);
        Ok(self.heads.gateway.context().ports.store.read(&self.partition, &query, &self.options).await?.rows)
    }

    /// Puts into `next.head.release` the bytes that only the versions `gone` reference: versions of one key may share
    /// bytes. Marks the uploads of `gone` as done first, since later no reader can find those versions.
    ///
    /// Every removal of a version passes here, so here is the gate of locks.
    async fn with_releases(&self, mut next: KeyChange, gone: &[Version], bypass: bool) -> Result<KeyChange> {
        for version in gone {
            // Race: the lock is that of the head which the compare-and-set expects; a hold that comes later makes it conflict
            // [invariant 166].
            if self.heads.is_locked(version, bypass).await? {
                return Err(Error::Locked);
            }
            // Crash: the upload ends before its version goes; otherwise a recovery would not find the version
            // and reopen the upload [invariant 97].
            self.heads.finish_upload_behind(version).await?;
        }
        let mut free: Vec<Release> = gone.iter().filter_map(external_body).collect();
        // Versions of one key may share bytes, and a version that stays keeps them [invariant 61].
        for left in [&next.head.current, &self.head.current].into_iter().flatten() {
            if gone.iter().all(|gone| gone.id != left.id) {
                free.retain(|bytes| external_body(left) != Some(*bytes));
            }
        }
        let mut last = self.current_row_name();
        // Only a key that has shared bytes pays for a scan of its versions.
        while next.head.older && next.head.shared && !free.is_empty() {
            let query = ReadQuery::after(Some(&last), PAGE_ROWS);
            let page = self.heads.gateway.context().ports.store.read(&self.partition, &query, &self.options).await?;
            yield_after(page.stopped).await;
            for row in page.rows {
                last = row.name.clone();
                let version = Version::decode(row.value)?;
                if gone.iter().all(|gone| gone.id != version.id) {
                    free.retain(|bytes| external_body(&version) != Some(*bytes));
                }
            }
            if page.stopped == Stopped::End {
                break;
            }
        }
        next.head.release = free;
        Ok(next)
    }
}
