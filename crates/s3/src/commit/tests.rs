//! Races of writers with each other and with sweepers, step by step.

use larder_rows::{Batch, Change};
use larder_store::Store as _;

use super::testing::{BucketFixture, bytes, put_request, run};
use super::*;
use crate::get::VersionSpec;
use crate::rules::{ObjectLock, Release, Versioning};
use crate::uploads::testing::{KEY, Trap, UploadSetup};

async fn add_marker(attempt: &CasAttempt<'_>) -> KeyChange {
    attempt.add(attempt.new_version("owner".into(), None)).await.unwrap()
}

#[test]
fn of_two_attempts_on_one_head_one_commits() {
    run(async {
        let fixture = BucketFixture::new().await;
        let location = fixture.location("key").await;
        // Two writers of one gateway would queue.
        let other = fixture.stores.gateway().await;
        let (mut put_a, mut put_b) =
            (fixture.objects.heads.cas_loop(&location, None), other.heads.cas_loop(&location, None));
        let (first, second) = (put_a.next_attempt().await.unwrap(), put_b.next_attempt().await.unwrap());
        let (next_first, next_second) = (add_marker(&first).await, add_marker(&second).await);
        assert!(second.commit(next_second, &ChangeEvent::silent()).await.unwrap());
        assert!(!first.commit(next_first, &ChangeEvent::silent()).await.unwrap());
        let again = put_a.next_attempt().await.unwrap();
        assert!(again.head.current.is_some());
        let next = add_marker(&again).await;
        assert!(again.commit(next, &ChangeEvent::silent()).await.unwrap());
    });
}

#[test]
fn a_writer_that_read_before_a_fence_conflicts() {
    run(async {
        let fixture = BucketFixture::new().await;
        let location = fixture.location("key").await;
        let other = fixture.stores.gateway().await;
        for round in 0..2 {
            // The first round fences a missing head.
            let mut cas = fixture.objects.heads.cas_loop(&location, None);
            let attempt = cas.next_attempt().await.unwrap();
            let before = attempt.head.clone();
            let fenced = other.heads.fence_head(location.id, &location.key).await.unwrap();
            assert_eq!(fenced, before);
            let next = add_marker(&attempt).await;
            assert!(!attempt.commit(next, &ChangeEvent::silent()).await.unwrap(), "round {round}");
            fixture.put("key", &bytes(1, 3000)).await;
        }
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), bytes(1, 3000));
        assert_eq!(fixture.blobs().await.len(), 1, "a fence releases no referenced blob");
    });
}

async fn write_gc_mark(fixture: &BucketFixture, blob: BlobId) {
    let mark = Row { name: bytes::Bytes::from_static(b"m"), value: vec![1].into(), stamp: Timestamp(1), expires: None };
    let batch = Batch::single(Partition::gc_mark(blob), vec![Change::Put(mark)]);
    fixture.stores.store.apply(batch, &fixture.objects.heads.options()).await.unwrap();
}

#[test]
fn a_writer_whose_blob_has_a_gc_mark_fails() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (location, blob) = (fixture.location("key").await, BlobId([1; 24]));
        fixture.objects.heads.cas_loop(&location, Some(blob)).next_attempt().await.map(drop).unwrap();
        write_gc_mark(&fixture, blob).await;
        assert!(fixture.objects.heads.cas_loop(&location, Some(blob)).next_attempt().await.is_err());
        fixture.objects.heads.cas_loop(&location, None).next_attempt().await.map(drop).unwrap();
    });
}

/// Leaves `key` as a writer does that died before it drained its release list.
async fn die_before_draining(fixture: &BucketFixture) {
    let stored = fixture.put("other", &bytes(1, 3000)).await;
    let crate::rules::ObjectBody::Blob { id, .. } = stored.version.object.unwrap().body else { panic!() };
    let location = fixture.location("key").await;
    let seen = fixture.objects.heads.read_head(&location.partition(), &fixture.objects.heads.options()).await.unwrap();
    let head = ObjectHead { release: vec![Release::Blob(id)], ..seen.head };
    let stamp = fixture.objects.heads.stamp_above(seen.stamp).await.unwrap();
    let row = head_row(&fixture.objects.gateway, &head, location.id, &location.key, stamp);
    let options = fixture.objects.heads.options();
    let swap =
        fixture.stores.store.apply_if(&location.partition(), seen.stamp, row, Vec::new(), &options).await.unwrap();
    assert_eq!(swap, CasResult::Applied);
}

#[test]
fn the_next_writer_drains_the_release_list_of_a_dead_one() {
    run(async {
        for fences in [true, false] {
            let fixture = BucketFixture::new().await;
            die_before_draining(&fixture).await;
            assert_eq!(fixture.blobs().await.len(), 1);
            let location = fixture.location("key").await;
            if fences {
                fixture.objects.heads.fence_head(location.id, &location.key).await.unwrap();
            } else {
                fixture.put("key", &bytes(2, 10)).await;
            }
            assert!(fixture.blobs().await.is_empty());
            assert!(fixture.head("key").await.release.is_empty());
        }
    });
}

