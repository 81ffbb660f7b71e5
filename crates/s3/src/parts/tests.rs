//! Parts: put, replaced, copied, and listed in pages.

use std::sync::Arc;

use larder_rows::hash::id64;
use larder_store::Table;

use super::super::buckets::testing::{anonymous, new_caller};
use super::super::commit::testing::{BUCKET, bytes, get_request, run, upload_body};
use super::super::put::ChecksumWanted;
use super::super::uploads::testing::{KEY, Trap, UploadSetup, address, create_request, parts_request, put_part};
use super::*;
use crate::rules::checksum::{ChecksumHasher, Md5Hasher};
use crate::rules::policy::BucketPolicy;
use crate::rules::{Checksum, Permission, S3Action, UploadId};

#[test]
fn pages_of_parts_match_a_model() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let mut model = std::collections::BTreeMap::new();
        for at in 0..60_u64 {
            let random = id64(&[&at.to_be_bytes()]);
            let number = [1, 10_000, (random % 10_000) as u16 + 1, (random % 12) as u16 + 1][at as usize % 4];
            let body = bytes(random, (random % 40) as usize);
            model.insert(number, setup.part(&upload, number, &body).await);
        }
        for max in [0, 1, 2, 5, 10, 1000] {
            for after in [0, 1, 2, 7, 11, 12, 5000, 9999, 10_000, 10_001, u32::from(u16::MAX), u32::MAX] {
                let page = setup.parts(&upload, after, max).await.unwrap().page;
                let following: Vec<_> =
                    model.range(after.min(20_000) as u16..).filter(|(n, _)| u32::from(**n) > after).collect();
                let expected: Vec<_> = following.iter().take(max).map(|(_, part)| (*part).clone()).collect();
                assert_eq!(page.next_marker, expected.last().map_or(0, |part| part.number), "{after} {max}");
                assert_eq!(page.parts, expected, "{after} {max}");
                assert_eq!(page.truncated, max > 0 && following.len() > max, "{after} {max}");
            }
        }
    });
}

#[test]
fn a_page_costs_two_reads_whatever_the_upload_holds() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let mut costs = Vec::new();
        for count in [1, 10, 300] {
            for number in 1..=count {
                setup.part(&upload, number, &Bytes::from_static(b"x")).await;
            }
            setup.slow.buckets.find(BUCKET).await.unwrap();
            let before = setup.gate.reads();
            setup.slow.uploads.list_parts(&setup.fixture.owner, &parts_request(&upload, 0, 10)).await.unwrap();
            costs.push(setup.gate.reads() - before);
        }
        assert_eq!(costs, [2, 2, 2]);
    });
}

#[test]
fn a_replaced_part_keeps_its_bytes_until_the_upload_ends() {
    run(async {
        let setup = UploadSetup::new().await;
        let upload = setup.begin().await;
        let first = setup.part(&upload, 1, &bytes(1, 50)).await;
        let second = setup.part(&upload, 1, &bytes(2, 60)).await;
        assert_eq!(setup.parts(&upload, 0, 9).await.unwrap().page.parts, std::slice::from_ref(&second));
        assert_ne!(first.blob, second.blob);
        assert_eq!(setup.fixture.blobs().await.len(), 2, "a running completion may use the first one");
        assert!(matches!(setup.complete(&upload, &[&first]).await, Err(Error::InvalidPart { number: 1, .. })));
        setup.complete(&upload, &[&second]).await.unwrap();
        assert_eq!(setup.fixture.blobs().await, second.blob.into_iter().collect());
        assert_eq!(setup.partitions(Table::Parts).await, 0);
    });
}

#[test]
fn of_two_parts_the_one_finished_last_wins() {
    run(async {
        let setup = UploadSetup::new().await;
        let (upload, owner) = (setup.begin().await, &setup.fixture.owner);
        // Paused at the second read of the upload: its body has arrived, and it finished first.
        let (first, second) = (bytes(1, 50), bytes(2, 60));
        setup.gate.set(Trap::Stop, 1);
        let slow = put_part(&setup.slow, owner, &upload, 1, &first);
        let fast = async {
            setup.gate.reached().await;
            let part = setup.part(&upload, 1, &second).await;
            setup.gate.open();
            part
        };
        let (slow, fast) = tokio::join!(slow, fast);
        slow.unwrap();
        assert_eq!(setup.parts(&upload, 0, 9).await.unwrap().page.parts, [fast]);
    });
}

