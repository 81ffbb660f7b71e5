//! The versions of one key in a listing, newest first.

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{Partition, ReadQuery, Stopped};

use super::super::commit::{HeadStore, version_id_text};
use super::super::{Error, RequestArgument, Result};
use super::ListedVersion;
use crate::rules::listing::{KeyPage, KeyPageStep};
use crate::rules::{BucketId, Object, ObjectBody, ObjectHead, ObjectLock, SystemHeader, Version, VersionId};

/// Versions per read: each may hold an inline body.
const VERSIONS_ROWS: usize = 32;
/// Most reads of a key that changes while its versions are read.
const ATTEMPTS_MAX: usize = 20;

/// The version after which a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionMarker {
    /// The version whose id for clients is `null`.
    Null,
    /// The version of this id, or its place in the order.
    Id(VersionId),
}

impl VersionMarker {
    /// Parses the marker of a request whose key marker is `after`.
    pub(crate) fn parse(text: Option<&str>, after: &[u8]) -> Result<Option<Self>> {
        let bad = |text: &str, message: &str| Error::InvalidArgument {
            argument: RequestArgument::VersionMarker,
            value: text.to_owned(),
            message: message.to_owned(),
        };
        match text {
            None => Ok(None),
            Some(text) if after.is_empty() => {
                Err(bad(text, "A version-id marker cannot be specified without a key marker."))
            }
            Some("null") => Ok(Some(Self::Null)),
            Some(text) => match VersionId::from_text(text) {
                Some(id) => Ok(Some(Self::Id(id))),
                None => Err(bad(text, "Invalid version id specified.")),
            },
        }
    }

    /// The id of the marker in this key. `None` when the `null` version is gone: the page then repeats versions rather
    /// than omit any.
    fn id(self, head: &ObjectHead) -> Option<VersionId> {
        match self {
            Self::Id(id) => Some(id),
            Self::Null => head.current.as_ref().filter(|current| current.null).map(|current| current.id).or(head.null),
        }
    }
}

/// Some versions of a key, from one snapshot.
#[derive(Default)]
struct VersionChunk {
    versions: Vec<Version>,
    current: Option<VersionId>,
    more: bool,
}

impl HeadStore {
    /// Adds the versions of a key after the marker to a page.
    pub(super) async fn push_versions(
        &self,
        page: &mut KeyPage<ListedVersion>,
        bucket: BucketId,
        key: &Bytes,
        mut after: Option<VersionMarker>,
    ) -> Result<KeyPageStep> {
        let partition = Partition::head(bucket, key);
        loop {
            let chunk = match after {
                None => self.first_versions(&partition).await?,
                Some(marker) => self.versions_after(&partition, marker).await?,
            };
            for version in chunk.versions {
                after = Some(VersionMarker::Id(version.id));
                let latest = chunk.current == Some(version.id);
                let listed = ListedVersion { version_id: version_id_text(&version), version: shown(version), latest };
                match page.push(key.clone(), listed) {
                    KeyPageStep::Next => {}
                    step => return Ok(step),
                }
            }
            if !chunk.more {
                return Ok(KeyPageStep::Next);
            }
        }
    }

    /// The newest versions of a key: the head and the rows after it.
    async fn first_versions(&self, partition: &Partition) -> Result<VersionChunk> {
        // Race: one page is one snapshot, so no version moves between the head and the rows after it.
        let query = ReadQuery::all(VERSIONS_ROWS);
        let page = self.gateway.context().ports.store.read(partition, &query, &self.options()).await?;
        let mut rows = page.rows.into_iter();
        let Some(head) = rows.next().filter(|row| row.name.is_empty()) else { return Ok(VersionChunk::default()) };
        let Some(current) = ObjectHead::decode(head.value)?.current else { return Ok(VersionChunk::default()) };
        let mut chunk = VersionChunk { current: Some(current.id), versions: vec![current], more: false };
        for row in rows {
            chunk.versions.push(Version::decode(row.value)?);
        }
        chunk.more = page.stopped == Stopped::Limit;
        Ok(chunk)
    }

    /// The newest versions after a marker. Race: a version may become current, or cease to be, during the read; an
    /// unchanged head proves that none did.
    async fn versions_after(&self, partition: &Partition, marker: VersionMarker) -> Result<VersionChunk> {
        let options = self.options();
        for _ in 0..ATTEMPTS_MAX {
            let observed = self.read_head(partition, &options).await?;
            let Some(id) = marker.id(&observed.head) else { return self.first_versions(partition).await };
            let query = ReadQuery::after(Some(&Bytes::copy_from_slice(&id.0)), VERSIONS_ROWS);
            let page = self.gateway.context().ports.store.read(partition, &query, &options).await?;
            if self.read_head(partition, &options).await?.stamp != observed.stamp {
                continue;
            }
            let current = observed.head.current.as_ref().map(|current| current.id);
            // The marker and all newer versions may have been removed since.
            let mut versions: Vec<_> = observed.head.current.filter(|current| current.id > id).into_iter().collect();
            for row in page.rows {
                versions.push(Version::decode(row.value)?);
            }
            return Ok(VersionChunk { versions, current, more: page.stopped == Stopped::Limit });
        }
        Err(larder_core::Error::Overloaded { retry_after: 1 }.into())
    }
}

/// Reduces a version to the fields a listing shows: full versions could hold a body each.
fn shown(version: Version) -> Version {
    let object = version.object.map(|object| {
        let class = object.header(SystemHeader::StorageClass).map(|class| Bytes::copy_from_slice(class));
        Object {
            // Listings show the length only: the id references no blob.
            body: ObjectBody::Blob { id: BlobId([0; 24]), length: object.length() },
            etag: object.etag,
            headers: class.map(|class| (SystemHeader::StorageClass, class)).into_iter().collect(),
            meta: Vec::new(),
            tags: Vec::new(),
            acl: None,
            checksum: object.checksum,
            upload: None,
            encryption: None,
            lock: ObjectLock::default(),
        }
    });
    Version { object, ..version }
}
