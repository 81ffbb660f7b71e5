//! Beginning multipart uploads, and listing open ones.

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_rows::codec::name_after;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_rows::{Row, Timestamp};
use larder_store::{CasResult, DerivedRow, HeadWrite, Kind, Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::buckets::Buckets;
use super::catalogue::CatalogueGuard;
use super::commit::{HeadStore, ObjectLocation};
use super::encryption::ObjectKeys;
use super::list::KeyOrPrefix;
use super::listing_page::{ListObjects, ListingPage};
use super::put::{ObjectMetadata, WriteConditions};
use super::quotas::Quotas;
use super::receive::BodyReceiver;
use super::{Caller, Error, ObjectsConfig, Result};
use crate::rules::encryption::EncryptionKind;
use crate::rules::entry::{upload_entries_from, upload_entry_name, upload_of_entry_name};
use crate::rules::listing::{KeyPage, KeyPageResult, KeyPageStep};
use crate::rules::{
    Algorithm, Bucket, BucketId, ChecksumKind, Upload, UploadEntry, UploadId, UploadState, Version, VersionId,
};

/// A request to begin an upload.
#[derive(Debug, Clone)]
pub struct CreateUpload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The metadata of the object.
    pub metadata: ObjectMetadata,
    /// The checksum of its parts and of the object; the edge checks that the pair is valid.
    pub checksum: Option<(Algorithm, ChecksumKind)>,
    /// What must be true of the object when the upload begins.
    pub conditions: WriteConditions,
}

/// An upload that has begun.
#[derive(Debug, Clone)]
pub struct CreatedUpload {
    /// Its identity.
    pub id: UploadId,
    /// When the lifecycle will abort it.
    pub abort_date: AbortDate,
    /// How its parts are encrypted.
    pub encryption: Option<EncryptionKind>,
}

/// When, and by which rule, the lifecycle will abort an upload.
pub type AbortDate = Option<(Timestamp, String)>;

/// A request to list uploads.
#[derive(Debug, Clone, Default)]
pub struct ListUploads {
    /// As for keys; `after` is the key marker, `max` the most uploads and common prefixes together.
    pub objects: ListObjects,
    /// The upload of the key marker to start after; without one the key marker's own uploads are skipped.
    pub upload: Option<UploadId>,
}

/// The multipart uploads of the S3 interface.
pub struct Uploads {
    pub(super) gateway: Arc<Core>,
    pub(super) config: Arc<ObjectsConfig>,
    pub(super) buckets: Arc<Buckets>,
    pub(super) heads: Arc<HeadStore>,
    pub(super) receiver: Arc<BodyReceiver>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) keys: Arc<ObjectKeys>,
}

impl Uploads {
    /// Begins an upload.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied` (also for every anonymous caller), `KeyTooLong`, and the refusals of an ACL choice and of a
    /// lock.
    pub async fn create(&self, caller: &Caller, request: CreateUpload) -> Result<CreatedUpload> {
        let CreateUpload { bucket, key, metadata, checksum, conditions } = request;
        let target_bucket = self.buckets.find_for_put(caller, &bucket, &key, &metadata.tags, &metadata.lock).await?;
        self.heads.check_new_lock(&target_bucket, &metadata.lock).await?;
        if !conditions.is_empty() {
            // Clients of MinIO send them here, and not with the completion.
            let partition = ObjectLocation::new(&target_bucket, &key).partition();
            let observed = self.heads.read_head(&partition, &self.heads.options()).await?;
            caller.check_conditions(&target_bucket, &key, observed.head.current.as_ref(), &conditions)?;
        }
        let initiator = caller.require_user()?.id.clone();
        let owner = caller.object_owner(&target_bucket, metadata.acl.gives_control());
        let acl = self.buckets.new_object_acl(caller, &target_bucket, &key, &metadata.acl, &owner).await?;
        let encryption = self.keys.begin(metadata.encryption, &target_bucket).await?;
        // Race: under the guard, so that a deletion of the bucket waits for this upload [invariant 64].
        let guard = CatalogueGuard::take(&self.gateway, &bucket, target_bucket.id).await?;
        let stamp = self.gateway.issuer().issue().await?;
        // The id begins with the time, so the uploads of a key are listed in the order of their start [invariant 66].
        let id = UploadId::new(stamp, self.gateway.context().ports.actor);
        let upload = Upload {
            bucket: target_bucket.id,
            key,
            initiator,
            owner,
            initiated: self.gateway.context().now().min(stamp),
            headers: metadata.headers,
            meta: metadata.meta,
            tags: metadata.tags,
            acl,
            checksum,
            encryption: encryption.map(|encryption| encryption.stored),
            lock: metadata.lock,
            state: UploadState::Open,
        };
        let abort_date = abort_date(&guard.bucket, &upload);
        // The id is unique: an existing head is this very upload, written twice.
        self.heads.write_upload(None, UploadHead { id, upload, stamp }).await?;
        Ok(CreatedUpload { id, abort_date, encryption: encryption.map(|encryption| encryption.stored.kind()) })
    }