/// Pauses a part at each of its calls, ends the upload, and resumes the part.
#[test]
fn a_part_finished_after_the_upload_leaves_no_bytes() {
    run(async {
        for aborted in [true, false] {
            for step in 0.. {
                let setup = UploadSetup::new().await;
                let (upload, owner, late) = (setup.begin().await, &setup.fixture.owner, bytes(9, 70));
                let kept = setup.part(&upload, 1, &bytes(1, 50)).await;
                setup.slow.buckets.find(BUCKET).await.unwrap();
                setup.gate.set(Trap::Stop, step);
                let slow = put_part(&setup.slow, owner, &upload, 2, &late);
                let end = async {
                    tokio::select! {
                        () = setup.gate.reached() => {}
                        () = tokio::time::sleep(std::time::Duration::from_millis(1)) => {}
                    }
                    if aborted {
                        setup.abort(&upload).await.unwrap();
                    } else {
                        setup.complete(&upload, &[&kept]).await.unwrap();
                    }
                    setup.gate.open();
                };
                let (slow, ()) = tokio::join!(slow, end);
                let untouched = setup.gate.clear();
                let stays: std::collections::BTreeSet<_> = kept.blob.into_iter().filter(|_| !aborted).collect();
                assert_eq!(setup.fixture.blobs().await, stays, "step {step}");
                assert_eq!(setup.partitions(Table::Parts).await, 0, "step {step}");
                if untouched {
                    slow.unwrap();
                    assert!(step > 3, "the part asked the store {step} times");
                    break;
                }
                assert!(matches!(slow, Err(Error::NoSuchUpload)), "step {step}: {slow:?}");
            }
        }
    });
}

/// The client times out and sends a part again. The first one replaces the second, and the list may name either.
#[test]
fn a_late_part_the_object_uses_is_kept() {
    let mut used = 0;
    for step in 0..8 {
        run(async {
            let setup = UploadSetup::new().await;
            let (upload, owner, body) = (setup.begin().await, &setup.fixture.owner, bytes(1, 50));
            let second = setup.part(&upload, 1, &body).await;
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            setup.slow.buckets.find(BUCKET).await.unwrap();
            setup.gate.set(Trap::Stop, step);
            let slow = put_part(&setup.slow, owner, &upload, 1, &body);
            let end = async {
                tokio::select! {
                    () = setup.gate.reached() => {}
                    () = tokio::time::sleep(std::time::Duration::from_millis(1)) => {}
                }
                setup.complete(&upload, &[&second]).await.unwrap();
                setup.gate.open();
            };
            let (slow, ()) = tokio::join!(slow, end);
            assert_eq!(setup.fixture.find(get_request(KEY)).await.unwrap().1, body, "step {step}");
            assert_eq!(setup.fixture.blobs().await.len(), 1, "step {step}");
            if let Ok(slow) = slow {
                assert_eq!(setup.fixture.blobs().await, slow.blob.into_iter().collect(), "step {step}");
                used += usize::from(!setup.gate.clear());
            }
        });
    }
    assert!(used > 0, "at no step was the part paused and used");
}

#[test]
fn parts_have_the_checksum_of_their_upload() {
    let (crc, sha) = (Algorithm::Crc32, Algorithm::Sha256);
    let of = |algorithm| ChecksumWanted::Given(ChecksumHasher::digest(algorithm, b"x"));
    let ok = |upload, part: ChecksumWanted| part_checksum(Some(upload), part).unwrap();
    let full = (crc, ChecksumKind::FullObject);
    let composite = (crc, ChecksumKind::Composite);
    assert_eq!(ok(full, ChecksumWanted::Default), ChecksumWanted::Compute(crc));
    assert_eq!(ok(full, of(crc)), of(crc));
    assert_eq!(ok(composite, of(crc)), of(crc));
    assert_eq!(ok(composite, ChecksumWanted::Trailing(crc)), ChecksumWanted::Trailing(crc));
    assert_eq!(part_checksum(None, of(sha)).unwrap(), of(sha));
    for (upload, part) in [(composite, ChecksumWanted::Default), (full, of(sha)), (composite, of(sha))] {
        assert!(matches!(part_checksum(Some(upload), part), Err(Error::InvalidRequest(_))));
    }
}

