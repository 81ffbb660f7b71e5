//! What a change does to the versions of a key: which is current, which have rows, and which bytes nobody names afterwards.
//!
//! ```text
//! row ""        the head: the current version inside
//! row <id>      a version that is not current; newer ids sort first
//! ```

use bytes::Bytes;
use larder_model::objects::{Bucket, Head, Object, ObjectBody, Release, Version, VersionId, Versioning};
use larder_model::rows::{Change, Row};
use larder_store::{Options, Order, Partition, Range, ReadQuery, Stopped};

use super::Turn;
use crate::objects::get::VersionSpec;
use crate::objects::{Objects, Result};

/// Rows looked through at once: each may hold a body of its own.
const PAGE_ROWS: usize = 32;

/// What a change writes.
#[derive(Debug, Clone, Default)]
pub(in crate::objects) struct Next {
    /// The head to be; its `release` lists what this change replaces.
    pub(in crate::objects) head: Head,
    /// Rows of the partition.
    pub(in crate::objects) changes: Vec<Change>,
}

/// A version's id as clients see it; `None` in a bucket that never kept versions.
pub(in crate::objects) fn shown_id(bucket: &Bucket, version: &Version) -> Option<String> {
    (bucket.versioning != Versioning::Off).then(|| id_text(version))
}

/// A version's id as clients see it where versions are kept.
pub(in crate::objects) fn id_text(version: &Version) -> String {
    if version.null { "null".to_owned() } else { version.id.text() }
}

impl Objects {
    /// The version `spec` names, current or not; `None`: there is none. The text of an id that is none names none.
    ///
    /// # Errors
    /// What the store answers.
    pub(in crate::objects) async fn find_version(
        &self,
        partition: &Partition,
        head: &Head,
        spec: &VersionSpec,
        options: &Options,
    ) -> Result<Option<Version>> {
        let VersionSpec::Id(text) = spec else { return Ok(head.current.clone()) };
        let asks_null = text == "null";
        if let Some(current) = head.current.as_ref().filter(|current| id_text(current) == *text) {
            return Ok(Some(current.clone()));
        }
        let id = if asks_null { head.null } else { VersionId::from_text(text).filter(|_| head.older) };
        let Some(id) = id else { return Ok(None) };
        let found = self.read_version(partition, id, options).await?;
        Ok(found.filter(|version| version.null == asks_null))
    }

    /// The version in a row of its own.
    ///
    /// # Errors
    /// What the store answers.
    async fn read_version(&self, partition: &Partition, id: VersionId, options: &Options) -> Result<Option<Version>> {
        let name = Bytes::copy_from_slice(&id.0);
        let query = ReadQuery { range: Range { from: Some(name.clone()), to: None }, limit: 1, order: Order::Forward };
        let page = self.gateway.ports.store.read(partition, &query, options).await?;
        let row = page.rows.into_iter().next().filter(|row| row.name == name);
        Ok(row.map(|row| Version::decode(row.value)).transpose()?)
    }
}

