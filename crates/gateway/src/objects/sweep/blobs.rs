//! What the S3 side says of its blobs to the sweeper: whether the versions of their key name them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use async_trait::async_trait;
use larder_model::objects::UploadId;
use larder_store::{Partition, Table};

use super::named::Wanted;
use crate::Rule;
use crate::blobs::sweep::{BlobNames, Look, OwnedBlob};
use crate::objects::{Error, Objects, Result};

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
    /// The blobs, but not those of uploads that have not ended: these are the uploads'.
    async fn without_alive(&self, blobs: Vec<OwnedBlob>) -> Result<Vec<OwnedBlob>> {
        let mut alive: HashMap<UploadId, bool> = HashMap::new();
        for upload in blobs.iter().filter_map(upload_of) {
            if let Entry::Vacant(unknown) = alive.entry(upload) {
                let head = self.read_upload(upload).await?;
                unknown.insert(head.is_some_and(|head| head.upload.state.is_alive()));
            }
        }
        let has_ended = |blob: &OwnedBlob| upload_of(blob).is_none_or(|upload| alive.get(&upload) != Some(&true));
        Ok(blobs.into_iter().filter(has_ended).collect())
    }
}

/// The upload whose part a blob was: its owner's row is the upload's id and the number of the part.
fn upload_of(blob: &OwnedBlob) -> Option<UploadId> {
    let (id, number) = blob.row.split_at_checked(16)?;
    Some(UploadId(id.try_into().ok()?)).filter(|_| number.len() == 2)
}

/// An error in the words of the sweeper.
fn in_gateway(error: Error) -> crate::Error {
    match error {
        Error::Gateway(error) => error,
        other => crate::Error::Internal(other.to_string()),
    }
}