#[test]
fn parts_that_do_not_match_their_digests_are_refused() {
    run(async {
        let setup = UploadSetup::new().await;
        let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
        let mut create = create_request(KEY);
        create.checksum = Some((Algorithm::Crc32, ChecksumKind::Composite));
        let upload = objects.uploads.create(owner, create).await.unwrap().id.text();
        let body = bytes(1, 30);
        let put = |change: fn(&mut UploadBody)| {
            let mut upload_body = upload_body(&body);
            upload_body.checksum = ChecksumWanted::Given(ChecksumHasher::digest(Algorithm::Crc32, &body));
            change(&mut upload_body);
            let at = address(&upload, 1);
            async move { objects.uploads.put_part(owner, &at, upload_body).await }
        };
        let bad = |it: &mut UploadBody| {
            it.checksum = ChecksumWanted::Given(Checksum::full(Algorithm::Crc32, Bytes::from_static(b"1234")));
        };
        assert!(matches!(put(bad).await, Err(Error::BadChecksum("CRC32"))));
        assert!(matches!(put(|it| it.md5 = Some([0; 16])).await, Err(Error::BadDigest)));
        assert!(matches!(put(|it| it.checksum = ChecksumWanted::Default).await, Err(Error::InvalidRequest(_))));
        assert!(setup.fixture.blobs().await.is_empty(), "a refused part leaves no blob");
        let StoredPart { part, checksum, .. } =
            put(|it| it.md5 = Some(Md5Hasher::digest(&bytes(1, 30)))).await.unwrap();
        assert_eq!(checksum, Some(ChecksumHasher::digest(Algorithm::Crc32, &body)));
        assert_eq!(part.checksum, checksum.map(|checksum| checksum.digest));
        assert_eq!(setup.parts(&upload, 0, 1).await.unwrap().page.parts, [part]);
    });
}

#[test]
fn four_byte_checksums_of_parts_are_in_the_answers() {
    run(async {
        let setup = UploadSetup::new().await;
        let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
        let body = bytes(1, 30);
        setup.fixture.put("source", &body).await;
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c] {
            let mut create = create_request(KEY);
            create.checksum = Some((algorithm, ChecksumKind::FullObject));
            let upload = objects.uploads.create(owner, create).await.unwrap().id.text();
            let put = objects.uploads.put_part(owner, &address(&upload, 1), upload_body(&body)).await.unwrap();
            let copy = objects.copy_part(owner, &get_request("source"), &address(&upload, 2)).await.unwrap().0;
            for checksum in [put.checksum, copy.checksum] {
                assert_eq!(checksum, Some(ChecksumHasher::digest(algorithm, &body)));
            }
        }
    });
}

#[test]
fn an_upload_of_another_key_takes_no_parts() {
    run(async {
        let setup = UploadSetup::new().await;
        let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
        let elsewhere = setup.begin_at("elsewhere").await.text();
        let unknown = UploadId([9; 16]).text();
        for upload in [&*elsewhere, &*unknown, "", "x", "é"] {
            let refused = put_part(objects, owner, upload, 1, &bytes(1, 10)).await;
            assert!(matches!(refused, Err(Error::NoSuchUpload)), "{upload}");
            assert!(matches!(setup.parts(upload, 0, 10).await, Err(Error::NoSuchUpload)), "{upload}");
        }
        let mut nowhere = parts_request(&elsewhere, 0, 1);
        nowhere.bucket = "nowhere".into();
        assert!(matches!(objects.uploads.list_parts(owner, &nowhere).await, Err(Error::NoSuchBucket(_))));
        assert!(setup.fixture.blobs().await.is_empty());
    });
}

