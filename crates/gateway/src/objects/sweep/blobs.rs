//! The sweeper's view of blobs that belong to S3 objects: the versions of their key name them, or do not.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use larder_model::content::BlobId;
use larder_model::objects::{Part, UploadId, UploadState};
use larder_model::rows::Micros;
use larder_store::{Partition, Table};

use super::named::Wanted;
use crate::Rule;
use crate::blobs::sweep::{BlobNames, Look, OwnedBlob};
use crate::objects::{Error, Objects, Result};

/// How long a part that replaced another one has to be there before the other one's bytes go: longer than an upload takes to be
/// completed.
const REPLACED_MICROS: Micros = 60 * 60 * 1_000_000;

#[async_trait]
impl BlobNames for Objects {
    fn owns(&self, table: Table) -> bool {
        table == Table::Heads
    }

    /// Always: versions move between the head and their own rows, and only behind the fence they are looked at while they rest.
    fn is_fenced(&self) -> bool {
        self.gateway.rule(Rule::FenceSweeper)
    }

    async fn unnamed(&self, key: &Partition, blobs: Vec<OwnedBlob>, look: Look) -> crate::Result<Vec<OwnedBlob>> {
        let blobs = if look == Look::First { self.without_alive(blobs).await.map_err(in_gateway)? } else { blobs };
        let wanted = Wanted {
            blobs: blobs.iter().map(|blob| blob.id).collect(),
            uploads: blobs.iter().filter_map(upload_of).collect(),
            ..Wanted::default()
        };
        if wanted.is_found() {
            return Ok(Vec::new());
        }
        let left = match look {
            Look::First => self.unnamed_once(key, &wanted).await,
            Look::Fenced => self.unnamed_now(key, &wanted).await,
        };
        let left = left.map_err(in_gateway)?;
        let is_left = |blob: &OwnedBlob| left.blobs.contains(&blob.id);
        Ok(blobs.into_iter().filter(is_left).collect())
    }

    async fn touch_head(&self, key: &Partition) -> crate::Result<()> {
        let damaged = || crate::Error::Damaged("the name of a key's head".into());
        let (bucket, name) = key.of_head().ok_or_else(damaged)?;
        self.touch(bucket, &name).await.map(drop).map_err(in_gateway)
    }

    fn is_read(&self, blob: &OwnedBlob) -> bool {
        let read = upload_of(blob).is_some_and(|upload| self.pins.holds_upload(&upload));
        read && self.gateway.rule(Rule::PinReaders)
    }
}

impl Objects {
    /// The blobs, but not those of uploads that have not ended: these are the uploads', unless their part was replaced.
    async fn without_alive(&self, blobs: Vec<OwnedBlob>) -> Result<Vec<OwnedBlob>> {
        let mut uploads: HashMap<UploadId, BlobUse> = HashMap::new();
        let mut left = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let Some((upload, number)) = part_of(&blob) else {
                left.push(blob);
                continue;
            };
            let used = match uploads.entry(upload) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.blob_use(upload).await?),
            };
            if !used.keeps(number, blob.id) {
                left.push(blob);
            }
        }
        Ok(left)
    }

    /// Reads once what an upload uses: a key has up to ten thousand blobs of one.
    async fn blob_use(&self, upload: UploadId) -> Result<BlobUse> {
        Ok(match self.read_upload(upload).await?.map(|head| head.upload.state) {
            Some(UploadState::Open) => BlobUse::OfParts {
                parts: self.all_parts(upload).await?,
                replaced_before: self.gateway.now().saturating_sub(REPLACED_MICROS),
            },
            Some(state) if state.is_alive() => BlobUse::All,
            _ => BlobUse::None,
        })
    }
}

/// The blobs that an upload uses.
enum BlobUse {
    /// It is open: all but those of parts that were replaced before this moment. Nobody who completes it has seen them.
    OfParts { parts: BTreeMap<u16, Part>, replaced_before: Micros },
    /// It is being completed.
    All,
    /// It has ended.
    None,
}

impl BlobUse {
    fn keeps(&self, number: u16, blob: BlobId) -> bool {
        match self {
            Self::OfParts { parts, replaced_before } => {
                parts.get(&number).is_none_or(|part| part.blob == Some(blob) || part.modified >= *replaced_before)
            }
            Self::All => true,
            Self::None => false,
        }
    }
}

/// The upload whose part a blob was, and the part's number: its owner's row is both.
fn part_of(blob: &OwnedBlob) -> Option<(UploadId, u16)> {
    let (id, number) = blob.row.split_at_checked(16)?;
    Some((UploadId(id.try_into().ok()?), u16::from_be_bytes(number.try_into().ok()?)))
}

fn upload_of(blob: &OwnedBlob) -> Option<UploadId> {
    part_of(blob).map(|(upload, _)| upload)
}

/// An error in the words of the sweeper.
fn in_gateway(error: Error) -> crate::Error {
    match error {
        Error::Gateway(error) => error,
        other => crate::Error::Internal(other.to_string()),
    }
}
