//! Parts of an upload: put, copy, list.
//!
//! Rows of the parts of an upload.
//!
//! ```text
//! row <number>          the part of this number that was stored last
//! row ff ff <blob id>   a blob of the upload: of a part, or of a replaced part
//! ```
//! One batch writes both. So a part is replaced without a read, and the end of the upload finds every blob that may have to
//! go.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_rows::limits::LISTING_PAGE_ROWS;
use larder_rows::{Batch, Change, Row, Timestamp};
use larder_store::{Partition, Range, ReadOrder, ReadQuery, Stopped};

use super::commit::{HeadStore, ObjectLocation};
use super::encryption::EncryptionChoice;
use super::get::{GetObject, ReadWindow};
use super::put::{ChecksumWanted, UploadBody};
use super::receive::{BlobDestination, VerifiedBody};
use super::uploads::{AbortDate, UploadHead, Uploads, abort_date};
use super::{Caller, Error, Objects, RequestArgument, Result};
use crate::rules::encryption::EncryptionKind;
use crate::rules::part::{PART_NUMBER_MAX, PartsPage, parts_page};
use crate::rules::{
    Algorithm, Bucket, Checksum, ChecksumKind, ObjectLock, Part, Storage, Upload, UploadId, UploadState,
};

/// The address of a part.
#[derive(Debug, Clone)]
pub struct PartAddress {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload id, as given.
    pub upload: String,
    /// The part's number, 1 to 10,000: checked by the edge.
    pub number: u16,
    /// The encryption that the request names, which must be the upload's.
    pub encryption: EncryptionChoice,
}

/// A stored part.
#[derive(Debug, Clone)]
pub struct StoredPart {
    /// The part.
    pub part: Part,
    /// Its checksum, if the upload has one or the client gave one.
    pub checksum: Option<Checksum>,
    /// How it is encrypted.
    pub encryption: Option<EncryptionKind>,
}

/// An upload and a page of its parts.
#[derive(Debug, Clone)]
pub struct ListedParts {
    /// The upload.
    pub upload: Upload,
    /// Parts with numbers above the marker.
    pub page: PartsPage,
    /// When, and by which rule, the lifecycle will abort the upload.
    pub abort_date: AbortDate,
}

/// A request to list parts.
#[derive(Debug, Clone)]
pub struct ListParts {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload id, as given.
    pub upload: String,
    /// Only parts above this number.
    pub after: u32,
    /// Most parts, 0 to 1000.
    pub max: usize,
    /// The encryption that the request names, which must be the upload's.
    pub encryption: EncryptionChoice,
}

const NO_DIGEST: &str =
    "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Part requests with Object Lock parameters";

impl Uploads {
    /// Stores a part. Of several with one number the part finished last wins.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `QuotaExceeded`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`,
    /// `InvalidRequest` for a checksum of another algorithm than the upload's, or none where it must be given, and for no digest of
    /// a part of a locked object.
    pub async fn put_part(&self, caller: &Caller, at: &PartAddress, upload_body: UploadBody) -> Result<StoredPart> {
        let (bucket, head, to) = self.upload_for_part(caller, at).await?;
        let has_checksum = matches!(upload_body.checksum, ChecksumWanted::Given(_) | ChecksumWanted::Trailing(_));
        let has_digest = has_checksum || upload_body.md5.is_some();
        if !head.upload.lock.is_empty() && !has_digest {
            return Err(Error::InvalidRequest(NO_DIGEST.to_owned()));
        }
        let checksum = part_checksum(head.upload.checksum, upload_body.checksum)?;
        let announced = upload_body.length;
        let admission = self.quotas.admit(&bucket, &at.key, Storage::part(announced.unwrap_or(0))).await?;
        let is_named = checksum != ChecksumWanted::Default;
        let received = self.receiver.receive(UploadBody { checksum, ..upload_body }, to).await?;
        let room = Storage::part(received.length);
        let admission = self.quotas.admit_received(admission, announced, &bucket, &at.key, room).await;
        let admission = self.receiver.keep_or_discard(admission, &received).await?;
        let checksum = Some(received.checksum.clone()).filter(|_| is_named);
        let part = self.store_part(&head, at.number, received).await?;
        admission.written();
        Ok(StoredPart { part, checksum, encryption: head.upload.encryption_kind() })
    }

