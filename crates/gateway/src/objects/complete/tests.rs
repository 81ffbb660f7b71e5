//! Uploads become objects.

use larder_model::objects::checksum::Hasher;
use larder_model::objects::{Algorithm, ChecksumKind, Part, SystemHeader};
use larder_store::Table;

use super::super::commit::testing::{BUCKET, bytes, get_of, incoming, run};
use super::super::list::{ListVersions, Listed};
use super::super::put::ChecksumWanted;
use super::super::uploads::testing::{Bench, KEY, Trap, address, complete_of, create_of};
use super::*;

fn tag(tag: &str) -> Option<Vec<String>> {
    Some(vec![tag.to_owned()])
}

#[test]
fn an_upload_becomes_an_object() {
    run(async {
        let bench = Bench::new().await;
        let mut create = create_of(KEY);
        create.about.headers = vec![(SystemHeader::ContentType, Bytes::from_static(b"text/x"))];
        create.about.meta = vec![("a".into(), Bytes::from_static(b"b"))];
        let (id, _) = bench.desk.objects.create_upload(&bench.desk.owner, create).await.unwrap();
        let upload = id.text();
        let bodies = [bytes(1, 3000), bytes(2, 10), bytes(3, 1)];
        let mut parts = Vec::new();
        for (number, body) in [3, 7, 10_000].into_iter().zip(&bodies) {
            parts.push(bench.part(&upload, number, body).await);
        }
        assert!(bench.desk.find(get_of(KEY)).await.is_err(), "nothing is there before");
        let done = bench.complete(&upload, &parts.iter().collect::<Vec<_>>()).await.unwrap();
        let md5s: Vec<_> = parts.iter().map(|part| part.md5).collect();
        assert_eq!(done, Completed { etag: Etag::of_parts(&md5s), checksum: None, version_id: None });
        let (found, got) = bench.desk.find(get_of(KEY)).await.unwrap();
        assert_eq!(got, bodies.concat());
        let object = found.version.object.unwrap();
        assert_eq!((object.etag, object.upload), (done.etag, Some(id)));
        assert_eq!((object.headers.len(), object.meta.len()), (1, 1));
        assert!(matches!(bench.parts(&upload, 0, 1).await, Err(Error::NoSuchUpload)));
        assert!(matches!(bench.abort(&upload).await, Err(Error::NoSuchUpload)));
        assert_eq!(bench.partitions(Table::Parts).await, 0);
        assert_eq!(bench.partitions(Table::UploadEntries).await, 0);
    });
}

#[test]
fn a_manifest_of_many_parts_is_read_back() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let mut parts = Vec::new();
        for number in 1..=600 {
            parts.push(bench.part(&upload, number, &bytes(number.into(), 10)).await);
        }
        bench.complete(&upload, &parts.iter().collect::<Vec<_>>()).await.unwrap();
        let expected: Vec<u8> = (1..=600).flat_map(|number| bytes(number, 10)).collect();
        assert_eq!(bench.desk.find(get_of(KEY)).await.unwrap().1, expected);
        assert_eq!(bench.desk.blobs().await.len(), 600);
    });
}

#[test]
fn a_repeat_is_answered_the_same_for_a_day() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let (one, two) = (bench.part(&upload, 1, &bytes(1, 50)).await, bench.part(&upload, 2, &bytes(2, 50)).await);
        let done = bench.complete(&upload, &[&one, &two]).await.unwrap();
        bench.desk.put(KEY, &bytes(5, 10)).await;
        let mut again = complete_of(&upload, &[&one, &two]);
        again.parts[0].etag = again.parts[0].etag.to_uppercase();
        assert_eq!(bench.desk.objects.complete(&bench.desk.owner, again).await.unwrap(), done);
        assert_eq!(bench.desk.find(get_of(KEY)).await.unwrap().1, bytes(5, 10), "a repeat changes nothing");
        assert!(matches!(bench.complete(&upload, &[&one]).await, Err(Error::NoSuchUpload)), "another list");
        tokio::time::sleep(std::time::Duration::from_secs(23 * 3600)).await;
        assert_eq!(bench.complete(&upload, &[&one, &two]).await.unwrap(), done);
        tokio::time::sleep(std::time::Duration::from_secs(2 * 3600)).await;
        assert!(matches!(bench.complete(&upload, &[&one, &two]).await, Err(Error::NoSuchUpload)));
    });
}

