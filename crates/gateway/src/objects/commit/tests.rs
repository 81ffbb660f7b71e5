//! Races of writers with each other and with sweepers, step by step.

use larder_model::objects::{Release, Versioning};
use larder_model::rows::{Batch, Change};
use larder_store::Store as _;

use super::testing::{Desk, bytes, put_of, run};
use super::*;
use crate::objects::get::VersionSpec;
use crate::objects::uploads::testing::{Bench, KEY, Trap};

async fn add_marker(turn: &Turn<'_>) -> Next {
    turn.add(turn.new_version("owner".into(), None)).await.unwrap()
}

#[test]
fn of_two_turns_on_one_head_one_commits() {
    run(async {
        let desk = Desk::new().await;
        let place = desk.place("key").await;
        // Of one gateway they would line up.
        let other = desk.world.gateway(crate::Rules::default()).await;
        let (mut one, mut two) = (desk.objects.race(&place, None), other.race(&place, None));
        let (first, second) = (one.turn().await.unwrap(), two.turn().await.unwrap());
        let (next_first, next_second) = (add_marker(&first).await, add_marker(&second).await);
        assert!(second.commit(next_second).await.unwrap());
        assert!(!first.commit(next_first).await.unwrap());
        let again = one.turn().await.unwrap();
        assert!(again.head.current.is_some());
        let next = add_marker(&again).await;
        assert!(again.commit(next).await.unwrap());
    });
}

#[test]
fn who_read_before_a_touch_fails() {
    run(async {
        let desk = Desk::new().await;
        let place = desk.place("key").await;
        let other = desk.world.gateway(crate::Rules::default()).await;
        for round in 0..2 {
            // The first time there is no head to be touched.
            let mut race = desk.objects.race(&place, None);
            let turn = race.turn().await.unwrap();
            let before = turn.head.clone();
            let touched = other.touch(place.id, &place.key).await.unwrap();
            assert_eq!(touched, before);
            let next = add_marker(&turn).await;
            assert!(!turn.commit(next).await.unwrap(), "round {round}");
            desk.put("key", &bytes(1, 3000)).await;
        }
        assert_eq!(desk.get("key", VersionSpec::Current).await.unwrap(), bytes(1, 3000));
        assert_eq!(desk.blobs().await.len(), 1, "a touch releases nothing that is named");
    });
}

async fn doom(desk: &Desk, blob: BlobId) {
    let mark = Row { name: bytes::Bytes::from_static(b"m"), value: vec![1].into(), stamp: 1, expires: None };
    let batch = Batch::of(Partition::doomed(blob), vec![Change::Put(mark)]);
    desk.world.store.apply(batch, &desk.objects.options()).await.unwrap();
}

#[test]
fn who_brings_a_doomed_blob_gives_way() {
    run(async {
        let desk = Desk::new().await;
        let (place, blob) = (desk.place("key").await, BlobId([1; 24]));
        desk.objects.race(&place, Some(blob)).turn().await.map(drop).unwrap();
        doom(&desk, blob).await;
        assert!(desk.objects.race(&place, Some(blob)).turn().await.is_err());
        desk.objects.race(&place, None).turn().await.map(drop).unwrap();
    });
}

#[cfg(feature = "rules")]
#[test]
fn without_its_rule_nobody_looks_for_marks() {
    run(async {
        let desk = Desk::with(crate::Rules::without(Rule::FenceSweeper)).await;
        let (place, blob) = (desk.place("key").await, BlobId([1; 24]));
        doom(&desk, blob).await;
        desk.objects.race(&place, Some(blob)).turn().await.map(drop).unwrap();
    });
}

/// The head of `key` once its writer died before it removed what it lists.
async fn die_before_draining(desk: &Desk) {
    let stored = desk.put("other", &bytes(1, 3000)).await;
    let larder_model::objects::ObjectBody::Blob { id, .. } = stored.version.object.unwrap().body else { panic!() };
    let place = desk.place("key").await;
    let seen = desk.objects.read_head(&place.partition(), &desk.objects.options()).await.unwrap();
    let head = Head { release: vec![Release::Blob(id)], ..seen.head };
    let stamp = desk.objects.stamp_above(seen.stamp).await.unwrap();
    let row = head_row(&desk.objects.gateway, &head, place.id, &place.key, stamp);
    let options = desk.objects.options();
    let swap = desk.world.store.apply_if(&place.partition(), seen.stamp, row, Vec::new(), &options).await.unwrap();
    assert_eq!(swap, Swap::Applied);
}

