//! A client of the S3 side. Bodies repeat their text, which reveals a torn one.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream};
use larder_rows::Timestamp;
use larder_s3::acl::AclChoice;
use larder_s3::complete::{CompleteUpload, CompletedUpload, ListedPart};
use larder_s3::copy::CopyObject;
use larder_s3::delete::DeletedObject;
use larder_s3::encryption::EncryptionChoice;
use larder_s3::get::{GetObject, ObjectReader, VersionSpec};
use larder_s3::list::{KeyOrPrefix, ListObjects, ListVersions};
use larder_s3::object_lock::GovernanceBypass;
use larder_s3::parts::PartAddress;
use larder_s3::put::{ChecksumWanted, ObjectMetadata, PutObject, StoredVersion, UploadBody, WriteConditions};
use larder_s3::uploads::{CreateUpload, ListUploads};
use larder_s3::{Caller, Error, Objects, Result};
use larder_s3_rules::{Bucket, BucketLock, Etag, ObjectLock, Retention, RetentionMode, S3Action, User, Versioning};

use super::cluster::BUCKET;

/// Repetitions of the text in a body.
const REPEATS: usize = 40;

/// A client of one gateway, as the owner of everything.
#[derive(Clone)]
pub(crate) struct SimClient {
    pub(crate) objects: Arc<Objects>,
    pub(crate) caller: Caller,
}

/// The body for `text`.
pub(crate) fn body(text: &str) -> Bytes {
    format!("{text}.").repeat(REPEATS).into()
}

/// The texts a body is made of, each once; `None` for a torn one.
pub(crate) fn texts(mut body: &[u8]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let end = body.iter().position(|byte| *byte == b'.')?;
        let text = std::str::from_utf8(&body[..end]).ok()?;
        body = body.strip_prefix(&self::body(text)[..])?;
        found.push(text.to_owned());
    }
    Some(found)
}

struct SimBody(Vec<Bytes>);

#[async_trait]
impl ByteStream for SimBody {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        self.0.pop().map(Ok)
    }
}

fn upload_body(text: &str) -> UploadBody {
    let whole = body(text);
    let half = whole.len() / 2;
    let stream = Box::new(SimBody(vec![whole.slice(half..), whole.slice(..half)]));
    UploadBody { stream, length: Some(whole.len() as u64), md5: None, checksum: ChecksumWanted::Default }
}

fn owner() -> Caller {
    let user = User {
        id: "owner".into(),
        key_id: "key".into(),
        secret: "secret".into(),
        name: "Owner".into(),
        email: "owner@example.com".into(),
        display_name: "owner".into(),
        enabled: true,
        admin: false,
        created: Timestamp::ZERO,
        ..User::default()
    };
    // Any action: an owner may do everything.
    Caller { user: Some(Arc::new(user)), ..Caller::default() }.with_action(S3Action::PutObject)
}

impl SimClient {
    pub(crate) fn new(objects: Arc<Objects>) -> Self {
        Self { objects, caller: owner() }
    }

    pub(crate) async fn create_bucket(&self) -> Result<()> {
        self.objects.buckets.create(&self.caller, BUCKET, AclChoice::default(), None).await
    }

    pub(crate) async fn delete_bucket(&self) -> Result<()> {
        self.objects.buckets.delete(&self.caller, BUCKET).await
    }

    pub(crate) async fn configure(&self, change: impl Fn(&mut Bucket) + Send + Sync) -> Result<()> {
        let change = |bucket: &mut Bucket| {
            change(bucket);
            Ok(())
        };
        self.objects.buckets.configure(&self.caller, BUCKET, change).await
    }

