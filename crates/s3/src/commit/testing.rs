//! Test fixture: a bucket, its owner, and short calls on both.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream};
use larder_core::contention::WriterTurn;
use larder_rows::content::BlobId;
use larder_rows::{ActorId, Change, Row};
use larder_store::{Batch, Blobs as _, Partition};
use tokio::time::Instant;

use super::{CasLoop, ObjectLocation};
use crate::acl_choice::AclChoice;
use crate::buckets::testing::{S3TestStore, new_caller};
use crate::delete::DeletedObject;
use crate::events::ChangeEvent;
use crate::get::{FoundObject, GetObject, ObjectReader, VersionSpec};
use crate::object_lock::GovernanceBypass;
use crate::put::{ChecksumWanted, ObjectMetadata, PutObject, StoredVersion, UploadBody, WriteConditions};
use crate::rules::part::manifest_rows;
use crate::rules::policy::BucketPolicy;
use crate::rules::{
    Bucket, Etag, ManifestPart, Object, ObjectBody, ObjectHead, ObjectLock, UploadId, Version, VersionId, Versioning,
};
use crate::{Caller, Objects, Result};

pub(crate) const BUCKET: &str = "bucket";

/// A bucket over a memory store.
pub(crate) struct BucketFixture {
    pub(crate) stores: S3TestStore,
    pub(crate) objects: Arc<Objects>,
    pub(crate) owner: Caller,
}

/// Runs a test under virtual time.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

/// A body in chunks, perhaps with a trailing header.
pub(crate) struct ChunkedBody {
    pub(crate) left: Vec<std::result::Result<Bytes, BodyError>>,
    pub(crate) trailing: Option<(String, Bytes)>,
}

#[async_trait]
impl ByteStream for ChunkedBody {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        tokio::task::yield_now().await;
        (!self.left.is_empty()).then(|| self.left.remove(0))
    }

    fn trailing(&mut self) -> Option<(String, Bytes)> {
        self.trailing.take()
    }
}

/// `length` bytes that differ by `seed`.
pub(crate) fn bytes(seed: u64, length: usize) -> Bytes {
    (0..length).map(|at| (seed.wrapping_mul(31).wrapping_add(at as u64 / 7)) as u8).collect()
}

/// A body in chunks of 700 bytes.
pub(crate) fn upload_body(body: &Bytes) -> UploadBody {
    let left = body.chunks(700).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let stream = Box::new(ChunkedBody { left, trailing: None });
    UploadBody { stream, length: Some(body.len() as u64), md5: None, checksum: ChecksumWanted::Default }
}

