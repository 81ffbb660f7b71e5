//! Completions of uploads.

use larder_store::Table;

use super::super::buckets::testing::new_caller;
use super::super::commit::testing::{BUCKET, bytes, get_request, put_request, run, set_policy, upload_body};
use super::super::list::KeyOrPrefix;
use super::super::listing_page::ListVersions;
use super::super::put::ChecksumWanted;
use super::super::uploads::testing::{KEY, Trap, UploadSetup, address, complete_request, create_request};
use super::*;
use crate::rules::checksum::ChecksumHasher;
use crate::rules::{Algorithm, ChecksumKind, Part, S3Action, SystemHeader, Versioning};

fn tag(tag: &str) -> Option<Vec<String>> {
    Some(vec![tag.to_owned()])
}

#[test]
fn an_upload_becomes_an_object() {
    run(async {
        let setup = UploadSetup::new().await;
        let mut create = create_request(KEY);
        create.metadata.headers = vec![(SystemHeader::ContentType, Bytes::from_static(b"text/x"))];
        create.metadata.meta = vec![("a".into(), Bytes::from_static(b"b"))];
        let id = setup.fixture.objects.uploads.create(&setup.fixture.owner, create).await.unwrap().id;
        let upload = id.text();
        let bodies = [bytes(1, 3000), bytes(2, 10), bytes(3, 1)];
        let mut parts = Vec::new();
        for (number, body) in [3, 7, 10_000].into_iter().zip(&bodies) {
            parts.push(setup.part(&upload, number, body).await);
        }
        assert!(setup.fixture.find(get_request(KEY)).await.is_err(), "nothing is there before");
        let done = setup.complete(&upload, &parts.iter().collect::<Vec<_>>()).await.unwrap();
        let md5s: Vec<_> = parts.iter().map(|part| part.md5).collect();
        let checksum = Some(ChecksumHasher::digest(Algorithm::Crc64Nvme, &bodies.concat()));
        assert_eq!(
            done,
            CompletedUpload { etag: Etag::from_parts(&md5s), checksum, version_id: None, encryption: None }
        );
        let (found_object, got) = setup.fixture.find(get_request(KEY)).await.unwrap();
        assert_eq!(got, bodies.concat());
        let object = found_object.version.object.unwrap();
        assert_eq!((object.etag, object.upload), (done.etag, Some(id)));
        assert_eq!((object.headers.len(), object.meta.len()), (1, 1));
        assert!(matches!(setup.parts(&upload, 0, 1).await, Err(Error::NoSuchUpload)));
        assert!(matches!(setup.abort(&upload).await, Err(Error::NoSuchUpload)));
        assert_eq!(setup.partitions(Table::Parts).await, 0);
        assert_eq!(setup.partitions(Table::UploadEntries).await, 0);
    });
}

#[test]
fn a_manifest_of_many_parts_is_read_back() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let mut parts = Vec::new();
        for number in 1..=600 {
            parts.push(setup.part(&upload, number, &bytes(number.into(), 10)).await);
        }
        setup.complete(&upload, &parts.iter().collect::<Vec<_>>()).await.unwrap();
        let expected: Vec<u8> = (1..=600).flat_map(|number| bytes(number, 10)).collect();
        assert_eq!(setup.fixture.find(get_request(KEY)).await.unwrap().1, expected);
        assert_eq!(setup.fixture.blobs().await.len(), 600);
    });
}

