//! Pins, and the order of syncs and removals before a power cut.

use std::sync::Arc;
use std::time::Duration;

use larder_core::Config;
use larder_testkit::{VolatileState, VolatileStore};

use super::*;
use crate::acl_choice::AclChoice;
use crate::buckets::testing::{new_caller, ports_over};
use crate::commit::testing::{BUCKET, bytes, put_request, upload_body};
use crate::complete::CompleteUpload;
use crate::get::VersionSpec;
use crate::object_lock::GovernanceBypass;
use crate::uploads::testing::{PART_MIN, address, complete_request, create_request, settings};
use crate::{Caller, Objects, ObjectsConfig};

/// Longer than the batching delay of removals.
const LATER: Duration = Duration::from_secs(3);

#[test]
fn a_manifest_is_pinned_until_its_last_reader_is_gone() {
    let pins = Pins::default();
    let (manifest, upload) = (VersionId([1; 16]), UploadId([2; 16]));
    let (first, second) = (pins.pin(manifest, Some(upload)), pins.pin(manifest, None));
    assert!(pins.is_pinned(&manifest) && pins.is_upload_pinned(&upload));
    drop(first);
    assert!(pins.is_pinned(&manifest) && !pins.is_upload_pinned(&upload));
    drop(second);
    assert!(!pins.is_pinned(&manifest));
    assert!(pins.readers.lock().manifests.is_empty());
}

/// A bucket on a store that may lose unsynced writes.
struct PowerCutFixture {
    store: Arc<VolatileStore>,
    objects: Arc<Objects>,
    owner: Caller,
}

impl PowerCutFixture {
    async fn new(durable: bool) -> Self {
        let store = VolatileStore::new(durable);
        let ports = ports_over(Arc::clone(&store) as _, Arc::clone(&store) as _, store.clock(), 1);
        let gateway = Core::start(ports, Config { durable, ..Config::default() }).await.unwrap();
        let objects = Objects::new(gateway, Vec::new(), ObjectsConfig { single_process: true, ..settings() });
        let owner = new_caller(&objects, "owner").await;
        objects.buckets.create(&owner, BUCKET, AclChoice::Private, None).await.unwrap();
        Self { store, objects, owner }
    }

    async fn put(&self, seed: u64) {
        self.objects.put(&self.owner, put_request("key", &bytes(seed, 5_000))).await.unwrap();
    }

    async fn delete(&self) {
        let key = bytes::Bytes::from_static(b"key");
        self.objects
            .delete(&self.owner, BUCKET, &key, &VersionSpec::Current, None, GovernanceBypass::Absent)
            .await
            .unwrap();
    }

    /// Completes an object of two parts, with a third part that is not listed.
    async fn put_in_parts(&self) {
        let upload = self.objects.uploads.create(&self.owner, create_request("key")).await.unwrap().id.text();
        let mut parts = Vec::new();
        for number in 1..=3 {
            let body = upload_body(&bytes(number.into(), PART_MIN as usize));
            parts.push(self.objects.uploads.put_part(&self.owner, &address(&upload, number), body).await.unwrap().part);
        }
        let listed: Vec<_> = parts[..2].iter().collect();
        let request: CompleteUpload = complete_request(&upload, &listed);
        self.objects.uploads.complete(&self.owner, request).await.unwrap();
    }

    fn state(&self) -> VolatileState {
        self.store.state()
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_nothing_was_answered_before_the_delete_that_it_saw_was_on_disk() {
    for durable in [true, false] {
        let fixture = PowerCutFixture::new(durable).await;
        fixture.delete().await;
        assert_eq!(fixture.state().barriers, usize::from(durable));
        let (key, tags) = (bytes::Bytes::from_static(b"key"), Some(vec!["*".to_owned()]));
        fixture
            .objects
            .delete(&fixture.owner, BUCKET, &key, &VersionSpec::Current, tags, GovernanceBypass::Absent)
            .await
            .unwrap();
        assert_eq!(fixture.state().barriers, 2 * usize::from(durable));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_not_removed_before_the_head_that_replaced_it_is_synced() {
    let fixture = PowerCutFixture::new(false).await;
    fixture.put(1).await;
    fixture.put(2).await;
    assert_eq!(
        (fixture.state().barriers, fixture.store.blobs().await.unwrap()),
        (0, 2),
        "a put does not wait for the sync"
    );
    tokio::time::sleep(LATER).await;
    assert_eq!((fixture.state().removed_too_early, fixture.store.blobs().await.unwrap()), (0, 1));
    fixture.delete().await;
    assert_eq!(fixture.store.blobs().await.unwrap(), 1, "a delete does not wait for the sync");
    tokio::time::sleep(LATER).await;
    assert_eq!((fixture.state().removed_too_early, fixture.store.blobs().await.unwrap()), (0, 0));
    fixture.put_in_parts().await;
    fixture.delete().await;
    tokio::time::sleep(LATER).await;
    assert_eq!(
        (fixture.state().removed_too_early, fixture.store.blobs().await.unwrap()),
        (0, 0),
        "parts are removed after the sync too"
    );
}

#[tokio::test(start_paused = true)]
async fn many_removals_share_a_sync() {
    let fixture = PowerCutFixture::new(false).await;
    for seed in 0..50 {
        fixture.put(seed).await;
    }
    tokio::time::sleep(LATER).await;
    assert_eq!((fixture.store.blobs().await.unwrap(), fixture.state().barriers), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn durable_answers_need_no_second_sync() {
    let fixture = PowerCutFixture::new(true).await;
    fixture.put(1).await;
    fixture.put(2).await;
    assert_eq!(fixture.store.blobs().await.unwrap(), 1);
    fixture.delete().await;
    assert_eq!(fixture.store.blobs().await.unwrap(), 0);
    fixture.put_in_parts().await;
    assert_eq!(fixture.store.blobs().await.unwrap(), 2, "the part that was not listed");
    assert_eq!((fixture.state().removed_too_early, fixture.state().barriers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_syncs_before_it_removes_in_every_durability() {
    for durable in [true, false] {
        let fixture = PowerCutFixture::new(durable).await;
        let upload = fixture.objects.uploads.create(&fixture.owner, create_request("key")).await.unwrap().id;
        let body = upload_body(&bytes(1, 5_000));
        fixture.objects.uploads.put_part(&fixture.owner, &address(&upload.text(), 1), body).await.unwrap();
        let open = fixture.objects.heads.read_upload(upload).await.unwrap().unwrap();
        fixture.objects.heads.cas_upload_state(&open, crate::rules::UploadState::Aborted).await.unwrap().unwrap();
        let before = fixture.state();
        assert_eq!((before.removed, before.barriers), (0, 0));
        assert_eq!(fixture.objects.sweeper.sweep().await.unwrap().failed, 0);
        let after = fixture.state();
        assert_eq!((after.removed_too_early, fixture.store.blobs().await.unwrap()), (0, 0));
        assert!(after.barriers > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_when_the_sync_fails() {
    let fixture = PowerCutFixture::new(false).await;
    fixture.put(1).await;
    fixture.store.fail_syncs();
    fixture.put(2).await;
    tokio::time::sleep(LATER).await;
    let swept = fixture.objects.sweeper.sweep().await.unwrap();
    assert_eq!((swept.blobs, fixture.state().removed, fixture.store.blobs().await.unwrap()), (0, 0, 2));
    assert!(swept.failed > 0 && fixture.state().barriers > 1);
}