    /// A page of the open uploads of a bucket, by key and then by start. A line has the upload's id and entry; the
    /// second result is the id of the last line, if that is an upload and there are more.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list(
        &self,
        caller: &Caller,
        request: &ListUploads,
    ) -> Result<(ListingPage<(UploadId, UploadEntry)>, Option<UploadId>)> {
        let bucket = self.buckets.find_for(caller, &request.objects.bucket).await?;
        let mut result = self.uploads_page(bucket.id, request).await?;
        for line in &mut result.listed {
            if let (KeyOrPrefix::Key(_, (_, entry)), false) = (line, bucket.has_acls()) {
                entry.owner.clone_from(&bucket.owner);
            }
        }
        let last = match result.listed.last().filter(|_| result.truncated) {
            Some(KeyOrPrefix::Key(_, (id, _))) => Some(*id),
            _ => None,
        };
        Ok((ListingPage { lines: result.listed, next: result.next }, last))
    }

    async fn uploads_page(
        &self,
        bucket: BucketId,
        request: &ListUploads,
    ) -> Result<KeyPageResult<(UploadId, UploadEntry)>> {
        let ListObjects { after, max, .. } = &request.objects;
        let marker = request.upload.filter(|_| !after.is_empty());
        let mut page = KeyPage::new(request.objects.query(marker.is_some()));
        let Some((begin, end)) = page.read_range() else { return Ok(page.finish()) };
        let to = end.map(|end| upload_entries_from(&end));
        let mut from = match marker {
            Some(marker) if begin == *after => name_after(&upload_entry_name(after, marker)),
            _ => upload_entries_from(&begin),
        };
        let partition = Partition::upload_entries(bucket);
        'rows: loop {
            let range = Range { from: Some(from), to: to.clone() };
            let limit = max.saturating_add(1).min(LISTING_PAGE_ROWS);
            let query = ReadQuery { range, limit, order: ReadOrder::Forward };
            let rows = self.gateway.context().ports.store.read(&partition, &query, &self.heads.options()).await?;
            let Some(last) = rows.rows.last().map(|row| row.name.clone()) else { break };
            // Start of the next rows that matter.
            let mut skip: Option<Bytes> = None;
            for row in rows.rows {
                if skip.as_ref().is_some_and(|skip| row.name < *skip) {
                    continue;
                }
                let (key, id) = upload_of_entry_name(&row.name)?;
                match page.push(key, (id, UploadEntry::decode(row.value)?)) {
                    KeyPageStep::Next => {}
                    KeyPageStep::SkipTo(key) => skip = Some(upload_entries_from(&key)),
                    KeyPageStep::Full => break 'rows,
                }
            }
            from = skip.into_iter().fold(name_after(&last), Bytes::max);
            if rows.stopped == Stopped::End || to.as_ref().is_some_and(|to| from >= *to) {
                break;
            }
        }
        Ok(page.finish())
    }
}

/// When the bucket's lifecycle will abort this upload.
pub(super) fn abort_date(bucket: &Bucket, upload: &Upload) -> AbortDate {
    let lifecycle = bucket.lifecycle.as_ref()?;
    lifecycle.upload_expiry(&upload.key, upload.initiated).map(|(when, rule)| (when, rule.to_owned()))
}

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
        HeadWrite { derived: Some(derived), ..HeadWrite::from(row) }
    }
}

impl HeadStore {
    /// An upload in any state; `None` when it never existed or ended more than a day ago.
    pub(super) async fn read_upload(&self, id: UploadId) -> Result<Option<UploadHead>> {
        let (store, options) = (&self.gateway.context().ports.store, self.options());
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
        let head = self.read_upload(id).await?;
        head.filter(|head| head.upload.bucket == bucket.id && head.upload.key == key).ok_or(Error::NoSuchUpload)
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
        let head = next.encode(self.gateway.context().now());
        let grows = expected.is_none() || matches!(next.upload.state, UploadState::Completing { .. });
        let options = if grows { self.options() } else { self.options().reclaiming() };
        let partition = Partition::upload(next.id);
        match self.gateway.context().ports.store.apply_if(&partition, expected, head, Vec::new(), &options).await {
            Ok(CasResult::Applied) => Ok(Some(next)),
            Ok(CasResult::Conflict(_)) => Ok(None),
            // Race: after a lost answer the head itself says whether it has this write.
            Err(error) if error.kind == Kind::TimedOut => match self.read_upload(next.id).await {
                Ok(Some(stored_head)) if stored_head == next => {
                    Ok(self.gateway.blobs().releases.await_sync().await.map(|()| Some(next))?)
                }
                // An error of that read says nothing about the write, whose outcome stays unknown.
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the upload of `version` done before the version leaves its key.
    pub(super) async fn finish_upload_behind(&self, version: &Version) -> Result<()> {
        let Some(id) = version.object.as_ref().and_then(|object| object.upload) else { return Ok(()) };
        while let Some(head) = self.read_upload(id).await? {
            // Race: a recovery that misses the version would reopen the upload over parts that are gone [invariant 97].
            let Some((completed, list, _)) = state_completion(&head.upload.state) else { break };
            if completed != version.id || self.cas_upload_state(&head, done_state(version, list)).await?.is_some() {
                break;
            }
        }
        Ok(())
    }
}

/// The version of a completion, the digest of its list, and its start; no start: it is being taken back.
pub(super) fn state_completion(state: &UploadState) -> Option<(VersionId, [u8; 20], Option<Timestamp>)> {
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