#[test]
fn a_condition_that_fails_leaves_the_upload_open() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let part = bench.part(&upload, 1, &bytes(1, 50)).await;
        let conditional = async |if_match, if_none_match| {
            let conditions = WriteConditions { if_match, if_none_match };
            let request = CompleteUpload { conditions, ..complete_of(&upload, &[&part]) };
            bench.desk.objects.complete(&bench.desk.owner, request).await
        };
        assert!(matches!(conditional(tag("*"), None).await, Err(Error::NoSuchKey)));
        bench.desk.put(KEY, &bytes(5, 10)).await;
        let failed = conditional(None, tag("*")).await;
        assert!(matches!(failed, Err(Error::PreconditionFailed("If-None-Match"))), "{failed:?}");
        assert!(matches!(conditional(tag("\"x\""), None).await, Err(Error::PreconditionFailed("If-Match"))));
        assert_eq!(bench.state(&upload).await, Some(UploadState::Open));
        assert_eq!(bench.partitions(Table::Manifests).await, 0);
        assert_eq!(bench.desk.find(get_of(KEY)).await.unwrap().1, bytes(5, 10));
        conditional(tag("*"), None).await.unwrap();
        assert_eq!(bench.desk.find(get_of(KEY)).await.unwrap().1, bytes(1, 50));
    });
}

#[test]
fn of_two_completions_one_commits() {
    run(async {
        for (same, versions) in [(true, 1), (false, 1)] {
            let bench = Bench::new().await;
            bench.desk.versioning(Versioning::Enabled).await;
            let upload = bench.begin().await;
            let (one, two) = (bench.part(&upload, 1, &bytes(1, 50)).await, bench.part(&upload, 2, &bytes(2, 50)).await);
            let second: Vec<&Part> = if same { vec![&one, &two] } else { vec![&two] };
            let (first, second) = tokio::join!(
                bench.slow.complete(&bench.desk.owner, complete_of(&upload, &[&one, &two])),
                bench.complete(&upload, &second),
            );
            match (first, second) {
                (Ok(first), Ok(second)) if same => assert_eq!(first, second),
                (Ok(_), Err(Error::NoSuchUpload)) | (Err(Error::NoSuchUpload), Ok(_)) if !same => {}
                others => panic!("{others:?}"),
            }
            assert_eq!(bench.partitions(Table::Manifests).await, versions);
            assert!(!bench.desk.head(KEY).await.older, "one version");
        }
    });
}

#[test]
fn versions_are_kept_where_they_are_kept() {
    run(async {
        let bench = Bench::new().await;
        bench.desk.versioning(Versioning::Enabled).await;
        let before = bench.desk.put(KEY, &bytes(5, 10)).await;
        let upload = bench.begin().await;
        let part = bench.part(&upload, 1, &bytes(1, 50)).await;
        let done = bench.complete(&upload, &[&part]).await.unwrap();
        let (found, _) = bench.desk.find(get_of(KEY)).await.unwrap();
        assert_eq!((found.version_id.clone(), true), (done.version_id.clone(), done.version_id.is_some()));
        assert_ne!(found.version_id, before.version_id);
        assert!(bench.desk.head(KEY).await.older);
    });
}

#[test]
fn checksums_of_the_whole_are_made_and_checked() {
    run(async {
        for kind in ChecksumKind::ALL {
            let bench = Bench::new().await;
            let (objects, owner) = (&bench.desk.objects, &bench.desk.owner);
            let mut create = create_of(KEY);
            create.checksum = Some((Algorithm::Crc32, kind));
            let upload = objects.create_upload(owner, create).await.unwrap().0.text();
            let bodies = [bytes(1, 50), bytes(2, 60)];
            let mut request = complete_of(&upload, &[]);
            for (number, body) in (1..).zip(&bodies) {
                let sum = Hasher::of(Algorithm::Crc32, body);
                let mut incoming = incoming(body);
                incoming.checksum = ChecksumWanted::Given(sum.clone());
                let part = objects.put_part(owner, &address(&upload, number), incoming).await.unwrap().part;
                let etag = Etag::of_md5(part.md5).to_string();
                request.parts.push(ListedPart { number: number.into(), etag, checksum: Some(sum) });
            }
            let whole = Hasher::of(Algorithm::Crc32, &bodies.concat());
            request.checksum = Some(Checksum { digest: Bytes::from_static(b"1234"), ..whole.clone() });
            let refused = objects.complete(owner, request.clone()).await;
            assert!(matches!(refused, Err(Error::BadChecksum("CRC32"))), "{refused:?}");
            request.checksum = (kind == ChecksumKind::FullObject).then(|| whole.clone());
            request.length = Some(111);
            assert!(matches!(objects.complete(owner, request.clone()).await, Err(Error::InvalidRequest(_))));
            request.length = Some(110);
            let done = objects.complete(owner, request).await.unwrap();
            let made = done.checksum.unwrap();
            assert_eq!(made.kind(), kind);
            assert_eq!(made == whole, kind == ChecksumKind::FullObject);
            let object = bench.desk.find(get_of(KEY)).await.unwrap().0.version.object.unwrap();
            assert_eq!(object.checksum, Some(made));
        }
    });
}