pub(crate) fn put_request(key: &str, body: &Bytes) -> PutObject {
    PutObject {
        bucket: BUCKET.into(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        metadata: ObjectMetadata::default(),
        upload_body: upload_body(body),
        conditions: WriteConditions::default(),
    }
}

pub(crate) fn get_request(key: &str) -> GetObject {
    GetObject { bucket: BUCKET.into(), key: Bytes::copy_from_slice(key.as_bytes()), ..GetObject::default() }
}

pub(crate) fn id(text: &str) -> VersionSpec {
    VersionSpec::Id(text.to_owned())
}

/// The rest of a reader's bytes, `at_once` per read.
pub(crate) async fn read_all(mut reader: ObjectReader, at_once: usize) -> Result<Bytes> {
    let mut all = Vec::new();
    loop {
        let piece = reader.next(at_once).await?;
        if piece.is_empty() {
            return Ok(all.into());
        }
        assert!(piece.len() <= at_once);
        all.extend_from_slice(&piece);
    }
}

/// Lets a call go on until it waits for its turn.
pub(crate) async fn until_it_waits<T>(mut call: Pin<&mut impl Future<Output = T>>) {
    let moment = async {
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut call => panic!("it did not wait"),
        () = moment => {}
    }
}

impl BucketFixture {
    /// Takes the turn of the writers of a key: all others wait.
    pub(crate) async fn turn(&self, key: &str) -> WriterTurn<'_> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let partition = self.location(key).await.partition();
        self.objects.gateway.context().writer_queues.wait_for_turn(&partition, deadline).await.unwrap()
    }

    pub(crate) async fn new() -> Self {
        let stores = S3TestStore::new();
        let objects = stores.gateway().await;
        let owner = new_caller(&objects, "owner").await;
        objects.buckets.create(&owner, BUCKET, AclChoice::Private, None).await.unwrap();
        Self { stores, objects, owner }
    }

    pub(crate) async fn versioning(&self, versioning: Versioning) {
        let change = |bucket: &mut crate::rules::Bucket| {
            bucket.versioning = versioning;
            Ok(())
        };
        self.objects.buckets.configure(&self.owner, BUCKET, change).await.unwrap();
    }

    pub(crate) async fn location(&self, key: &str) -> ObjectLocation {
        let bucket = self.objects.buckets.find(BUCKET).await.unwrap();
        ObjectLocation::new(&bucket, &Bytes::copy_from_slice(key.as_bytes()))
    }

    pub(crate) async fn put(&self, key: &str, body: &Bytes) -> StoredVersion {
        self.objects.put(&self.owner, put_request(key, body)).await.unwrap()
    }

    pub(crate) async fn find(&self, request: GetObject) -> Result<(FoundObject, Bytes)> {
        let (found_object, reader) = self.objects.get(&self.owner, &request).await?;
        assert_eq!(reader.left(), found_object.window.end - found_object.window.start);
        Ok((found_object, read_all(reader, 500).await?))
    }

    pub(crate) async fn get(&self, key: &str, version: VersionSpec) -> Result<Bytes> {
        Ok(self.find(GetObject { version, ..get_request(key) }).await?.1)
    }

    pub(crate) async fn delete(&self, key: &str, version: &VersionSpec) -> DeletedObject {
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.objects.delete(&self.owner, BUCKET, &key, version, None, GovernanceBypass::Absent).await.unwrap()
    }

    pub(crate) async fn head(&self, key: &str) -> ObjectHead {
        let partition = self.location(key).await.partition();
        self.objects.heads.read_head(&partition, &self.objects.heads.options()).await.unwrap().head
    }

    /// All blobs, after background removals have finished.
    pub(crate) async fn blobs(&self) -> BTreeSet<BlobId> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.stores.store.list(None, 1000).await.unwrap().into_iter().map(|blob| blob.id).collect()
    }

    /// Puts an object made of these parts, as a completed upload would.
    pub(crate) async fn put_parts(&self, key: &str, parts: &[Bytes]) -> Version {
        let (objects, location) = (&self.objects, self.location(key).await);
        let stamp = objects.gateway.issuer().issue().await.unwrap();
        let (upload, manifest) =
            (UploadId::new(stamp, ActorId(1)), VersionId::new(stamp, objects.gateway.context().ports.actor));
        let (mut manifest_parts, mut leases) = (Vec::new(), Vec::new());
        for (at, body) in parts.iter().enumerate() {
            let number = at as u16 + 1;
            let to = objects.receiver.part_destination(&location, upload, number, false).await.unwrap();
            let received = objects.receiver.receive(upload_body(body), to).await.unwrap();
            let checksum = Some(received.checksum.digest.clone());
            manifest_parts.push(ManifestPart { number, length: received.length, blob: received.blob(), checksum });
            leases.push(received.lease);
        }
        let row = |(name, value)| Change::Put(Row { name, value, stamp, expires: None });
        let rows = manifest_rows(&manifest_parts).into_iter().map(row).collect();
        let batch = Batch::single(Partition::manifest(manifest), rows);
        objects.gateway.context().ports.store.apply(batch, &objects.heads.options()).await.unwrap();
        let length = manifest_parts.iter().map(|part| part.length).sum();
        let object = Object {
            body: ObjectBody::Parts { manifest, count: manifest_parts.len() as u32, length },
            etag: Etag { md5: [9; 16], parts: Some(manifest_parts.len() as u32) },
            headers: Vec::new(),
            meta: Vec::new(),
            tags: Vec::new(),
            acl: None,
            checksum: None,
            upload: Some(upload),
            encryption: None,
            lock: ObjectLock::default(),
        };
        let mut cas: CasLoop<'_> = objects.heads.cas_loop(&location, None);
        loop {
            let attempt = cas.next_attempt().await.unwrap();
            let version = Version { id: manifest, ..attempt.new_version(self.owner.id().into(), Some(object.clone())) };
            let next = attempt.add(version.clone()).await.unwrap();
            if attempt.commit(next, &ChangeEvent::silent()).await.unwrap() {
                return version;
            }
        }
    }
}

/// Sets a policy that allows a user these actions.
pub(crate) async fn set_policy(fixture: &BucketFixture, who: &Caller, actions: &[&str]) {
    let actions: Vec<_> = actions.iter().map(|action| format!("\"s3:{action}\"")).collect();
    let policy = format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"CanonicalUser":"{}"}},
        "Action":[{}],"Resource":"arn:aws:s3:::{BUCKET}/*"}}]}}"#,
        who.id(),
        actions.join(",")
    );
    let policy = BucketPolicy::parse(BUCKET, &policy).unwrap();
    let allow = |bucket: &mut Bucket| {
        bucket.policy = Some(Arc::new(policy.clone()));
        Ok(())
    };
    fixture.objects.buckets.configure(&fixture.owner, BUCKET, allow).await.unwrap();
}
