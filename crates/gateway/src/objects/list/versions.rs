//! The versions of one key in a listing, newest first.

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::objects::listing::{KeyPage, Step};
use larder_model::objects::{BucketId, Head, Object, ObjectBody, SystemHeader, Version, VersionId};
use larder_store::{Partition, ReadQuery, Stopped};

use super::super::commit::id_text;
use super::super::{Error, Objects, Result};
use super::ListedVersion;

/// Versions read at once: each may hold a body of its own.
const VERSIONS_ROWS: usize = 32;
/// How often a key that changes while its versions are read is read again.
const ATTEMPTS_MAX: usize = 20;

/// The version a page begins behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// The one clients know as `null`, whichever that is.
    Null,
    /// The one of this id, or where it was.
    Id(VersionId),
}

impl Marker {
    /// Reads the marker of a request whose key marker is `after`.
    pub(super) fn parse(text: Option<&str>, after: &[u8]) -> Result<Option<Self>> {
        let bad = |text: &str, message: &str| Error::InvalidArgument {
            name: "version-id-marker",
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

    /// The id it means in this key; `None` when there is no `null` version any more: rather twice than never.
    fn id(self, head: &Head) -> Option<VersionId> {
        match self {
            Self::Id(id) => Some(id),
            Self::Null => head.current.as_ref().filter(|current| current.null).map(|current| current.id).or(head.null),
        }
    }
}

/// Some versions of a key, all of one moment.
#[derive(Default)]
struct Chunk {
    versions: Vec<Version>,
    current: Option<VersionId>,
    more: bool,
}

impl Objects {
    /// Adds the versions of a key behind the marker to a page.
    pub(super) async fn push_versions(
        &self,
        page: &mut KeyPage<ListedVersion>,
        bucket: BucketId,
        key: &Bytes,
        mut behind: Option<Marker>,
    ) -> Result<Step> {
        let partition = Partition::head(bucket, key);
        loop {
            let chunk = match behind {
                None => self.first_versions(&partition).await?,
                Some(marker) => self.versions_behind(&partition, marker).await?,
            };
            for version in chunk.versions {
                behind = Some(Marker::Id(version.id));
                let latest = chunk.current == Some(version.id);
                let listed = ListedVersion { version_id: id_text(&version), version: shown(version), latest };
                match page.push(key.clone(), listed) {
                    Step::Next => {}
                    step => return Ok(step),
                }
            }
            if !chunk.more {
                return Ok(Step::Next);
            }
        }
    }

    /// The newest versions of a key: its head and what is behind it.
    async fn first_versions(&self, partition: &Partition) -> Result<Chunk> {
        let query = ReadQuery::all(VERSIONS_ROWS);
        let page = self.gateway.ports.store.read(partition, &query, &self.options()).await?;
        let mut rows = page.rows.into_iter();
        let Some(head) = rows.next().filter(|row| row.name.is_empty()) else { return Ok(Chunk::default()) };
        let Some(current) = Head::decode(head.value)?.current else { return Ok(Chunk::default()) };
        let mut chunk = Chunk { current: Some(current.id), versions: vec![current], more: false };
        for row in rows {
            chunk.versions.push(Version::decode(row.value)?);
        }
        chunk.more = page.stopped == Stopped::Limit;
        Ok(chunk)
    }

    /// The newest versions behind a marker. A version may become current, or cease to be, at any time: the head says that none
    /// did while the others were read.
    async fn versions_behind(&self, partition: &Partition, marker: Marker) -> Result<Chunk> {
        let options = self.options();
        for _ in 0..ATTEMPTS_MAX {
            let seen = self.read_head(partition, &options).await?;
            let Some(id) = marker.id(&seen.head) else { return self.first_versions(partition).await };
            let query = ReadQuery::after(Some(&Bytes::copy_from_slice(&id.0)), VERSIONS_ROWS);
            let page = self.gateway.ports.store.read(partition, &query, &options).await?;
            if self.read_head(partition, &options).await?.stamp != seen.stamp {
                continue;
            }
            let current = seen.head.current.as_ref().map(|current| current.id);
            // The marker and all that was newer may have been removed since.
            let mut versions: Vec<_> = seen.head.current.filter(|current| current.id > id).into_iter().collect();
            for row in page.rows {
                versions.push(Version::decode(row.value)?);
            }
            return Ok(Chunk { versions, current, more: page.stopped == Stopped::Limit });
        }
        Err(crate::Error::Overloaded { retry_after: 1 }.into())
    }
}

/// What listings show of a version: a page of whole ones could hold a body each.
fn shown(version: Version) -> Version {
    let object = version.object.map(|object| {
        let class = object.header(SystemHeader::StorageClass).map(|class| Bytes::copy_from_slice(class));
        Object {
            // Only the length is told: it names nothing.
            body: ObjectBody::Blob { id: BlobId([0; 24]), length: object.length() },
            etag: object.etag,
            headers: class.map(|class| (SystemHeader::StorageClass, class)).into_iter().collect(),
            meta: Vec::new(),
            tags: Vec::new(),
            acl: None,
            checksum: object.checksum,
            upload: None,
        }
    });
    Version { object, ..version }
}