    /// The upload of a part, if the caller may put it there, and the destination of its bytes.
    async fn upload_for_part(
        &self,
        caller: &Caller,
        at: &PartAddress,
    ) -> Result<(Arc<Bucket>, UploadHead, BlobDestination)> {
        let bucket = self.buckets.find(&at.bucket).await?;
        let head = self.heads.find_live_upload(&bucket, &at.key, &at.upload).await;
        let kind = head.as_ref().ok().and_then(|head| head.upload.encryption_kind());
        // Also where there is no such upload: a caller without permission does not learn that.
        let bucket = self
            .buckets
            .find_for_put(&caller.with_encryption(kind), &at.bucket, &at.key, &[], &ObjectLock::default())
            .await?;
        let head = head?;
        let (location, needs_default) = (ObjectLocation::new(&bucket, &at.key), head.upload.checksum.is_none());
        let key = self.keys.upload_key(head.upload.encryption.as_ref(), at.encryption)?;
        let to = self.receiver.part_destination(&location, head.id, at.number, needs_default).await?.sealed(key);
        Ok((bucket, head, to))
    }

    /// Makes a received body a part, if the upload is alive.
    async fn store_part(&self, head: &UploadHead, number: u16, received: VerifiedBody) -> Result<Part> {
        let blob = received.blob();
        let checksum = match head.upload.checksum {
            Some(_) => Some(received.checksum.digest.clone()),
            None => received.default_digest.clone(),
        };
        let (md5, length) = (received.tag, received.length);
        // Race: the stamp is issued after the body, so of several parts with one number the part finished last wins.
        let stamp = match self.gateway.issuer().issue().await {
            Ok(stamp) => stamp,
            Err(error) => {
                let error = Error::from(error);
                self.receiver.discard(&error, blob).await;
                return Err(error);
            }
        };
        let part = Part { number, md5, length, blob, modified: self.gateway.context().now(), checksum };
        // Race: reread after the body; an upload that ended in the meantime takes no part.
        let alive = self.heads.read_upload(head.id).await.map(|now| now.is_some_and(|now| now.upload.state.is_alive()));
        if !matches!(alive, Ok(true)) {
            // No row references the blob yet.
            self.receiver.discard(&Error::NoSuchUpload, blob).await;
            return alive.and(Err(Error::NoSuchUpload));
        }
        if let Err(error) = self.write_part(head.id, &part, stamp).await {
            self.receiver.discard(&error, blob).await;
            return Err(error);
        }
        // Race: until the row of the part names the blob, only the lease keeps sweepers from it.
        drop(received.lease);
        // Race: the upload may have ended between that read and the write of the part.
        self.remove_if_upload_ended(head, &part, stamp).await?;
        // Race: the blob of a replaced part stays until the upload ends: a running completion may use it [invariant 58].
        Ok(part)
    }

    /// Rereads the upload of a stored part. Race: the request that ended the upload may have missed the part, which
    /// then has to go; or it may have used the part, which then stays in the object.
    async fn remove_if_upload_ended(&self, head: &UploadHead, part: &Part, stamp: Timestamp) -> Result<()> {
        // A missing upload proves nothing about the object: the sweeper checks the key.
        let now = self.heads.read_upload(head.id).await?.ok_or(Error::NoSuchUpload)?;
        // Race: the completion may have taken this part before it ended; its object needs the bytes [invariant 98].
        let used = match (&now.upload.state, part.blob) {
            (state, _) if state.is_alive() => return Ok(()),
            (UploadState::Done { version, .. }, Some(blob)) => self.manifest_blobs(*version).await?.contains(&blob),
            _ => false,
        };
        self.remove_part(head.id, part, stamp).await?;
        if used {
            return Ok(());
        }
        // The part's row referenced the blob until now.
        self.gateway.blobs().releases.release_replaced(part.blob.into_iter().collect()).await;
        Err(Error::NoSuchUpload)
    }

