//! Parts of an upload: put, copied, listed page by page.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::objects::access::Asked;
use larder_model::objects::listing::parts_page;
use larder_model::objects::part::PART_NUMBER_MAX;
use larder_model::objects::{Algorithm, Checksum, ChecksumKind, Part, Upload, UploadState};

use super::commit::Place;
use super::get::{GetObject, Window};
use super::put::{ChecksumWanted, Incoming};
use super::receive::{Destination, Received};
use super::upload_head::UploadHead;
use super::uploads::{AbortDate, abort_date};
use super::{Caller, Error, Objects, Result};
use crate::Rule;

/// Where a part goes.
#[derive(Debug, Clone)]
pub struct PartAddress {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload, as it came.
    pub upload: String,
    /// The part's number, 1 to 10,000: checked by the edge.
    pub number: u16,
}

/// A part that was stored.
#[derive(Debug, Clone)]
pub struct StoredPart {
    /// The part.
    pub part: Part,
    /// Its checksum, if the upload has one or one was given.
    pub checksum: Option<Checksum>,
}

/// A page of parts.
#[derive(Debug, Clone)]
pub struct PartsPage {
    /// The upload.
    pub upload: Upload,
    /// Parts with numbers above the marker, ascending.
    pub parts: Vec<Part>,
    /// Whether there are more.
    pub truncated: bool,
    /// Number of the last part of this page, 0 for an empty one.
    pub next_marker: u16,
    /// When the lifecycle will give the upload up.
    pub abort_date: AbortDate,
}

/// What to list.
#[derive(Debug, Clone)]
pub struct ListParts {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload, as it came.
    pub upload: String,
    /// Only parts above this number.
    pub after: u32,
    /// Most parts, 0 to 1000.
    pub max: usize,
}

impl Objects {
    /// Stores a part: of several with one number the one finished last counts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `EntityTooLarge`, `BadDigest`, `BadChecksum`, `BrokenBody`,
    /// `InvalidRequest` for a checksum of another algorithm than the upload's, or none where it must be given.
    pub async fn put_part(&self, caller: &Caller, at: &PartAddress, incoming: Incoming) -> Result<StoredPart> {
        let (head, to) = self.upload_for_part(caller, at).await?;
        let checksum = wanted(head.upload.checksum, incoming.checksum)?;
        let is_named = checksum != ChecksumWanted::Default;
        let received = self.receive(Incoming { checksum, ..incoming }, to).await?;
        let checksum = Some(received.checksum.clone()).filter(|_| is_named);
        Ok(StoredPart { part: self.store_part(&head, at.number, received).await?, checksum })
    }

    /// The upload of a part, if the caller may put it there, and where its bytes go.
    async fn upload_for_part(&self, caller: &Caller, at: &PartAddress) -> Result<(UploadHead, Destination)> {
        let bucket = self.writable(caller, &at.bucket, &at.key, &[]).await?;
        let head = self.upload(&bucket, &at.key, &at.upload).await?;
        let to = self.part_destination(&Place::of(&bucket, &at.key), head.id, at.number).await?;
        Ok((head, to))
    }

    /// Makes bytes that were received a part, if the upload still takes parts.
    async fn store_part(&self, head: &UploadHead, number: u16, received: Received) -> Result<Part> {
        let blob = received.blob();
        let checksum = Some(received.checksum.digest.clone()).filter(|_| head.upload.checksum.is_some());
        let (md5, length) = (received.md5, received.length);
        // Made now: of several parts with one number the one finished last counts.
        let stamp = match self.gateway.issue().await {
            Ok(stamp) => stamp,
            Err(error) => {
                let error = Error::from(error);
                self.discard(&error, blob).await;
                return Err(error);
            }
        };
        let part = Part { number, md5, length, blob, modified: self.gateway.now(), checksum };
        let alive = self.read_upload(head.id).await.map(|now| now.is_some_and(|now| now.upload.state.is_alive()));
        if !matches!(alive, Ok(true)) {
            // No row names the blob yet.
            self.discard(&Error::NoSuchUpload, blob).await;
            return alive.and(Err(Error::NoSuchUpload));
        }
        let replaced = self.replaced_blob(head, number).await?;
        if let Err(error) = self.write_part(head.id, &part, stamp).await {
            self.discard(&error, blob).await;
            return Err(error);
        }
        drop(received.lease);
        self.keep_or_take_back(head, &part, stamp).await?;
        if let Some(replaced) = replaced {
            self.gateway.releases.replaced(vec![replaced]).await;
        }
        Ok(part)
    }