#[test]
fn a_repeated_completion_gets_the_same_answer_for_a_day() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let (part_1, part_2) =
            (setup.part(&upload, 1, &bytes(1, 50)).await, setup.part(&upload, 2, &bytes(2, 50)).await);
        let done = setup.complete(&upload, &[&part_1, &part_2]).await.unwrap();
        setup.fixture.put(KEY, &bytes(5, 10)).await;
        let mut again = complete_request(&upload, &[&part_1, &part_2]);
        again.parts[0].etag = again.parts[0].etag.to_uppercase();
        assert_eq!(setup.fixture.objects.uploads.complete(&setup.fixture.owner, again).await.unwrap(), done);
        assert_eq!(setup.fixture.find(get_request(KEY)).await.unwrap().1, bytes(5, 10), "a repeat changes nothing");
        assert!(matches!(setup.complete(&upload, &[&part_1]).await, Err(Error::NoSuchUpload)), "another list");
        tokio::time::sleep(std::time::Duration::from_secs(23 * 3600)).await;
        assert_eq!(setup.complete(&upload, &[&part_1, &part_2]).await.unwrap(), done);
        tokio::time::sleep(std::time::Duration::from_secs(2 * 3600)).await;
        assert!(matches!(setup.complete(&upload, &[&part_1, &part_2]).await, Err(Error::NoSuchUpload)));
    });
}

#[test]
fn a_failed_condition_leaves_the_upload_open() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(1, 50)).await;
        let conditional = async |if_match, if_none_match| {
            let conditions = WriteConditions { if_match, if_none_match, ..WriteConditions::default() };
            let request = CompleteUpload { conditions, ..complete_request(&upload, &[&part]) };
            setup.fixture.objects.uploads.complete(&setup.fixture.owner, request).await
        };
        assert!(matches!(conditional(tag("*"), None).await, Err(Error::NoSuchKey)));
        setup.fixture.put(KEY, &bytes(5, 10)).await;
        let failed = conditional(None, tag("*")).await;
        assert!(matches!(failed, Err(Error::PreconditionFailed("If-None-Match"))), "{failed:?}");
        assert!(matches!(conditional(tag("\"x\""), None).await, Err(Error::PreconditionFailed("If-Match"))));
        assert_eq!(setup.state(&upload).await, Some(UploadState::Open));
        assert_eq!(setup.partitions(Table::Manifests).await, 0);
        assert_eq!(setup.fixture.find(get_request(KEY)).await.unwrap().1, bytes(5, 10));
        conditional(tag("*"), None).await.unwrap();
        assert_eq!(setup.fixture.find(get_request(KEY)).await.unwrap().1, bytes(1, 50));
    });
}

#[test]
fn a_completion_sent_again_was_refused_once_its_object_was_replaced() {
    run(async {
        let setup = UploadSetup::new().await;
        let objects = &setup.fixture.objects;
        let writer = new_caller(objects, "writer").await.with_action(S3Action::PutObject);
        set_policy(&setup.fixture, &writer, &["PutObject"]).await;
        let own = objects.put(&writer, put_request(KEY, &bytes(1, 10))).await.unwrap();
        let own = own.version.object.unwrap().etag.to_string();
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(2, 50)).await;
        let complete = async || {
            let conditions = WriteConditions { if_match: tag(&own), ..WriteConditions::default() };
            let request = CompleteUpload { conditions, ..complete_request(&upload, &[&part]) };
            objects.uploads.complete(&writer, request).await
        };
        setup.fixture.put(KEY, &bytes(3, 10)).await;
        assert!(matches!(complete().await, Err(Error::AccessDenied)), "the tag of what the owner has put is no news");
        objects.put(&writer, put_request(KEY, &bytes(1, 10))).await.unwrap();
        complete().await.unwrap();
        setup.fixture.put(KEY, &bytes(3, 10)).await;
        complete().await.unwrap();
        assert_eq!(setup.fixture.find(get_request(KEY)).await.unwrap().1, bytes(3, 10));
    });
}