    /// One page of parts. Costs one read of the upload and one of the page, whatever the number of parts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `AccessDenied`; `PartDiffers`, `PartKeyDiffers` for another encryption than the upload's.
    pub async fn list_parts(&self, caller: &Caller, request: &ListParts) -> Result<ListedParts> {
        let bucket = self.buckets.find(&request.bucket).await?;
        let head = self.heads.find_live_upload(&bucket, &request.key, &request.upload).await?;
        head.check(caller, &bucket)?;
        if request.encryption != EncryptionChoice::BucketDefault {
            self.keys.upload_key(head.upload.encryption.as_ref(), request.encryption)?;
        }
        let after = u16::try_from(request.after).unwrap_or(PART_NUMBER_MAX).min(PART_NUMBER_MAX);
        let (parts, _) = self.heads.read_parts(head.id, after, request.max.saturating_add(1)).await?;
        let abort_date = abort_date(&bucket, &head.upload);
        let owner = bucket.effective_owner(&head.upload.owner).to_owned();
        let upload = Upload { owner, ..head.upload };
        Ok(ListedParts { upload, page: parts_page(parts, request.max), abort_date })
    }
}

impl Objects {
    /// Stores a part made of bytes of an object; returns the source's version id, in a bucket with versioning. Refuses
    /// a window beyond the source.
    ///
    /// # Errors
    /// Those of a get of the source and of [`Uploads::put_part`]; `InvalidArgument` for a window beyond the source,
    /// `InvalidRequest` above the size of a part.
    pub async fn copy_part(
        &self,
        caller: &Caller,
        source: &GetObject,
        at: &PartAddress,
    ) -> Result<(StoredPart, Option<String>)> {
        let (bucket, head, to) = self.uploads.upload_for_part(caller, at).await?;
        let (found_object, reader) = self.open_source(caller, source.clone()).await.map_err(|error| match error {
            Error::InvalidRange { length } => outside_source(&source.window, length),
            other => other,
        })?;
        let size = found_object.version.object.as_ref().map_or(0, |object| object.length());
        if let ReadWindow::Range(_, Some(last)) = source.window
            && last >= size
        {
            return Err(outside_source(&source.window, size));
        }
        let length = found_object.window.end - found_object.window.start;
        if length > self.config.put_bytes_max {
            let max = self.config.put_bytes_max;
            return Err(Error::InvalidRequest(format!("A part may be copied from {max} bytes at most, not {length}.")));
        }
        let admission = self.quotas.admit(&bucket, &at.key, Storage::part(length)).await?;
        let checksum =
            head.upload.checksum.map_or(ChecksumWanted::Default, |(algorithm, _)| ChecksumWanted::Compute(algorithm));
        let received = self.receiver.receive_copy(reader, checksum, to).await?;
        let checksum = Some(received.checksum.clone()).filter(|_| head.upload.checksum.is_some());
        let part = self.uploads.store_part(&head, at.number, received).await?;
        admission.written();
        let encryption = head.upload.encryption_kind();
        Ok((StoredPart { part, checksum, encryption }, found_object.version_id))
    }
}

/// The checksum of a part to receive, checked against the upload's.
fn part_checksum(upload: Option<(Algorithm, ChecksumKind)>, part: ChecksumWanted) -> Result<ChecksumWanted> {
    let Some((algorithm, kind)) = upload else { return Ok(part) };
    let given = match &part {
        ChecksumWanted::Default if kind == ChecksumKind::FullObject => return Ok(ChecksumWanted::Compute(algorithm)),
        ChecksumWanted::Default => None,
        ChecksumWanted::Compute(given) | ChecksumWanted::Trailing(given) => Some(*given),
        ChecksumWanted::Given(checksum) => Some(checksum.algorithm),
    };
    if given == Some(algorithm) {
        return Ok(part);
    }
    let expected = algorithm.name().to_lowercase();
    let actual = given.map_or("null", Algorithm::name).to_lowercase();
    Err(Error::InvalidRequest(format!(
        "Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}"
    )))
}

