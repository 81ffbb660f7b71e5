//! The head of an upload: read, and changed by compare-and-set. Its derived row lists the upload while it is alive.

use bytes::Bytes;
use larder_rows::{Row, Timestamp};
use larder_store::{CasResult, DerivedRow, HeadWrite, Kind, Partition, ReadQuery};

use super::commit::HeadStore;
use super::{Caller, Error, Result};
use crate::rules::entry::upload_entry_name;
use crate::rules::{Bucket, Upload, UploadEntry, UploadId, UploadState, Version, VersionId};

/// How long the head of an ended upload stays, in microseconds: repeats of a completion get the same answer until then.
const ENDED_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// An upload as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadHead {
    /// Its identity.
    pub(super) id: UploadId,
    /// The decoded head.
    pub(super) upload: Upload,
    /// The head's stamp.
    pub(super) stamp: Timestamp,
}

impl UploadHead {
    /// Refuses a caller who neither began the upload nor has permission for the action of the request.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(super) fn check(&self, caller: &Caller, bucket: &Bucket) -> Result<()> {
        let asked = caller.action()?.on_key(&self.upload.key);
        match caller.user.as_ref().is_some_and(|user| user.id == self.upload.initiator) {
            true => caller.check_own(bucket, &asked),
            false => caller.check(bucket, &asked),
        }
    }

    /// The row with its derived row.
    fn encode(&self, now: Timestamp) -> HeadWrite {
        let alive = self.upload.state.is_alive();
        let expires = (!alive).then_some(now + ENDED_MICROS);
        let row = Row { name: Bytes::new(), value: self.upload.encode(), stamp: self.stamp, expires };
        // Crash: as a derived row the listing entry follows its head even if the writer dies between them [invariant 66].
        let derived = DerivedRow {
            partition: Partition::upload_entries(self.upload.bucket),
            name: upload_entry_name(&self.upload.key, self.id),
            value: UploadEntry::from_upload(&self.upload).map(|entry| entry.encode()),
        };
        HeadWrite { row, derived: Some(derived) }
    }
}

impl HeadStore {
    /// An upload in any state; `None` when it never existed or ended more than a day ago.
    pub(super) async fn read_upload(&self, id: UploadId) -> Result<Option<UploadHead>> {
        let (store, options) = (&self.gateway.core.ports.store, self.options());
        let page = store.read(&Partition::upload(id), &ReadQuery::all(1), &options).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(None) };
        Ok(Some(UploadHead { id, upload: Upload::decode(row.value)?, stamp: row.stamp }))
    }

    /// The upload of this id, if it belongs to this key; `text` as given.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(super) async fn find_upload(&self, bucket: &Bucket, key: &[u8], text: &str) -> Result<UploadHead> {
        let id = UploadId::from_text(text).ok_or(Error::NoSuchUpload)?;
        let found = self.read_upload(id).await?;
        found.filter(|head| head.upload.bucket == bucket.id && head.upload.key == key).ok_or(Error::NoSuchUpload)
    }

    /// As [`Self::find_upload`], if the upload is alive.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(super) async fn find_live_upload(&self, bucket: &Bucket, key: &[u8], text: &str) -> Result<UploadHead> {
        let head = self.find_upload(bucket, key, text).await?;
        if head.upload.state.is_alive() { Ok(head) } else { Err(Error::NoSuchUpload) }
    }

    /// Changes the state of an upload by compare-and-set; `None`: the upload has changed since it was read.
    pub(super) async fn cas_upload_state(
        &self,
        observed: &UploadHead,
        state: UploadState,
    ) -> Result<Option<UploadHead>> {
        let stamp = self.stamp_above(Some(observed.stamp)).await?;
        let upload = Upload { state, ..observed.upload.clone() };
        self.write_upload(Some(observed.stamp), UploadHead { id: observed.id, upload, stamp }).await
    }

    /// Writes the head of an upload if the current head has the stamp `expected`. Ending or taking back an upload frees
    /// space in the end, so it works on a full disk.
    pub(super) async fn write_upload(
        &self,
        expected: Option<Timestamp>,
        next: UploadHead,
    ) -> Result<Option<UploadHead>> {
        let head = next.encode(self.gateway.core.now());
        let grows = expected.is_none() || matches!(next.upload.state, UploadState::Completing { .. });
        let options = if grows { self.options() } else { self.options().reclaiming() };
        let partition = Partition::upload(next.id);
        match self.gateway.core.ports.store.apply_if(&partition, expected, head, Vec::new(), &options).await {
            Ok(CasResult::Applied) => Ok(Some(next)),
            Ok(CasResult::Conflict(_)) => Ok(None),
            // Race: after a lost answer the head itself says whether it has this write.
            Err(error) if error.kind == Kind::TimedOut => match self.read_upload(next.id).await {
                Ok(Some(found)) if found == next => {
                    Ok(self.gateway.blobs.releases.await_sync().await.map(|()| Some(next))?)
                }
                // An error of that read says nothing about the write, whose outcome stays unknown.
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the upload of `version` done before the version leaves its key.
    pub(super) async fn finish_upload_of(&self, version: &Version) -> Result<()> {
        let Some(id) = version.object.as_ref().and_then(|object| object.upload) else { return Ok(()) };
        while let Some(head) = self.read_upload(id).await? {
            // Race: a recovery that misses the version would reopen the upload over parts that are gone [invariant 97].
            let Some((completed, list, _)) = completion_of(&head.upload.state) else { break };
            if completed != version.id || self.cas_upload_state(&head, done_state(version, list)).await?.is_some() {
                break;
            }
        }
        Ok(())
    }
}

/// The version of a completion, the digest of its list, and its start; no start: it is being taken back.
pub(super) fn completion_of(state: &UploadState) -> Option<(VersionId, [u8; 20], Option<Timestamp>)> {
    match state {
        UploadState::Completing { version, list, since } => Some((*version, *list, Some(*since))),
        UploadState::Reopening { version, list } => Some((*version, *list, None)),
        UploadState::Open | UploadState::Done { .. } | UploadState::Aborted => None,
    }
}

/// The state of an upload that became this version.
pub(super) fn done_state(version: &Version, list: [u8; 20]) -> UploadState {
    let Some(object) = &version.object else { return UploadState::Aborted };
    let checksum = object.checksum.clone();
    UploadState::Done { version: version.id, null: version.null, list, etag: object.etag, checksum }
}