#[test]
fn of_two_completions_one_commits() {
    run(async {
        for (same, versions) in [(true, 1), (false, 1)] {
            let setup = UploadSetup::new().await;
            setup.fixture.versioning(Versioning::Enabled).await;
            let upload = setup.begin().await;
            let (part_1, part_2) =
                (setup.part(&upload, 1, &bytes(1, 50)).await, setup.part(&upload, 2, &bytes(2, 50)).await);
            let second: Vec<&Part> = if same { vec![&part_1, &part_2] } else { vec![&part_2] };
            let (first, second) = tokio::join!(
                setup.slow.uploads.complete(&setup.fixture.owner, complete_request(&upload, &[&part_1, &part_2])),
                setup.complete(&upload, &second),
            );
            match (first, second) {
                (Ok(first), Ok(second)) if same => assert_eq!(first, second),
                (Ok(_), Err(Error::NoSuchUpload)) | (Err(Error::NoSuchUpload), Ok(_)) if !same => {}
                others => panic!("{others:?}"),
            }
            assert_eq!(setup.partitions(Table::Manifests).await, versions);
            assert!(!setup.fixture.head(KEY).await.older, "one version");
        }
    });
}

#[test]
fn a_completion_keeps_the_version_before_it() {
    run(async {
        let setup = UploadSetup::new().await;
        setup.fixture.versioning(Versioning::Enabled).await;
        let before = setup.fixture.put(KEY, &bytes(5, 10)).await;
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(1, 50)).await;
        let done = setup.complete(&upload, &[&part]).await.unwrap();
        let (found_object, _) = setup.fixture.find(get_request(KEY)).await.unwrap();
        assert_eq!((found_object.version_id.clone(), true), (done.version_id.clone(), done.version_id.is_some()));
        assert_ne!(found_object.version_id, before.version_id);
        assert!(setup.fixture.head(KEY).await.older);
    });
}

#[test]
fn object_checksums_are_computed_and_checked() {
    run(async {
        for kind in ChecksumKind::ALL {
            let setup = UploadSetup::new().await;
            let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
            let mut create = create_request(KEY);
            create.checksum = Some((Algorithm::Crc32, kind));
            let upload = objects.uploads.create(owner, create).await.unwrap().id.text();
            let bodies = [bytes(1, 50), bytes(2, 60)];
            let mut request = complete_request(&upload, &[]);
            for (number, body) in (1..).zip(&bodies) {
                let sum = ChecksumHasher::digest(Algorithm::Crc32, body);
                let mut upload_body = upload_body(body);
                upload_body.checksum = ChecksumWanted::Given(sum.clone());
                let part = objects.uploads.put_part(owner, &address(&upload, number), upload_body).await.unwrap().part;
                let etag = Etag::from_md5(part.md5).to_string();
                request.parts.push(ListedPart { number: number.into(), etag, checksum: Some(sum) });
            }
            let whole = ChecksumHasher::digest(Algorithm::Crc32, &bodies.concat());
            request.checksum = Some(Checksum { digest: Bytes::from_static(b"1234"), ..whole.clone() });
            let refused = objects.uploads.complete(owner, request.clone()).await;
            assert!(matches!(refused, Err(Error::BadChecksum("CRC32"))), "{refused:?}");
            request.checksum = (kind == ChecksumKind::FullObject).then(|| whole.clone());
            request.length = Some(111);
            assert!(matches!(objects.uploads.complete(owner, request.clone()).await, Err(Error::InvalidRequest(_))));
            request.length = Some(110);
            let done = objects.uploads.complete(owner, request).await.unwrap();
            let checksum = done.checksum.unwrap();
            assert_eq!(checksum.kind(), kind);
            assert_eq!(checksum == whole, kind == ChecksumKind::FullObject);
            let object = setup.fixture.find(get_request(KEY)).await.unwrap().0.version.object.unwrap();
            assert_eq!(object.checksum, Some(checksum));
        }
    });
}

#[test]
fn a_completion_in_a_deleted_bucket_is_refused() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let part = setup.part(&upload, 1, &bytes(1, 50)).await;
        setup.fixture.objects.buckets.delete(&setup.fixture.owner, BUCKET).await.unwrap();
        assert!(matches!(setup.complete(&upload, &[&part]).await, Err(Error::NoSuchBucket(_))));
    });
}

