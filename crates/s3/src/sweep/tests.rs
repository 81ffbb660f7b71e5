use std::sync::Arc;

use bytes::Bytes;
use larder_core::node_context::internal_options;
use larder_rows::content::BlobId;
use larder_rows::{ActorId, Change, Row};
use larder_store::memory::MemoryStore;
use larder_store::{Batch, BlobOwner, Blobs as _, ConsistencyLevel, Durability, ReadQuery, Store as _};

use super::*;
use crate::Objects;
use crate::acl_choice::AclChoice;
use crate::buckets::testing::{BEGIN, S3TestStore, new_caller};
use crate::rules::{BucketId, ObjectLock, Part, Upload, UploadId, UploadState, VersionId};
use crate::uploads::UploadHead;

async fn stores() -> (Arc<MemoryStore>, Arc<Objects>, BucketId) {
    let stores = S3TestStore::new();
    let objects = stores.gateway().await;
    let caller = new_caller(&objects, "ann").await;
    objects.buckets.create(&caller, "bucket", AclChoice::default(), None).await.unwrap();
    let id = objects.buckets.find("bucket").await.unwrap().id;
    (Arc::clone(&stores.store), objects, id)
}

async fn write_blob(store: &MemoryStore, id: u8, partition: Partition, row: &[u8]) {
    let owner = BlobOwner { partition, row: Bytes::copy_from_slice(row) };
    let mut writer = store.create(BlobId([id; 24]), owner).await.unwrap();
    writer.write(Bytes::from_static(b"bytes")).await.unwrap();
    drop(writer.finish(Durability::Buffered).await.unwrap());
}

async fn left(store: &MemoryStore) -> Vec<u8> {
    store.list(None, 100).await.unwrap().into_iter().map(|blob| blob.id.0[0]).collect()
}

async fn write_row(store: &MemoryStore, partition: Partition, name: &[u8]) {
    let row =
        Row { name: Bytes::copy_from_slice(name), value: Bytes::from_static(b"\x01"), stamp: BEGIN, expires: None };
    let batch = Batch::single(partition, vec![Change::Put(row)]);
    store.apply(batch, &internal_options(ConsistencyLevel::Quorum)).await.unwrap();
}

async fn upload(objects: &Objects, bucket: BucketId, number: u64, state: UploadState) -> UploadId {
    let id = UploadId::new(BEGIN, ActorId(number));
    let upload = Upload {
        bucket,
        key: "k".into(),
        initiator: "ann".into(),
        owner: "ann".into(),
        initiated: BEGIN,
        headers: Vec::new(),
        meta: Vec::new(),
        tags: Vec::new(),
        acl: None,
        checksum: None,
        encryption: None,
        lock: ObjectLock::default(),
        state,
    };
    objects.heads.write_upload(None, UploadHead { id, upload, stamp: BEGIN }).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn unreferenced_blobs_without_a_live_upload_are_swept() {
    let (store, objects, bucket) = stores().await;
    let key = Partition::head(bucket, b"k");
    let alive = upload(&objects, bucket, 1, UploadState::Open).await;
    let ended = upload(&objects, bucket, 2, UploadState::Aborted).await;
    let part = |upload: UploadId| [&upload.0[..], &[0, 1]].concat();
    write_blob(&store, 1, key.clone(), &VersionId::new(BEGIN, ActorId(1)).0).await;
    write_blob(&store, 2, key.clone(), &part(alive)).await;
    write_blob(&store, 3, key.clone(), &part(ended)).await;
    write_blob(&store, 4, key, &part(UploadId([9; 16]))).await;
    write_blob(&store, 5, Partition::new(Table::Objects, "kv"), b"row").await;
    let swept = objects.sweeper.sweep().await.unwrap();
    assert_eq!(swept, SweepReport { blobs: 3, ..SweepReport::default() });
    assert_eq!(left(&store).await, [2, 5], "that of the open upload, and what is not S3's");
    assert_eq!(objects.sweeper.sweep().await.unwrap(), SweepReport::default());
}

#[tokio::test(start_paused = true)]
async fn blobs_of_replaced_parts_are_swept_before_the_upload_ends() {
    let (store, objects, bucket) = stores().await;
    let alive = upload(&objects, bucket, 1, UploadState::Open).await;
    for id in [1, 2] {
        write_blob(&store, id, Partition::head(bucket, b"k"), &[&alive.0[..], &[0, 1]].concat()).await;
    }
    let hours = |count: u64| count * 60 * 60 * 1_000_000;
    let now = objects.gateway.context().now();
    let part =
        |modified| Part { number: 1, md5: [0; 16], length: 5, blob: Some(BlobId([2; 24])), modified, checksum: None };
    // A completion that runs now may have read the earlier part.
    objects.uploads.write_part(alive, &part(now), BEGIN + 1).await.unwrap();
    assert_eq!(objects.sweeper.sweep().await.unwrap(), SweepReport::default());
    objects.uploads.write_part(alive, &part(now - hours(2)), BEGIN + 2).await.unwrap();
    assert_eq!(objects.sweeper.sweep().await.unwrap(), SweepReport { blobs: 1, ..SweepReport::default() });
    assert_eq!(left(&store).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn uploads_of_deleted_buckets_are_aborted_with_their_parts() {
    let (store, objects, bucket) = stores().await;
    let gone = BucketId([7; 16]);
    let (lost, kept) =
        (upload(&objects, gone, 1, UploadState::Open).await, upload(&objects, bucket, 2, UploadState::Open).await);
    let ended = upload(&objects, bucket, 3, UploadState::Aborted).await;
    for id in [lost, kept, ended, UploadId([9; 16])] {
        write_row(&store, Partition::parts(id), &[0, 1]).await;
    }
    let swept = objects.sweeper.sweep().await.unwrap();
    assert_eq!(swept, SweepReport { uploads: 1, rows: 2, ..SweepReport::default() });
    assert_eq!(objects.heads.read_upload(lost).await.unwrap().unwrap().upload.state, UploadState::Aborted);
    for (id, rows) in [(lost, 0), (kept, 1), (ended, 0), (UploadId([9; 16]), 0)] {
        let options = internal_options(ConsistencyLevel::Quorum);
        let page = store.read(&Partition::parts(id), &ReadQuery::all(10), &options).await.unwrap();
        assert_eq!(page.rows.len(), rows);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_item_is_counted_and_the_sweep_goes_on() {
    let (store, objects, bucket) = stores().await;
    write_row(&store, Partition::new(Table::Parts, "odd"), &[0, 1]).await;
    write_row(&store, Partition::manifest(VersionId([1; 16])), &[0; 8]).await;
    write_blob(&store, 1, Partition::head(bucket, b"k"), &VersionId::new(BEGIN, ActorId(1)).0).await;
    let swept = objects.sweeper.sweep().await.unwrap();
    assert_eq!(swept, SweepReport { blobs: 1, failed: 2, ..SweepReport::default() });
    assert_eq!(left(&store).await, [0; 0]);
}
