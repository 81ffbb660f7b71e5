//! Beginning multipart uploads, and listing those that are open.

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_model::limits::LISTING_PAGE_ROWS;
use larder_model::objects::access::Asked;
use larder_model::objects::entry::{upload_entries_from, upload_entry_name, upload_of_entry_name};
use larder_model::objects::listing::{self, KeyPage, KeyPageResult, KeyQuery, Step};
use larder_model::objects::{
    Algorithm, Bucket, BucketId, ChecksumKind, Permission, Upload, UploadEntry, UploadId, UploadState,
};
use larder_model::rows::Micros;
use larder_store::{Order, Partition, Range, ReadQuery, Stopped};

use super::list::{ListObjects, Listed, Page};
use super::put::About;
use super::upload_head::UploadHead;
use super::{Caller, Objects, Result};

/// A new upload.
#[derive(Debug, Clone)]
pub struct CreateUpload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// What is said about the object to be.
    pub about: About,
    /// The checksum of its parts and of the object; checked by the edge to be a pair that is allowed.
    pub checksum: Option<(Algorithm, ChecksumKind)>,
}

/// When and by which lifecycle rule an upload will be given up.
pub type AbortDate = Option<(Micros, String)>;

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct ListUploads {
    /// As for keys; `after` is the key marker, `max` the most uploads and common prefixes together.
    pub objects: ListObjects,
    /// Behind which upload of the key marker; without one the key marker's own uploads are left out.
    pub upload: Option<UploadId>,
}

impl Objects {
    /// Begins an upload.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied` (also to who did not sign, whatever is granted), `KeyTooLong`, and what a list of grants
    /// may be refused for.
    pub async fn create_upload(&self, caller: &Caller, request: CreateUpload) -> Result<(UploadId, AbortDate)> {
        let CreateUpload { bucket, key, about, checksum } = request;
        let found = self.writable(caller, &bucket, &key, &about.tags).await?;
        let owner = caller.signed()?.id.clone();
        let acl = self.acl_for(caller, &found, &key, (&about.acl, &owner)).await?;
        let section = self.section(&bucket, found.id).await?;
        let stamp = self.gateway.issue().await?;
        let id = UploadId::new(stamp, self.gateway.actor);
        let upload = Upload {
            bucket: found.id,
            key,
            initiator: owner.clone(),
            owner,
            initiated: self.gateway.now().min(stamp),
            headers: about.headers,
            meta: about.meta,
            tags: about.tags,
            acl,
            checksum,
            state: UploadState::Open,
        };
        let abort_date = abort_date(&section.bucket, &upload);
        // Nobody else makes this id: one that is there already is this very upload, written twice.
        self.write_upload(None, UploadHead { id, upload, stamp }).await?;
        Ok((id, abort_date))
    }

    /// A page of the open uploads of a bucket, by key and then as they were begun. A line's payload is the upload's id and
    /// entry; the answer's second half is the id of the last line, if that is an upload and there is more behind it.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list_uploads(
        &self,
        caller: &Caller,
        request: &ListUploads,
    ) -> Result<(Page<(UploadId, UploadEntry)>, Option<UploadId>)> {
        let bucket = self.bucket(&request.objects.bucket).await?;
        let permission = Some(Permission::Read);
        let asked = Asked { action: "s3:ListBucketMultipartUploads", permission, key: None, version: None };
        caller.check(&bucket, &asked)?;
        let result = self.uploads_page(bucket.id, request).await?;
        let last = match result.listed.last().filter(|_| result.truncated) {
            Some(listing::Listed::Key(_, (id, _))) => Some(*id),
            _ => None,
        };
        let lines = result.listed.into_iter().map(|listed| match listed {
            listing::Listed::Key(key, entry) => Listed::Key(key, entry),
            listing::Listed::Prefix(prefix) => Listed::Prefix(prefix),
        });
        Ok((Page { lines: lines.collect(), next: result.next }, last))
    }

    async fn uploads_page(
        &self,
        bucket: BucketId,
        request: &ListUploads,
    ) -> Result<KeyPageResult<(UploadId, UploadEntry)>> {
        let ListObjects { prefix, delimiter, after, max, .. } = request.objects.clone();
        let marker = request.upload.filter(|_| !after.is_empty());
        let after_again = marker.is_some();
        let mut page = KeyPage::new(KeyQuery { prefix, delimiter, after: after.clone(), after_again, max });
        let Some((begin, end)) = page.range() else { return Ok(page.finish()) };
        let to = end.map(|end| upload_entries_from(&end));
        let mut from = match marker {
            Some(marker) if begin == after => behind(&upload_entry_name(&after, marker)),
            _ => upload_entries_from(&begin),
        };
        let partition = Partition::upload_entries(bucket);
        'rows: loop {
            let range = Range { from: Some(from), to: to.clone() };
            let limit = max.saturating_add(1).min(LISTING_PAGE_ROWS);
            let query = ReadQuery { range, limit, order: Order::Forward };
            let rows = self.gateway.ports.store.read(&partition, &query, &self.options()).await?;
            let Some(last) = rows.rows.last().map(|row| row.name.clone()) else { break };
            // Where the rest of these rows begins to matter again.
            let mut skip: Option<Bytes> = None;
            for row in rows.rows {
                if skip.as_ref().is_some_and(|skip| row.name < *skip) {
                    continue;
                }
                let (key, id) = upload_of_entry_name(&row.name)?;
                match page.push(key, (id, UploadEntry::decode(row.value)?)) {
                    Step::Next => {}
                    Step::SkipTo(key) => skip = Some(upload_entries_from(&key)),
                    Step::Full => break 'rows,
                }
            }
            from = skip.into_iter().fold(behind(&last), Bytes::max);
            if rows.stopped == Stopped::End || to.as_ref().is_some_and(|to| from >= *to) {
                break;
            }
        }
        Ok(page.finish())
    }
}

/// When the bucket's lifecycle will give this upload up.
pub(super) fn abort_date(bucket: &Bucket, upload: &Upload) -> AbortDate {
    let lifecycle = bucket.lifecycle.as_ref()?;
    lifecycle.abort_upload(&upload.key, upload.initiated).map(|(when, rule)| (when, rule.to_owned()))
}

/// The first name behind this one.
fn behind(name: &Bytes) -> Bytes {
    [&name[..], &[0]].concat().into()
}