#[test]
fn versioning_enabled_during_a_put_applies_at_its_commit() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.put("key", &bytes(1, 10)).await;
        // The put reads its bucket, then waits for its body while versioning is enabled.
        let (objects, owner) = (fixture.objects.clone(), fixture.owner.clone());
        let (send, body) = tokio::sync::oneshot::channel();
        let late = tokio::spawn(async move {
            let mut put = put_request("key", &bytes::Bytes::new());
            put.upload_body.length = None;
            put.upload_body.stream = Box::new(LateBody(Some(body)));
            objects.put(&owner, put).await
        });
        tokio::task::yield_now().await;
        fixture.versioning(Versioning::Enabled).await;
        send.send(bytes(2, 10)).unwrap();
        assert!(late.await.unwrap().unwrap().version_id.is_some());
        assert_eq!(fixture.get("key", VersionSpec::Id("null".into())).await.unwrap(), bytes(1, 10));
    });
}

#[test]
fn a_timed_out_change_is_absent_if_the_head_lacks_it() {
    run(async {
        let fixture = BucketFixture::new().await;
        let location = fixture.location(KEY).await;
        let mut cas = fixture.objects.heads.cas_loop(&location, None);
        let mut attempt = cas.next_attempt().await.unwrap();
        let next = add_marker(&attempt).await;
        attempt.options.deadline = Instant::now();
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let late = attempt.commit(next, &ChangeEvent::silent()).await;
        assert!(matches!(late, Err(Error::Gateway(larder_core::Error::TimedOut))), "{late:?}");
        assert_eq!(fixture.head(KEY).await.current, None);
    });
}

#[test]
fn modification_times_stay_at_the_clock_when_stamps_run_ahead() {
    run(async {
        let setup = UploadSetup::new().await;
        let gateway = &setup.fixture.objects.gateway;
        gateway.issuer().clock.observe(gateway.context().now() + 3_600_000_000);
        let written = setup.fixture.put(KEY, &bytes(1, 10)).await.version;
        assert!(written.id.stamp() > gateway.context().now() && written.modified <= gateway.context().now());
        let upload = setup.begin().await;
        assert!(setup.upload(&upload).await.unwrap().upload.initiated <= gateway.context().now());
    });
}

/// Checks that a key reads as one of `bodies`, whole, and that a sweep removes nothing it references.
async fn reads_as(fixture: &BucketFixture, bodies: &[Option<&bytes::Bytes>], at: &str) {
    let got = match fixture.get(KEY, VersionSpec::Current).await {
        Ok(body) => Some(body),
        Err(Error::NoSuchKey) => None,
        Err(other) => panic!("{at}: {other}"),
    };
    assert!(bodies.contains(&got.as_ref()), "{at}: {:?} bytes", got.map(|got| got.len()));
    fixture.objects.sweeper.sweep().await.unwrap();
    let large = got.as_ref().is_some_and(|body| body.len() > 1024);
    assert_eq!(fixture.blobs().await.len(), usize::from(large), "{at}");
    assert_eq!(fixture.get(KEY, VersionSpec::Current).await.ok(), got, "{at}: the sweeper took nothing that is named");
}

#[test]
fn a_put_with_lost_answers_is_complete_or_absent() {
    let (mut answered, mut refused) = (0, 0);
    for step in 0.. {
        let met = run(async {
            let (setup, old, new) = (UploadSetup::new().await, bytes(1, 3000), bytes(2, 5000));
            setup.fixture.put(KEY, &old).await;
            setup.gate.set(Trap::LoseAnswer, step);
            let put = setup.slow.put(&setup.fixture.owner, put_request(KEY, &new)).await;
            if setup.gate.clear() {
                put.unwrap();
                return false;
            }
            match put {
                Ok(_) => {
                    answered += 1;
                    reads_as(&setup.fixture, &[Some(&new)], &format!("step {step}")).await;
                }
                Err(_) => {
                    refused += 1;
                    reads_as(&setup.fixture, &[Some(&old), Some(&new)], &format!("step {step}")).await;
                }
            }
            true
        });
        if !met {
            break;
        }
    }
    assert!(answered > 0, "no put learned its outcome from the head");
    assert!(refused > 0, "no put failed on a lost read");
}