    pub(crate) async fn put(&self, key: &str, text: &str) -> Result<StoredVersion> {
        let request = PutObject {
            bucket: BUCKET.into(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            metadata: ObjectMetadata::default(),
            upload_body: upload_body(text),
            conditions: WriteConditions::default(),
        };
        self.objects.put(&self.caller, request).await
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<DeletedObject> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.objects.delete(&self.caller, BUCKET, &key, &VersionSpec::Current, None, GovernanceBypass::Absent).await
    }

    pub(crate) async fn copy(&self, from: &str, to: &str) -> Result<StoredVersion> {
        let request = CopyObject {
            source: self.wanted(from),
            bucket: BUCKET.into(),
            key: Bytes::copy_from_slice(to.as_bytes()),
            replace: Some(ObjectMetadata::default()),
            tags: None,
            acl: AclChoice::default(),
            keeps_acl: false,
            own: Vec::new(),
            changes_more: true,
            encryption: EncryptionChoice::BucketDefault,
            checksum: None,
            lock: ObjectLock::default(),
            conditions: WriteConditions::default(),
        };
        Ok(self.objects.copy(&self.caller, request).await?.stored)
    }

    fn wanted(&self, key: &str) -> GetObject {
        GetObject { bucket: BUCKET.into(), key: Bytes::copy_from_slice(key.as_bytes()), ..GetObject::default() }
    }

    /// Opens an object; `None` when there is none.
    pub(crate) async fn open(&self, key: &str) -> Result<Option<(Etag, ObjectReader)>> {
        match self.objects.get(&self.caller, &self.wanted(key)).await {
            Ok((found, reader)) => {
                let object = found.version.object.expect("a found version has an object");
                Ok(Some((object.etag, reader)))
            }
            Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The texts an object is made of; `None` when there is none.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Vec<String>>> {
        let Some((_, reader)) = self.open(key).await? else { return Ok(None) };
        let bytes = read(reader).await?;
        Ok(Some(texts(&bytes).unwrap_or_else(|| panic!("a torn body: {bytes:?}"))))
    }

    /// The listed keys, each with the entity tag of its entry.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, String>> {
        let (mut found, mut after) = (BTreeMap::new(), Some(Bytes::new()));
        while let Some(marker) = after {
            let request = ListObjects { bucket: BUCKET.into(), after: marker, max: 2, ..ListObjects::default() };
            let page = self.objects.list(&self.caller, &request).await?;
            for line in page.lines {
                if let KeyOrPrefix::Key(key, entry) = line {
                    let etag = entry.object.expect("a listed key has an object").etag;
                    found.insert(String::from_utf8_lossy(&key).into_owned(), etag.to_string());
                }
            }
            after = page.next;
        }
        Ok(found)
    }

    /// The texts a version is made of.
    pub(crate) async fn get_version(&self, key: &str, id: &str) -> Result<Vec<String>> {
        let wanted = GetObject { version: VersionSpec::Id(id.into()), ..self.wanted(key) };
        let bytes = read(self.objects.get(&self.caller, &wanted).await?.1).await?;
        Ok(texts(&bytes).unwrap_or_else(|| panic!("a torn body: {bytes:?}")))
    }

    /// All versions and delete markers: key and id.
    pub(crate) async fn all_versions(&self) -> Result<Vec<(String, String)>> {
        let objects = ListObjects { bucket: BUCKET.into(), max: 1000, ..ListObjects::default() };
        let page = self.objects.list_versions(&self.caller, &ListVersions { objects, version: None }).await?;
        let lines = page.lines.into_iter().filter_map(|line| match line {
            KeyOrPrefix::Key(key, version) => Some((String::from_utf8_lossy(&key).into_owned(), version.version_id)),
            KeyOrPrefix::Prefix(_) => None,
        });
        Ok(lines.collect())
    }

    pub(crate) async fn delete_version(&self, key: &str, id: &str) -> Result<DeletedObject> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.objects
            .delete(&self.caller, BUCKET, &key, &VersionSpec::Id(id.into()), None, GovernanceBypass::Absent)
            .await
    }

    /// Gives the bucket versions and object lock.
    pub(crate) async fn lock_bucket(&self) -> Result<()> {
        let change = |bucket: &mut Bucket| {
            bucket.versioning = Versioning::Enabled;
            bucket.object_lock = Some(BucketLock::default());
        };
        self.configure(change).await
    }

    pub(crate) async fn hold(&self, key: &str, id: &str) -> Result<()> {
        let (key, version) = (Bytes::copy_from_slice(key.as_bytes()), VersionSpec::Id(id.into()));
        self.objects.put_legal_hold(&self.caller, BUCKET, &key, &version, true).await
    }

    pub(crate) async fn retain(&self, key: &str, id: &str, until: Timestamp) -> Result<()> {
        let (key, version) = (Bytes::copy_from_slice(key.as_bytes()), VersionSpec::Id(id.into()));
        let next = Some(Retention::new(RetentionMode::Compliance, until));
        self.objects.put_retention(&self.caller, BUCKET, &key, &version, next, GovernanceBypass::Absent).await
    }

    pub(crate) async fn retained_until(&self, key: &str, id: &str) -> Result<Timestamp> {
        let (key, version) = (Bytes::copy_from_slice(key.as_bytes()), VersionSpec::Id(id.into()));
        Ok(self.objects.retention(&self.caller, BUCKET, &key, &version).await?.until)
    }

    pub(crate) async fn begin(&self, key: &str) -> Result<String> {
        let request = CreateUpload {
            bucket: BUCKET.into(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            metadata: ObjectMetadata::default(),
            checksum: None,
            conditions: WriteConditions::default(),
        };
        Ok(self.objects.uploads.create(&self.caller, request).await?.id.text())
    }

    /// Puts a part; returns its entry in the list of a completion.
    pub(crate) async fn part(&self, key: &str, upload: &str, number: u16, text: &str) -> Result<ListedPart> {
        let at = PartAddress {
            bucket: BUCKET.into(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            upload: upload.into(),
            number,
            encryption: larder_s3::encryption::EncryptionChoice::default(),
        };
        let part = self.objects.uploads.put_part(&self.caller, &at, upload_body(text)).await?.part;
        let etag = Etag { md5: part.md5, parts: None }.to_string();
        Ok(ListedPart { number: number.into(), etag, checksum: None })
    }

    pub(crate) async fn complete(&self, key: &str, upload: &str, parts: &[ListedPart]) -> Result<CompletedUpload> {
        let request = CompleteUpload {
            bucket: BUCKET.into(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            upload: upload.into(),
            parts: parts.to_vec(),
            conditions: WriteConditions::default(),
            checksum: None,
            checksum_kind: None,
            length: None,
            encryption: larder_s3::encryption::EncryptionChoice::default(),
        };
        self.objects.uploads.complete(&self.caller, request).await
    }

    pub(crate) async fn abort(&self, key: &str, upload: &str) -> Result<()> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.objects.uploads.abort(&self.caller, BUCKET, &key, upload, None).await
    }

    /// The open uploads in listing order: key and id.
    pub(crate) async fn uploads(&self) -> Result<Vec<(String, String)>> {
        let objects = ListObjects { bucket: BUCKET.into(), max: 1000, ..ListObjects::default() };
        let (page, _) = self.objects.uploads.list(&self.caller, &ListUploads { objects, upload: None }).await?;
        let lines = page.lines.into_iter().filter_map(|line| match line {
            KeyOrPrefix::Key(key, (id, _)) => Some((String::from_utf8_lossy(&key).into_owned(), id.text())),
            KeyOrPrefix::Prefix(_) => None,
        });
        Ok(lines.collect())
    }

    /// Puts an object of two parts.
    pub(crate) async fn put_in_parts(&self, key: &str, text: &str) -> Result<()> {
        let upload = self.begin(key).await?;
        let first = self.part(key, &upload, 1, &format!("{text}-1")).await?;
        let second = self.part(key, &upload, 2, &format!("{text}-2")).await?;
        self.complete(key, &upload, &[first, second]).await?;
        Ok(())
    }
}

/// Reads the rest of a reader.
pub(crate) async fn read(mut reader: ObjectReader) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while reader.left() > 0 {
        bytes.extend_from_slice(&reader.next(100).await?);
    }
    Ok(bytes)
}
