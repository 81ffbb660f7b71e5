//! Beginning multipart uploads, and listing those that are open.

use bytes::Bytes;
use larder_model::objects::{Algorithm, ChecksumKind, Upload, UploadEntry, UploadId};
use larder_model::rows::Micros;

use super::list::{ListObjects, Page};
use super::put::About;
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
    /// `NoSuchBucket`, `AccessDenied`, `KeyTooLong`, and what a list of grants may be refused for.
    pub async fn create_upload(&self, caller: &Caller, request: CreateUpload) -> Result<(UploadId, AbortDate)> {
        unimplemented!()
    }

    /// A page of the open uploads of a bucket, by key and then as they were begun. A line's payload is the upload's id and entry.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub async fn list_uploads(
        &self,
        caller: &Caller,
        request: &ListUploads,
    ) -> Result<(Page<(UploadId, UploadEntry)>, Option<UploadId>)> {
        unimplemented!()
    }

    /// The upload of this id, if it is one of this key and alive; `text` as it came.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(super) async fn upload(
        &self,
        bucket: &larder_model::objects::Bucket,
        key: &[u8],
        text: &str,
    ) -> Result<(UploadId, OpenUpload)> {
        unimplemented!()
    }
}

/// An upload as it was read.
#[derive(Debug, Clone)]
pub(super) struct OpenUpload {
    /// What its head says.
    pub(super) upload: Upload,
    /// The head's stamp.
    pub(super) stamp: u64,
}