/// Pauses a completion at each of its calls while another client puts the key. Versions sort by id, so the one committed
/// last must have the newest.
#[test]
fn the_version_committed_last_is_the_newest() {
    let mut overtaken = 0;
    for step in 0..40 {
        run(async {
            let setup = UploadSetup::new().await;
            setup.fixture.versioning(Versioning::Enabled).await;
            let upload = setup.begin().await;
            let part = setup.part(&upload, 1, &bytes(1, 50)).await;
            setup.slow.buckets.find(BUCKET).await.unwrap();
            setup.gate.set(Trap::Stop, step);
            let slow = setup.slow.uploads.complete(&setup.fixture.owner, complete_request(&upload, &[&part]));
            let put = async {
                tokio::select! {
                    () = setup.gate.reached() => {}
                    () = tokio::time::sleep(std::time::Duration::from_millis(1)) => {}
                }
                let stored = setup.fixture.put(KEY, &bytes(5, 10)).await;
                setup.gate.open();
                stored.version.id
            };
            let (slow, put) = tokio::join!(slow, put);
            slow.unwrap();
            let current = setup.fixture.head(KEY).await.current.unwrap();
            let is_of_upload = current.object.as_ref().is_some_and(|object| object.upload.is_some());
            overtaken += usize::from(is_of_upload && !setup.gate.clear());
            assert_eq!(is_of_upload, current.id != put);
            assert!(current.id.stamp() >= put.stamp(), "step {step}: an older version is current");
            assert_eq!(setup.partitions(Table::Manifests).await, 1, "step {step}");
        });
    }
    assert!(overtaken > 3, "no completion was overtaken");
}

/// Body lengths of all versions of a bucket, listed in pages of one.
async fn listed_one_by_one(setup: &UploadSetup) -> Vec<u64> {
    let (mut lengths, mut request) = (Vec::new(), ListVersions::default());
    (request.objects.bucket, request.objects.max) = (BUCKET.into(), 1);
    loop {
        let page = setup.fixture.objects.list_versions(&setup.fixture.owner, &request).await.unwrap();
        for line in page.lines {
            let KeyOrPrefix::Key(_, listed) = line else { panic!("{line:?}") };
            lengths.push(listed.version.object.unwrap().length());
        }
        let Some((key, version)) = page.next else { return lengths };
        (request.objects.after, request.version) = (key, version);
    }
}

#[test]
fn a_completed_version_is_the_newest_despite_versioning_changes() {
    for step in 0.. {
        let met = run(async {
            let setup = UploadSetup::new().await;
            let upload = setup.begin().await;
            let part = setup.part(&upload, 1, &bytes(1, 50)).await;
            setup.gate.set(Trap::Stop, step);
            let done = setup.slow.uploads.complete(&setup.fixture.owner, complete_request(&upload, &[&part]));
            let act = async {
                setup.gate.reached().await;
                let mut settled = true;
                for (versioning, length) in [(Versioning::Enabled, 60), (Versioning::Suspended, 70)] {
                    let change = |bucket: &mut Bucket| {
                        bucket.versioning = versioning;
                        Ok(())
                    };
                    // The change waits for a completion that is paused under a guard.
                    let set = setup.fixture.objects.buckets.configure(&setup.fixture.owner, BUCKET, change);
                    settled &= set.await.is_ok();
                    setup.fixture.put(KEY, &bytes(length, length as usize)).await;
                }
                setup.gate.open();
                settled
            };
            let both = async { tokio::join!(done, act) };
            let both = tokio::time::timeout(std::time::Duration::from_secs(300), both).await;
            let Ok((done, settled)) = both else { return false };
            if settled {
                done.unwrap();
                let lengths = listed_one_by_one(&setup).await;
                let current = setup.fixture.find(get_request(KEY)).await.unwrap().0.version.object.unwrap().length();
                assert_eq!(lengths.first(), Some(&current), "step {step}");
                assert!(lengths.contains(&60), "step {step}: {lengths:?}");
            }
            true
        });
        if !met {
            assert!(step > 8);
            break;
        }
    }
}