#[test]
fn who_comes_next_removes_what_a_dead_writer_left() {
    run(async {
        for touches in [true, false] {
            let desk = Desk::new().await;
            die_before_draining(&desk).await;
            assert_eq!(desk.blobs().await.len(), 1);
            let place = desk.place("key").await;
            if touches {
                desk.objects.touch(place.id, &place.key).await.unwrap();
            } else {
                desk.put("key", &bytes(2, 10)).await;
            }
            assert!(desk.blobs().await.is_empty());
            assert!(desk.head("key").await.release.is_empty());
        }
    });
}

#[cfg(feature = "rules")]
#[test]
fn without_its_rule_what_a_dead_writer_left_stays() {
    run(async {
        let desk = Desk::with(crate::Rules::without(Rule::DrainReleases)).await;
        die_before_draining(&desk).await;
        desk.put("key", &bytes(2, 10)).await;
        assert_eq!(desk.blobs().await.len(), 1);
    });
}

#[test]
fn the_bucket_as_it_is_at_the_commit_decides() {
    run(async {
        let desk = Desk::new().await;
        desk.put("key", &bytes(1, 10)).await;
        // The put finds its bucket, then waits for its body while versioning is switched on.
        let (objects, owner) = (desk.objects.clone(), desk.owner.clone());
        let (send, body) = tokio::sync::oneshot::channel();
        let late = tokio::spawn(async move {
            let mut put = put_of("key", &bytes::Bytes::new());
            put.incoming.length = None;
            put.incoming.stream = Box::new(Late(Some(body)));
            objects.put(&owner, put).await
        });
        tokio::task::yield_now().await;
        desk.versioning(Versioning::Enabled).await;
        send.send(bytes(2, 10)).unwrap();
        assert!(late.await.unwrap().unwrap().version_id.is_some());
        assert_eq!(desk.get("key", VersionSpec::Id("null".into())).await.unwrap(), bytes(1, 10));
    });
}

#[test]
fn a_change_that_is_not_in_the_head_was_not_made() {
    run(async {
        let desk = Desk::new().await;
        let place = desk.place(KEY).await;
        let mut race = desk.objects.race(&place, None);
        let mut turn = race.turn().await.unwrap();
        let next = add_marker(&turn).await;
        turn.options.deadline = Instant::now();
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let late = turn.commit(next).await;
        assert!(matches!(late, Err(Error::Gateway(crate::Error::TimedOut))), "{late:?}");
        assert_eq!(desk.head(KEY).await.current, None);
    });
}

#[test]
fn nothing_was_written_in_the_future_however_far_ahead_the_stamps_are() {
    run(async {
        let bench = Bench::new().await;
        let gateway = &bench.desk.objects.gateway;
        gateway.clock.pass(gateway.now() + 3_600_000_000);
        let written = bench.desk.put(KEY, &bytes(1, 10)).await.version;
        assert!(written.id.stamp() > gateway.now() && written.modified <= gateway.now());
        let upload = bench.begin().await;
        assert!(bench.upload(&upload).await.unwrap().upload.initiated <= gateway.now());
    });
}

/// What a key may read as, whole.
async fn reads_as(desk: &Desk, bodies: &[Option<&bytes::Bytes>], at: &str) {
    let got = match desk.get(KEY, VersionSpec::Current).await {
        Ok(body) => Some(body),
        Err(Error::NoSuchKey) => None,
        Err(other) => panic!("{at}: {other}"),
    };
    assert!(bodies.contains(&got.as_ref()), "{at}: {:?} bytes", got.map(|got| got.len()));
    desk.objects.sweep().await.unwrap();
    let large = got.as_ref().is_some_and(|body| body.len() > 1024);
    assert_eq!(desk.blobs().await.len(), usize::from(large), "{at}");
    assert_eq!(desk.get(KEY, VersionSpec::Current).await.ok(), got, "{at}: the sweeper took nothing that is named");
}

#[test]
fn a_put_whose_answers_are_lost_is_whole_or_absent() {
    let (mut answered, mut refused) = (0, 0);
    for step in 0.. {
        let met = run(async {
            let (bench, old, new) = (Bench::new().await, bytes(1, 3000), bytes(2, 5000));
            bench.desk.put(KEY, &old).await;
            bench.gate.set(Trap::LoseAnswer, step);
            let put = bench.slow.put(&bench.desk.owner, put_of(KEY, &new)).await;
            if bench.gate.clear() {
                put.unwrap();
                return false;
            }
            match put {
                Ok(_) => {
                    answered += 1;
                    reads_as(&bench.desk, &[Some(&new)], &format!("step {step}")).await;
                }
                Err(_) => {
                    refused += 1;
                    reads_as(&bench.desk, &[Some(&old), Some(&new)], &format!("step {step}")).await;
                }
            }
            true
        });
        if !met {
            break;
        }
    }
    assert!(answered > 0, "the head says that the change is in it");
    assert!(refused > 0, "reads fail");
}

