//! The head of an upload: read, and changed by compare-and-set. Its shadow lists the upload while it is alive.

use bytes::Bytes;
use larder_model::objects::entry::upload_entry_name;
use larder_model::objects::{Bucket, Upload, UploadEntry, UploadId, UploadState};
use larder_model::rows::{Micros, Row, Stamp};
use larder_store::{Head, Kind, Partition, ReadQuery, Shadow, Swap};

use super::{Caller, Error, Objects, Result};

/// How long the head of an upload that has ended stays, in microseconds: so long a repeat is answered the same.
const ENDED_MICROS: Micros = 24 * 60 * 60 * 1_000_000;

/// An upload as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadHead {
    /// Its identity.
    pub(super) id: UploadId,
    /// What its head says.
    pub(super) upload: Upload,
    /// The head's stamp.
    pub(super) stamp: Stamp,
}

impl UploadHead {
    /// Whether it was the caller who began the upload.
    pub(super) fn is_begun_by(&self, caller: &Caller) -> bool {
        caller.user.as_ref().is_some_and(|user| user.id == self.upload.initiator)
    }

    /// The row with its shadow.
    fn encode(&self, now: Micros) -> Head {
        let alive = self.upload.state.is_alive();
        let expires = (!alive).then_some(now + ENDED_MICROS);
        let row = Row { name: Bytes::new(), value: self.upload.encode(), stamp: self.stamp, expires };
        let shadow = Shadow {
            partition: Partition::upload_entries(self.upload.bucket),
            name: upload_entry_name(&self.upload.key, self.id),
            value: UploadEntry::of(&self.upload).map(|entry| entry.encode()),
        };
        Head { row, shadow: Some(shadow) }
    }
}

impl Objects {
    /// An upload, whatever has become of it; `None` when there never was one or it ended more than a day ago.
    pub(super) async fn read_upload(&self, id: UploadId) -> Result<Option<UploadHead>> {
        let (store, options) = (&self.gateway.ports.store, self.options());
        let page = store.read(&Partition::upload(id), &ReadQuery::all(1), &options).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(None) };
        Ok(Some(UploadHead { id, upload: Upload::decode(row.value)?, stamp: row.stamp }))
    }

    /// The upload of this id, if it is one of this key; `text` as it came.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(super) async fn known_upload(&self, bucket: &Bucket, key: &[u8], text: &str) -> Result<UploadHead> {
        let id = UploadId::from_text(text).ok_or(Error::NoSuchUpload)?;
        let found = self.read_upload(id).await?;
        found.filter(|head| head.upload.bucket == bucket.id && head.upload.key == key).ok_or(Error::NoSuchUpload)
    }

    /// As [`Self::known_upload`], if the upload takes parts or may do so again.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(super) async fn upload(&self, bucket: &Bucket, key: &[u8], text: &str) -> Result<UploadHead> {
        let head = self.known_upload(bucket, key, text).await?;
        if head.upload.state.is_alive() { Ok(head) } else { Err(Error::NoSuchUpload) }
    }

    /// Changes the state of an upload; `None`: it is not as it was seen any more.
    pub(super) async fn swap_upload(&self, seen: &UploadHead, state: UploadState) -> Result<Option<UploadHead>> {
        // Two more than the stamp seen: the one between is the engine's.
        self.gateway.clock.pass(seen.stamp + 1);
        let stamp = self.gateway.issue().await?;
        let upload = Upload { state, ..seen.upload.clone() };
        self.write_upload(Some(seen.stamp), UploadHead { id: seen.id, upload, stamp }).await
    }

    /// Writes the head of an upload if the one that is there has the stamp `expected`. What ends an upload or takes it back
    /// gives room back sooner or later.
    pub(super) async fn write_upload(&self, expected: Option<Stamp>, next: UploadHead) -> Result<Option<UploadHead>> {
        let head = next.encode(self.gateway.now());
        let grows = expected.is_none() || matches!(next.upload.state, UploadState::Completing { .. });
        let options = if grows { self.options() } else { self.options().reclaiming() };
        let partition = Partition::upload(next.id);
        match self.gateway.ports.store.apply_if(&partition, expected, head, Vec::new(), &options).await {
            Ok(Swap::Applied) => Ok(Some(next)),
            Ok(Swap::Conflict(_)) => Ok(None),
            // After a lost answer the head itself says whether this write is in it.
            Err(error) if error.kind == Kind::TimedOut => match self.read_upload(next.id).await? {
                Some(found) if found == next => Ok(self.gateway.on_disk().await.map(|()| Some(next))?),
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}
