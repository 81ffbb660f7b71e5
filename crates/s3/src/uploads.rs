//! Beginning multipart uploads, and listing open ones.

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_rows::Timestamp;
use larder_rows::codec::name_after;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_store::{Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::buckets::Buckets;
use super::catalogue_guard::CatalogueGuard;
use super::commit::HeadStore;
use super::list::{KeyOrPrefix, ListObjects, ListingPage};
use super::put::ObjectMetadata;
use super::quotas::Quotas;
use super::receive::BodyReceiver;
use super::upload_head::UploadHead;
use super::{Caller, ObjectsConfig, Result};
use crate::rules::entry::{upload_entries_from, upload_entry_name, upload_of_entry_name};
use crate::rules::listing::{KeyPage, KeyPageResult, KeyPageStep};
use crate::rules::{Algorithm, Bucket, BucketId, ChecksumKind, Upload, UploadEntry, UploadId, UploadState};

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
}

impl Uploads {
    /// Begins an upload.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied` (also for every anonymous caller), `KeyTooLong`, and the refusals of an ACL choice.
    pub async fn create(&self, caller: &Caller, request: CreateUpload) -> Result<(UploadId, AbortDate)> {
        let CreateUpload { bucket, key, metadata, checksum } = request;
        let found = self.buckets.find_for_put(caller, &bucket, &key, &metadata.tags).await?;
        let owner = caller.require_user()?.id.clone();
        let acl = self.buckets.new_object_acl(caller, &found, &key, (&metadata.acl, &owner)).await?;
        // Race: under the guard, so that a deletion of the bucket waits for this upload [invariant 64].
        let guard = CatalogueGuard::take(&self.gateway, &bucket, found.id).await?;
        let stamp = self.gateway.issuer.issue().await?;
        // The id begins with the time, so the uploads of a key are listed in the order of their start [invariant 66].
        let id = UploadId::new(stamp, self.gateway.core.ports.actor);
        let upload = Upload {
            bucket: found.id,
            key,
            initiator: owner.clone(),
            owner,
            initiated: self.gateway.core.now().min(stamp),
            headers: metadata.headers,
            meta: metadata.meta,
            tags: metadata.tags,
            acl,
            checksum,
            state: UploadState::Open,
        };
        let abort_date = abort_date(&guard.bucket, &upload);
        // The id is unique: an existing head is this very upload, written twice.
        self.heads.write_upload(None, UploadHead { id, upload, stamp }).await?;
        Ok((id, abort_date))
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
        let result = self.uploads_page(bucket.id, request).await?;
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
            let rows = self.gateway.core.ports.store.read(&partition, &query, &self.heads.options()).await?;
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