#[test]
fn a_bucket_that_is_gone_completes_nothing() {
    run(async {
        let bench = Bench::new().await;
        let upload = bench.begin().await;
        let part = bench.part(&upload, 1, &bytes(1, 50)).await;
        bench.desk.objects.delete_bucket(&bench.desk.owner, BUCKET).await.unwrap();
        assert!(matches!(bench.complete(&upload, &[&part]).await, Err(Error::NoSuchBucket(_))));
    });
}

/// Stops a completion at each of its calls while somebody else puts the key: versions sort by their ids, so the one that is
/// committed last must have the newest.
#[test]
fn the_version_committed_last_is_the_newest() {
    let mut overtaken = 0;
    for step in 0..40 {
        run(async {
            let bench = Bench::new().await;
            bench.desk.versioning(Versioning::Enabled).await;
            let upload = bench.begin().await;
            let part = bench.part(&upload, 1, &bytes(1, 50)).await;
            bench.slow.bucket(BUCKET).await.unwrap();
            bench.gate.set(Trap::Stop, step);
            let slow = bench.slow.complete(&bench.desk.owner, complete_of(&upload, &[&part]));
            let put = async {
                tokio::select! {
                    () = bench.gate.reached() => {}
                    () = tokio::time::sleep(std::time::Duration::from_millis(1)) => {}
                }
                let stored = bench.desk.put(KEY, &bytes(5, 10)).await;
                bench.gate.open();
                stored.version.id
            };
            let (slow, put) = tokio::join!(slow, put);
            slow.unwrap();
            let current = bench.desk.head(KEY).await.current.unwrap();
            let made = current.object.as_ref().is_some_and(|object| object.upload.is_some());
            overtaken += usize::from(made && !bench.gate.clear());
            assert_eq!(made, current.id != put);
            assert!(current.id.stamp() >= put.stamp(), "step {step}: an older version is current");
            assert_eq!(bench.partitions(Table::Manifests).await, 1, "step {step}");
        });
    }
    assert!(overtaken > 3, "no completion was overtaken");
}

/// All versions of a bucket by pages of one: body lengths.
async fn listed_one_by_one(bench: &Bench) -> Vec<u64> {
    let (mut lengths, mut request) = (Vec::new(), ListVersions::default());
    (request.objects.bucket, request.objects.max) = (BUCKET.into(), 1);
    loop {
        let page = bench.desk.objects.list_versions(&bench.desk.owner, &request).await.unwrap();
        for line in page.lines {
            let Listed::Key(_, listed) = line else { panic!("{line:?}") };
            lengths.push(listed.version.object.unwrap().length());
        }
        let Some((key, version)) = page.next else { return lengths };
        (request.objects.after, request.version) = (key, version);
    }
}

#[test]
fn a_completed_version_is_newer_than_all_that_stay_whatever_its_bucket_was_meanwhile() {
    for step in 0.. {
        let met = run(async {
            let bench = Bench::new().await;
            let upload = bench.begin().await;
            let part = bench.part(&upload, 1, &bytes(1, 50)).await;
            bench.gate.set(Trap::Stop, step);
            let done = bench.slow.complete(&bench.desk.owner, complete_of(&upload, &[&part]));
            let act = async {
                bench.gate.reached().await;
                let mut settled = true;
                for (versioning, length) in [(Versioning::Enabled, 60), (Versioning::Suspended, 70)] {
                    let change = |bucket: &mut Bucket| {
                        bucket.versioning = versioning;
                        Ok(())
                    };
                    // Who stands still inside a section is waited for.
                    let set = bench.desk.objects.configure(&bench.desk.owner, BUCKET, "s3:PutBucketVersioning", change);
                    settled &= set.await.is_ok();
                    bench.desk.put(KEY, &bytes(length, length as usize)).await;
                }
                bench.gate.open();
                settled
            };
            let both = async { tokio::join!(done, act) };
            let both = tokio::time::timeout(std::time::Duration::from_secs(300), both).await;
            let Ok((done, settled)) = both else { return false };
            if settled {
                done.unwrap();
                let lengths = listed_one_by_one(&bench).await;
                let current = bench.desk.find(get_of(KEY)).await.unwrap().0.version.object.unwrap().length();
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