#[test]
fn what_readers_see_before_it_is_on_disk_is_neither_answered_nor_acted_on() {
    run(async {
        let (bench, old, new) = (Bench::new().await, bytes(1, 3000), bytes(2, 5000));
        let desk = &bench.desk;
        desk.put(KEY, &old).await;
        let upload = bench.begin().await;
        bench.part(&upload, 1, &old).await;
        assert_eq!(desk.blobs().await.len(), 2);
        bench.gate.stop_disk();
        let put = bench.slow.put(&desk.owner, put_of(KEY, &new)).await;
        assert!(matches!(put, Err(Error::Gateway(crate::Error::TimedOut))), "{put:?}");
        assert_eq!(desk.get(KEY, VersionSpec::Current).await.unwrap(), new, "readers see it");
        assert_eq!(desk.blobs().await.len(), 3, "a power cut may bring the old version back");
        bench.gate.stop_disk();
        let key = bytes::Bytes::from_static(KEY.as_bytes());
        let abort = bench.slow.abort(&desk.owner, super::testing::BUCKET, &key, &upload, None).await;
        assert!(matches!(abort, Err(Error::Gateway(crate::Error::TimedOut))), "{abort:?}");
        assert_eq!(bench.state(&upload).await, Some(larder_model::objects::UploadState::Aborted));
        assert!(bench.slow.sweep().await.is_ok_and(|swept| swept.failed > 0 && swept.blobs == 0));
        assert_eq!(desk.blobs().await.len(), 3, "or open the upload again");
        desk.objects.sweep().await.unwrap();
        assert_eq!(desk.blobs().await.len(), 1);
    });
}

/// What others do while a writer stands still.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Put,
    Delete,
    CopyOntoItself,
    Sweep,
}

#[test]
fn a_writer_that_stands_still_anywhere_tears_nothing() {
    use Meanwhile::{CopyOntoItself, Delete, Put, Sweep};
    for meanwhile in [Put, Delete, CopyOntoItself, Sweep] {
        for step in 0.. {
            if !run(stand_still(meanwhile, step)) {
                assert!(step > 3);
                break;
            }
        }
    }
}

async fn stand_still(meanwhile: Meanwhile, step: usize) -> bool {
    let (bench, old) = (Bench::new().await, bytes(1, 3000));
    let (slow, other) = (bytes(2, 5000), bytes(3, 4000));
    let desk = &bench.desk;
    desk.put(KEY, &old).await;
    bench.gate.set(Trap::Stop, step);
    let put = bench.slow.put(&desk.owner, put_of(KEY, &slow));
    let act = async {
        bench.gate.reached().await;
        match meanwhile {
            Meanwhile::Put => drop(desk.put(KEY, &other).await),
            Meanwhile::Delete => drop(desk.delete(KEY, &VersionSpec::Current).await),
            Meanwhile::CopyOntoItself => drop(copy_onto_itself(desk).await),
            Meanwhile::Sweep => drop(desk.objects.sweep().await.unwrap()),
        }
        bench.gate.open();
    };
    let both = async { tokio::join!(put, act) };
    // Nothing stands still behind the last call.
    let Ok((put, ())) = tokio::time::timeout(std::time::Duration::from_secs(60), both).await else { return false };
    let at = format!("{meanwhile:?} at step {step}");
    put.unwrap_or_else(|error| panic!("{at}: {error}"));
    // The put ends last, whichever of the two was committed last.
    let bodies: &[_] = match meanwhile {
        Meanwhile::Put => &[Some(&slow), Some(&other)],
        Meanwhile::Delete => &[Some(&slow), None],
        Meanwhile::CopyOntoItself | Meanwhile::Sweep => &[Some(&slow)],
    };
    reads_as(desk, bodies, &at).await;
    true
}

async fn copy_onto_itself(desk: &Desk) -> Result<crate::objects::copy::Copied> {
    let request = crate::objects::copy::CopyObject {
        source: super::testing::get_of(KEY),
        bucket: super::testing::BUCKET.into(),
        key: bytes::Bytes::from_static(KEY.as_bytes()),
        replace: Some(crate::objects::put::About::default()),
        tags: None,
        acl: crate::objects::acl::AclChoice::Private,
        own: Vec::new(),
        changes_more: false,
        checksum: None,
        conditions: crate::objects::put::WriteConditions::default(),
    };
    desk.objects.copy(&desk.owner, request).await
}

struct Late(Option<tokio::sync::oneshot::Receiver<bytes::Bytes>>);

#[async_trait::async_trait]
impl crate::body::ByteStream for Late {
    async fn next(&mut self) -> Option<std::result::Result<bytes::Bytes, crate::body::BodyError>> {
        Some(Ok(self.0.take()?.await.unwrap()))
    }
}