#[test]
fn an_unsynced_change_is_neither_acknowledged_nor_acted_on() {
    run(async {
        let (setup, old, new) = (UploadSetup::new().await, bytes(1, 3000), bytes(2, 5000));
        let fixture = &setup.fixture;
        fixture.put(KEY, &old).await;
        let upload = setup.begin().await;
        setup.part(&upload, 1, &old).await;
        assert_eq!(fixture.blobs().await.len(), 2);
        setup.gate.stop_disk();
        let put = setup.slow.put(&fixture.owner, put_request(KEY, &new)).await;
        assert!(matches!(put, Err(Error::Gateway(larder_core::Error::TimedOut))), "{put:?}");
        assert_eq!(fixture.get(KEY, VersionSpec::Current).await.unwrap(), new, "readers see it");
        assert_eq!(fixture.blobs().await.len(), 3, "a power cut may bring the old version back");
        setup.gate.stop_disk();
        let key = bytes::Bytes::from_static(KEY.as_bytes());
        let abort = setup.slow.uploads.abort(&fixture.owner, super::testing::BUCKET, &key, &upload, None).await;
        assert!(matches!(abort, Err(Error::Gateway(larder_core::Error::TimedOut))), "{abort:?}");
        assert_eq!(setup.state(&upload).await, Some(crate::rules::UploadState::Aborted));
        assert!(setup.slow.sweeper.sweep().await.is_ok_and(|swept| swept.failed > 0 && swept.blobs == 0));
        assert_eq!(fixture.blobs().await.len(), 3, "a power cut may reopen the upload");
        fixture.objects.sweeper.sweep().await.unwrap();
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

/// The concurrent operation while a writer is paused.
#[derive(Debug, Clone, Copy)]
enum ConcurrentWrite {
    Put,
    Delete,
    CopyOntoItself,
    Sweep,
}

#[test]
fn a_writer_paused_at_any_call_tears_no_object() {
    use ConcurrentWrite::{CopyOntoItself, Delete, Put, Sweep};
    for concurrent in [Put, Delete, CopyOntoItself, Sweep] {
        for step in 0.. {
            if !run(stand_still(concurrent, step)) {
                assert!(step > 3);
                break;
            }
        }
    }
}

async fn stand_still(concurrent: ConcurrentWrite, step: usize) -> bool {
    let (setup, old) = (UploadSetup::new().await, bytes(1, 3000));
    let (slow, other) = (bytes(2, 5000), bytes(3, 4000));
    let fixture = &setup.fixture;
    fixture.put(KEY, &old).await;
    setup.gate.set(Trap::Stop, step);
    let put = setup.slow.put(&fixture.owner, put_request(KEY, &slow));
    let act = async {
        setup.gate.reached().await;
        match concurrent {
            ConcurrentWrite::Put => drop(fixture.put(KEY, &other).await),
            ConcurrentWrite::Delete => drop(fixture.delete(KEY, &VersionSpec::Current).await),
            ConcurrentWrite::CopyOntoItself => drop(copy_onto_itself(fixture).await),
            ConcurrentWrite::Sweep => drop(fixture.objects.sweeper.sweep().await.unwrap()),
        }
        setup.gate.open();
    };
    let both = async { tokio::join!(put, act) };
    // A step after the last call pauses nothing.
    let Ok((put, ())) = tokio::time::timeout(std::time::Duration::from_secs(60), both).await else { return false };
    let at = format!("{concurrent:?} at step {step}");
    put.unwrap_or_else(|error| panic!("{at}: {error}"));
    // The put ends last, in either commit order.
    let bodies: &[_] = match concurrent {
        ConcurrentWrite::Put => &[Some(&slow), Some(&other)],
        ConcurrentWrite::Delete => &[Some(&slow), None],
        ConcurrentWrite::CopyOntoItself | ConcurrentWrite::Sweep => &[Some(&slow)],
    };
    reads_as(fixture, bodies, &at).await;
    true
}

async fn copy_onto_itself(fixture: &BucketFixture) -> Result<crate::copy::CopiedObject> {
    let request = crate::copy::CopyObject {
        source: super::testing::get_request(KEY),
        bucket: super::testing::BUCKET.into(),
        key: bytes::Bytes::from_static(KEY.as_bytes()),
        replace: Some(crate::put::ObjectMetadata::default()),
        tags: None,
        acl: crate::acl_choice::AclChoice::Private,
        keeps_acl: false,
        own: Vec::new(),
        changes_more: false,
        encryption: crate::encryption::EncryptionChoice::BucketDefault,
        checksum: None,
        lock: ObjectLock::default(),
        conditions: crate::put::WriteConditions::default(),
    };
    fixture.objects.copy(&fixture.owner, request).await
}

struct LateBody(Option<tokio::sync::oneshot::Receiver<bytes::Bytes>>);

#[async_trait::async_trait]
impl larder_core::body::ByteStream for LateBody {
    async fn next(&mut self) -> Option<std::result::Result<bytes::Bytes, larder_core::body::BodyError>> {
        Some(Ok(self.0.take()?.await.unwrap()))
    }
}