impl Turn<'_> {
    /// A version written now: of this object, or a delete marker. Whether it is `null` is the bucket's to say, now.
    pub(in crate::objects) fn new_version(&self, owner: String, object: Option<Object>) -> Version {
        Version {
            id: VersionId::new(self.stamp, self.objects.gateway.actor),
            null: self.bucket().versioning != Versioning::Enabled,
            // Clients compare it with their own clocks; stamps may be ahead of any for a while after a crash.
            modified: self.objects.gateway.now().min(self.stamp),
            owner,
            object,
        }
    }

    /// The version `spec` names now.
    ///
    /// # Errors
    /// What the store answers.
    pub(in crate::objects) async fn find(&self, spec: &VersionSpec) -> Result<Option<Version>> {
        self.objects.find_version(&self.partition, &self.head, spec, &self.options).await
    }

    /// Makes `version` current. One that is `null` replaces the version that was, wherever it is; all others stay.
    ///
    /// # Errors
    /// What the store answers.
    pub(in crate::objects) async fn add(&self, version: Version) -> Result<Next> {
        let Head { current, null, older, shared, .. } = &self.head;
        let head = Head { null: *null, older: *older, shared: *shared, ..Head::default() };
        let mut next = Next { head, changes: Vec::new() };
        let mut gone = Vec::new();
        match current {
            Some(current) if version.null && current.null => gone.push(current.clone()),
            Some(current) => {
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
            gone.extend(self.objects.read_version(&self.partition, id, &self.options).await?);
        }
        next.head.current = Some(version);
        self.with_releases(next, &gone).await
    }

    /// Makes `version` current, which names the bytes of another one.
    ///
    /// # Errors
    /// What the store answers.
    pub(in crate::objects) async fn add_shared(&self, version: Version) -> Result<Next> {
        let names = bytes_of(&version).is_some();
        let mut next = self.add(version).await?;
        next.head.shared |= names && next.head.older;
        Ok(next)
    }

    /// The newest version that stays when `version` is added.
    ///
    /// # Errors
    /// What the store answers.
    pub(in crate::objects) async fn newest_left(&self, version: &Version) -> Result<Option<VersionId>> {
        match &self.head.current {
            Some(current) if version.null && current.null => {
                let newest = self.rows_behind(1).await?.into_iter().next();
                Ok(newest.map(|row| Version::decode(row.value)).transpose()?.map(|version| version.id))
            }
            current => Ok(current.as_ref().map(|current| current.id)),
        }
    }

    /// Removes a version for ever. When it was the current one, the newest that is left becomes current.
    ///
    /// # Errors
    /// What the store answers.
    pub(in crate::objects) async fn remove(&self, target: &Version) -> Result<Next> {
        let mut next = Next { head: Head { release: Vec::new(), ..self.head.clone() }, changes: Vec::new() };
        let behind = self.rows_behind(2).await?;
        if self.is_current(target) {
            let mut rows = behind.into_iter();
            next.head.current = rows.next().map(|row| Version::decode(row.value)).transpose()?;
            next.head.older = rows.next().is_some();
            if let Some(promoted) = &next.head.current {
                next.changes.push(self.remove_row(promoted.id));
                next.head.null = next.head.null.filter(|id| *id != promoted.id);
            }
        } else {
            next.changes.push(self.remove_row(target.id));
            next.head.older = behind.iter().any(|row| row.name != target.row_name());
            next.head.null = next.head.null.filter(|id| *id != target.id);
        }
        next.head.shared &= next.head.older;
        self.with_releases(next, std::slice::from_ref(target)).await
    }

    /// Writes a version anew where it is.
    pub(in crate::objects) fn rewrite(&self, version: Version) -> Next {
        let mut next = Next { head: Head { release: Vec::new(), ..self.head.clone() }, changes: Vec::new() };
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

    /// The name behind which all rows of versions are: they are older than the current one. What was removed before it is not
    /// gone through again.
    fn behind_current(&self) -> Bytes {
        self.head.current.as_ref().map_or_else(Bytes::new, Version::row_name)
    }

    /// The newest versions that are not current.
    async fn rows_behind(&self, limit: usize) -> Result<Vec<Row>> {
        if !self.head.older {
            return Ok(Vec::new());
        }
        let query = ReadQuery::after(Some(&self.behind_current()), limit);
        Ok(self.objects.gateway.ports.store.read(&self.partition, &query, &self.options).await?.rows)
    }

    /// Lists what the versions `gone` named and no version names that is left: versions of one key may share bytes. Uploads
    /// that made them are done from now on, as the versions cannot be looked for any more.
    async fn with_releases(&self, mut next: Next, gone: &[Version]) -> Result<Next> {
        for version in gone {
            self.objects.end_upload_of(version).await?;
        }
        let mut free: Vec<Release> = gone.iter().filter_map(bytes_of).collect();
        for left in [&next.head.current, &self.head.current].into_iter().flatten() {
            if gone.iter().all(|gone| gone.id != left.id) {
                free.retain(|bytes| bytes_of(left) != Some(*bytes));
            }
        }
        let mut last = self.behind_current();
        while next.head.older && next.head.shared && !free.is_empty() {
            // Engines may answer without ever waiting: other requests have their turn all the same.
            tokio::task::consume_budget().await;
            let query = ReadQuery::after(Some(&last), PAGE_ROWS);
            let page = self.objects.gateway.ports.store.read(&self.partition, &query, &self.options).await?;
            for row in page.rows {
                last = row.name.clone();
                let version = Version::decode(row.value)?;
                if gone.iter().all(|gone| gone.id != version.id) {
                    free.retain(|bytes| bytes_of(&version) != Some(*bytes));
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

/// What a version names outside its row.
pub(in crate::objects) fn bytes_of(version: &Version) -> Option<Release> {
    match version.object.as_ref()?.body {
        ObjectBody::Inline(_) => None,
        ObjectBody::Blob { id, .. } => Some(Release::Blob(id)),
        ObjectBody::Parts { manifest, .. } => Some(Release::Parts(manifest)),
    }
}