#[test]
fn the_bucket_owner_and_the_initiator_list_parts() {
    run(async {
        let setup = UploadSetup::new().await;
        let objects = &setup.fixture.objects;
        let (initiator, stranger) = (new_caller(objects, "initiator").await, new_caller(objects, "stranger").await);
        let id = initiator.id().to_owned();
        let change = move |bucket: &mut crate::rules::Bucket| {
            let grantee = crate::rules::Grantee::User(id.clone());
            bucket.acl.grants = vec![crate::rules::Grant { grantee, permission: Permission::Write }];
            Ok(())
        };
        objects.buckets.configure(&setup.fixture.owner, BUCKET, change).await.unwrap();
        let upload = objects.uploads.create(&initiator, create_request(KEY)).await.unwrap().id.text();
        put_part(objects, &initiator, &upload, 1, &bytes(1, 10)).await.unwrap();
        let list = parts_request(&upload, 0, 10);
        assert_eq!(objects.uploads.list_parts(&initiator, &list).await.unwrap().page.parts.len(), 1);
        assert_eq!(objects.uploads.list_parts(&setup.fixture.owner, &list).await.unwrap().page.parts.len(), 1);
        for caller in [stranger, anonymous(S3Action::PutObject)] {
            let lister = caller.with_action(S3Action::ListMultipartUploadParts);
            assert!(matches!(objects.uploads.list_parts(&lister, &list).await, Err(Error::AccessDenied)));
            let refused = put_part(objects, &caller, &upload, 2, &bytes(1, 10)).await;
            assert!(matches!(refused, Err(Error::AccessDenied)));
        }
    });
}

#[test]
fn a_deny_of_the_policy_was_skipped_for_the_initiator() {
    run(async {
        let setup = UploadSetup::new().await;
        let objects = &setup.fixture.objects;
        let initiator = new_caller(objects, "initiator").await;
        let statement = |effect: &str, actions: &str| {
            format!(
                r#"{{"Effect":"{effect}","Principal":"*","Action":[{actions}],"Resource":"arn:aws:s3:::{BUCKET}/*"}}"#
            )
        };
        let denied = statement("Deny", r#""s3:ListMultipartUploadParts","s3:AbortMultipartUpload""#);
        let text = format!(r#"{{"Statement":[{},{denied}]}}"#, statement("Allow", r#""s3:PutObject""#));
        let policy = Arc::new(BucketPolicy::parse(BUCKET, &text).unwrap());
        let change = move |bucket: &mut crate::rules::Bucket| {
            bucket.policy = Some(policy.clone());
            Ok(())
        };
        objects.buckets.configure(&setup.fixture.owner, BUCKET, change).await.unwrap();
        let upload = objects.uploads.create(&initiator, create_request(KEY)).await.unwrap().id.text();
        let lister = initiator.with_action(S3Action::ListMultipartUploadParts);
        let listed = objects.uploads.list_parts(&lister, &parts_request(&upload, 0, 10)).await;
        assert!(matches!(listed, Err(Error::AccessDenied)));
        let aborter = initiator.with_action(S3Action::AbortMultipartUpload);
        let aborted = objects.uploads.abort(&aborter, BUCKET, &KEY.into(), &upload, None).await;
        assert!(matches!(aborted, Err(Error::AccessDenied)));
    });
}

#[test]
fn parts_are_copied_from_objects() {
    run(async {
        let setup = UploadSetup::new().await;
        let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
        let body = bytes(3, 5000);
        setup.fixture.put("source", &body).await;
        let upload = setup.begin().await;
        let source = |window| GetObject { window, ..get_request("source") };
        let copy = async |number, window| objects.copy_part(owner, &source(window), &address(&upload, number)).await;
        let (StoredPart { part: whole, .. }, version) = copy(1, ReadWindow::Whole).await.unwrap();
        assert_eq!((whole.length, version), (5000, None));
        let (StoredPart { part: some, .. }, _) = copy(2, ReadWindow::Range(100, Some(4999))).await.unwrap();
        assert_eq!(some.md5, Md5Hasher::digest(&body[100..]));
        for (first, last) in [(0, 5000), (4999, 5000), (5000, 5000), (9000, 9001)] {
            let refused = copy(3, ReadWindow::Range(first, Some(last))).await;
            let Err(Error::InvalidArgument { argument, value, message }) = refused else { panic!("{refused:?}") };
            assert_eq!((argument, value), (RequestArgument::CopyRange, format!("bytes={first}-{last}")));
            assert!(message.contains("5000"), "{message}");
        }
        let missing = objects.copy_part(owner, &get_request("missing"), &address(&upload, 3)).await;
        assert!(matches!(missing, Err(Error::NoSuchKey)));
        setup.complete(&upload, &[&whole, &some]).await.unwrap();
        let (_, got) = setup.fixture.find(get_request(KEY)).await.unwrap();
        assert_eq!(got, [&body[..], &body[100..]].concat());
    });
}