/// The error for a window beyond the source.
fn outside_source(window: &ReadWindow, size: u64) -> Error {
    let value = match window {
        ReadWindow::Range(first, Some(last)) => format!("bytes={first}-{last}"),
        ReadWindow::Range(first, None) => format!("bytes={first}-"),
        ReadWindow::Last(count) => format!("bytes=-{count}"),
        ReadWindow::Whole | ReadWindow::Part(_) => String::new(),
    };
    let message = format!("The range does not lie within the source object, whose size is {size}.");
    Error::InvalidArgument { argument: RequestArgument::CopyRange, value, message }
}

/// Prefix of the names of blob rows: after all numbers.
const BLOB_ROW: [u8; 2] = [0xff; 2];
/// The value of a blob row: a version byte.
const BLOB_VALUE: &[u8] = &[1];

/// The rows of parts with numbers above `after`.
fn part_rows(after: u16, limit: usize) -> ReadQuery {
    let from = Some(Part::row_name(after.saturating_add(1)));
    let range = Range { from, to: Some(Bytes::from_static(&BLOB_ROW)) };
    ReadQuery { range, limit, order: ReadOrder::Forward }
}

/// The blob rows after the one named `after`.
pub(super) fn blob_rows(after: Option<&Bytes>, limit: usize) -> ReadQuery {
    match after {
        Some(after) => ReadQuery::after(Some(after), limit),
        None => ReadQuery::prefix(Bytes::from_static(&BLOB_ROW), limit),
    }
}

/// The blob of the row with this name.
pub(super) fn blob_of_row(name: &[u8]) -> Option<BlobId> {
    let id = name.strip_prefix(&BLOB_ROW)?;
    Some(BlobId(id.try_into().ok()?))
}

fn blob_row_name(blob: BlobId) -> Bytes {
    [&BLOB_ROW[..], &blob.0].concat().into()
}

impl HeadStore {
    /// Parts with numbers above `after`, at most `limit`, in one read.
    pub(super) async fn read_parts(&self, upload: UploadId, after: u16, limit: usize) -> Result<(Vec<Part>, Stopped)> {
        let (partition, query) = (Partition::parts(upload), part_rows(after, limit));
        let page = self.gateway.context().ports.store.read(&partition, &query, &self.options()).await?;
        let parts = page.rows.into_iter().map(|row| Part::decode(&row.name, row.value));
        Ok((parts.collect::<std::result::Result<_, _>>()?, page.stopped))
    }

    /// All parts by their numbers, at most 10,000.
    pub(super) async fn all_parts(&self, upload: UploadId) -> Result<BTreeMap<u16, Part>> {
        let (mut all, mut after) = (BTreeMap::new(), 0);
        while after < PART_NUMBER_MAX {
            let (parts, stopped) = self.read_parts(upload, after, LISTING_PAGE_ROWS).await?;
            after = parts.last().map_or(PART_NUMBER_MAX, |part| part.number);
            all.extend(parts.into_iter().map(|part| (part.number, part)));
            if stopped == Stopped::End {
                break;
            }
        }
        Ok(all)
    }
}

impl Uploads {
    /// Writes a part: it replaces the part of its number, unless that one has a greater stamp.
    pub(super) async fn write_part(&self, upload: UploadId, part: &Part, stamp: Timestamp) -> Result<()> {
        let put = |name, value| Change::Put(Row { name, value, stamp, expires: None });
        // Crash: one batch, so the end of the upload finds the bytes of each part, also of a replaced one.
        let mut changes = vec![put(Part::row_name(part.number), part.encode())];
        changes.extend(part.blob.map(|blob| put(blob_row_name(blob), Bytes::from_static(BLOB_VALUE))));
        Ok(self
            .gateway
            .context()
            .ports
            .store
            .apply(Batch::single(Partition::parts(upload), changes), &self.heads.options())
            .await?)
    }

    /// Removes a part written with this stamp.
    pub(super) async fn remove_part(&self, upload: UploadId, part: &Part, stamp: Timestamp) -> Result<()> {
        let remove = |name| Change::Remove { name, stamp };
        let mut changes = vec![remove(Part::row_name(part.number))];
        changes.extend(part.blob.map(|blob| remove(blob_row_name(blob))));
        let (batch, options) = (Batch::single(Partition::parts(upload), changes), self.heads.options().reclaiming());
        Ok(self.gateway.context().ports.store.apply(batch, &options).await?)
    }
}
