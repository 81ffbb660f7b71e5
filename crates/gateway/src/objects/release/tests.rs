//! Pins, and what a power cut would find after a removal.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::blobs::testing::{State, VolatileStore};
use crate::objects::acl::AclChoice;
use crate::objects::buckets::testing::new_caller;
use crate::objects::commit::testing::{BUCKET, bytes, incoming, put_of};
use crate::objects::complete::CompleteUpload;
use crate::objects::get::VersionSpec;
use crate::objects::uploads::testing::{PART_MIN, address, complete_of, create_of, settings};
use crate::objects::{Caller, ObjectsConfig};

/// Longer than a batch of removals gathers.
const LATER: Duration = Duration::from_secs(3);

#[test]
fn a_manifest_is_pinned_until_its_last_reader_is_gone() {
    let pins = Pins::default();
    let (manifest, upload) = (VersionId([1; 16]), UploadId([2; 16]));
    let (first, second) = (pins.pin(manifest, Some(upload)), pins.pin(manifest, None));
    assert!(pins.holds(&manifest) && pins.holds_upload(&upload));
    drop(first);
    assert!(pins.holds(&manifest) && !pins.holds_upload(&upload));
    drop(second);
    assert!(!pins.holds(&manifest));
    assert!(pins.readers.lock().manifests.is_empty());
}

/// A bucket on a store that may lose its power.
struct Shop {
    store: Arc<VolatileStore>,
    objects: Arc<Objects>,
    owner: Caller,
}

impl Shop {
    async fn new(durable: bool) -> Self {
        let store = VolatileStore::new(durable);
        let objects = Objects::new(store.gateway().await, ObjectsConfig { alone: true, ..settings() });
        let owner = new_caller(&objects, "owner").await;
        objects.create_bucket(&owner, BUCKET, AclChoice::Private, None).await.unwrap();
        Self { store, objects, owner }
    }

    async fn put(&self, seed: u64) {
        self.objects.put(&self.owner, put_of("key", &bytes(seed, 5_000))).await.unwrap();
    }

    async fn delete(&self) {
        let key = bytes::Bytes::from_static(b"key");
        self.objects.delete(&self.owner, BUCKET, &key, &VersionSpec::Current, None).await.unwrap();
    }

    /// An object of two parts at the key of uploads, with a third part that is not listed.
    async fn put_in_parts(&self) {
        let upload = self.objects.create_upload(&self.owner, create_of("key")).await.unwrap().0.text();
        let mut parts = Vec::new();
        for number in 1..=3 {
            let body = incoming(&bytes(number.into(), PART_MIN as usize));
            parts.push(self.objects.put_part(&self.owner, &address(&upload, number), body).await.unwrap().part);
        }
        let listed: Vec<_> = parts[..2].iter().collect();
        let request: CompleteUpload = complete_of(&upload, &listed);
        self.objects.complete(&self.owner, request).await.unwrap();
    }

    fn state(&self) -> State {
        self.store.state()
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_not_removed_before_the_head_that_replaced_it_is_synced() {
    let shop = Shop::new(false).await;
    shop.put(1).await;
    shop.put(2).await;
    assert_eq!((shop.state().barriers, shop.store.blobs().await), (0, 2), "the answer does not wait");
    tokio::time::sleep(LATER).await;
    assert_eq!((shop.state().removed_too_early, shop.store.blobs().await), (0, 1));
    shop.delete().await;
    assert_eq!(shop.store.blobs().await, 1, "nor does that of a delete");
    tokio::time::sleep(LATER).await;
    assert_eq!((shop.state().removed_too_early, shop.store.blobs().await), (0, 0));
    shop.put_in_parts().await;
    shop.delete().await;
    tokio::time::sleep(LATER).await;
    assert_eq!((shop.state().removed_too_early, shop.store.blobs().await), (0, 0), "nor are parts");
}

#[tokio::test(start_paused = true)]
async fn many_removals_share_a_sync() {
    let shop = Shop::new(false).await;
    for seed in 0..50 {
        shop.put(seed).await;
    }
    tokio::time::sleep(LATER).await;
    assert_eq!((shop.store.blobs().await, shop.state().barriers), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn where_answers_wait_for_the_disk_nothing_waits_again() {
    let shop = Shop::new(true).await;
    shop.put(1).await;
    shop.put(2).await;
    assert_eq!(shop.store.blobs().await, 1);
    shop.delete().await;
    assert_eq!(shop.store.blobs().await, 0);
    shop.put_in_parts().await;
    assert_eq!(shop.store.blobs().await, 2, "the part that was not listed");
    assert_eq!((shop.state().removed_too_early, shop.state().barriers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_waits_for_the_disk_however_the_server_was_started() {
    for durable in [true, false] {
        let shop = Shop::new(durable).await;
        let upload = shop.objects.create_upload(&shop.owner, create_of("key")).await.unwrap().0;
        let body = incoming(&bytes(1, 5_000));
        shop.objects.put_part(&shop.owner, &address(&upload.text(), 1), body).await.unwrap();
        let open = shop.objects.read_upload(upload).await.unwrap().unwrap();
        shop.objects.swap_upload(&open, larder_model::objects::UploadState::Aborted).await.unwrap().unwrap();
        let before = shop.state();
        assert_eq!((before.removed, before.barriers), (0, 0));
        assert_eq!(shop.objects.sweep().await.unwrap().failed, 0);
        let after = shop.state();
        assert_eq!((after.removed_too_early, shop.store.blobs().await), (0, 0));
        assert!(after.barriers > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_when_the_sync_fails() {
    let shop = Shop::new(false).await;
    shop.put(1).await;
    shop.store.fail_syncs();
    shop.put(2).await;
    tokio::time::sleep(LATER).await;
    let swept = shop.objects.sweep().await.unwrap();
    assert_eq!((swept.blobs, shop.state().removed, shop.store.blobs().await), (0, 0, 2));
    assert!(swept.failed > 0 && shop.state().barriers > 1);
}