    /// Looks once more at the upload of a part that was stored: if it ended meanwhile, whoever ended it may not have seen the
    /// part. It may have: then the part is in the object.
    async fn keep_or_take_back(&self, head: &UploadHead, part: &Part, stamp: u64) -> Result<()> {
        // An upload that cannot be found any more tells nothing: the sweeper looks at the key.
        let now = self.read_upload(head.id).await?.ok_or(Error::NoSuchUpload)?;
        let used = match (&now.upload.state, part.blob) {
            (state, _) if state.is_alive() => return Ok(()),
            (UploadState::Done { version, .. }, Some(blob)) => self.manifest_blobs(*version).await?.contains(&blob),
            _ => false,
        };
        self.remove_part(head.id, part, stamp).await?;
        if used {
            return Ok(());
        }
        // Its row named it until now.
        self.gateway.releases.replaced(part.blob.into_iter().collect()).await;
        Err(Error::NoSuchUpload)
    }

    /// The blob of the part that is about to be replaced, if it has to go at once: only where the rule that keeps it is off.
    async fn replaced_blob(&self, head: &UploadHead, number: u16) -> Result<Option<BlobId>> {
        if self.gateway.rule(Rule::KeepPartsUntilEnd) {
            return Ok(None);
        }
        let (parts, _) = self.read_parts(head.id, number - 1, 1).await?;
        Ok(parts.into_iter().find(|part| part.number == number).and_then(|part| part.blob))
    }

    /// Stores a part made of bytes of an object; answers the source's version id, where versions are kept. A window beyond the
    /// source is refused.
    ///
    /// # Errors
    /// Those of a get of the source and of [`Self::put_part`]; `InvalidArgument` for a window beyond the source,
    /// `InvalidRequest` for more bytes than a part may have.
    pub async fn copy_part(
        &self,
        caller: &Caller,
        source: &GetObject,
        at: &PartAddress,
    ) -> Result<(StoredPart, Option<String>)> {
        let (head, to) = self.upload_for_part(caller, at).await?;
        let (found, reader) = self.open_source(caller, source.clone()).await.map_err(|error| match error {
            Error::InvalidRange { length } => beyond(&source.window, length),
            other => other,
        })?;
        let size = found.version.object.as_ref().map_or(0, |object| object.length());
        if let Window::Range(_, Some(last)) = source.window
            && last >= size
        {
            return Err(beyond(&source.window, size));
        }
        let length = found.window.end - found.window.start;
        if length > self.config.put_bytes_max {
            let max = self.config.put_bytes_max;
            return Err(Error::InvalidRequest(format!("A part may be copied from {max} bytes at most, not {length}.")));
        }
        let checksum =
            head.upload.checksum.map_or(ChecksumWanted::Default, |(algorithm, _)| ChecksumWanted::Compute(algorithm));
        let received = self.receive_copy(reader, checksum, to).await?;
        let checksum = Some(received.checksum.clone()).filter(|_| head.upload.checksum.is_some());
        let part = self.store_part(&head, at.number, received).await?;
        Ok((StoredPart { part, checksum }, found.version_id))
    }

    /// One page of parts: one read of the upload, one read of the page, whatever the number of parts.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `AccessDenied`.
    pub async fn list_parts(&self, caller: &Caller, request: &ListParts) -> Result<PartsPage> {
        let bucket = self.bucket(&request.bucket).await?;
        let head = self.upload(&bucket, &request.key, &request.upload).await?;
        let key = Some(request.key.as_ref());
        let asked = Asked { action: "s3:ListMultipartUploadParts", permission: None, key, version: None };
        if !head.is_begun_by(caller) {
            caller.check(&bucket, &asked)?;
        }
        let after = u16::try_from(request.after).unwrap_or(PART_NUMBER_MAX).min(PART_NUMBER_MAX);
        let (parts, _) = self.read_parts(head.id, after, request.max.saturating_add(1)).await?;
        let page = parts_page(parts, request.max);
        let abort_date = abort_date(&bucket, &head.upload);
        let (truncated, next_marker) = (page.truncated, page.next_marker);
        Ok(PartsPage { upload: head.upload, parts: page.parts, truncated, next_marker, abort_date })
    }
}

/// The checksum of a part on its way in, held against the upload's.
fn wanted(upload: Option<(Algorithm, ChecksumKind)>, part: ChecksumWanted) -> Result<ChecksumWanted> {
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
    let given = given.map_or("none", Algorithm::name);
    let wanted = algorithm.name();
    Err(Error::InvalidRequest(format!("The parts of this upload have {wanted} checksums; this one has {given}.")))
}

/// The refusal of a window that is not in the source.
fn beyond(window: &Window, size: u64) -> Error {
    let value = match window {
        Window::Range(first, Some(last)) => format!("bytes={first}-{last}"),
        Window::Range(first, None) => format!("bytes={first}-"),
        Window::Last(count) => format!("bytes=-{count}"),
        Window::Whole | Window::Part(_) => String::new(),
    };
    let message = format!("The range does not lie within the source object, whose size is {size}.");
    Error::InvalidArgument { name: "x-amz-copy-source-range", value, message }
}
