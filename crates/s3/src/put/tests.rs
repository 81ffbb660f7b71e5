//! Puts: objects read back as written, and refused ones leave no bytes.

use std::pin::pin;

use larder_core::body::{BodyError, ByteStream};

use super::super::buckets::testing::{anonymous, new_caller, version};
use super::super::commit::testing::{
    BUCKET, BucketFixture, ChunkedBody, bytes, get_request, put_request, run, set_policy, until_it_waits, upload_body,
};
use super::super::copy::CopyObject;
use super::super::get::VersionSpec;
use super::*;
use crate::acl_choice::AclChoice;
use crate::events::{EventOrigin, WriteTerms};
use crate::object_lock::GovernanceBypass;
use crate::rules::checksum::{ChecksumHasher, Md5Hasher};
use crate::rules::{Algorithm, ObjectLock, S3Action, SystemHeader, Tag, Versioning};

fn tag(tag: &str) -> Option<Vec<String>> {
    Some(vec![tag.to_owned()])
}

#[test]
fn objects_are_read_back_with_their_metadata() {
    run(async {
        let fixture = BucketFixture::new().await;
        for length in [0, 1, 1024, 1025, 100_000] {
            let body = bytes(length as u64, length);
            let mut put = put_request("key", &body);
            put.metadata.headers = vec![(SystemHeader::ContentType, Bytes::from_static(b"text/x"))];
            put.metadata.meta = vec![("a".into(), Bytes::from_static(b"b"))];
            put.metadata.tags = vec![Tag { key: "t".into(), value: "v".into() }];
            put.upload_body.md5 = Some(Md5Hasher::digest(&body));
            put.upload_body.checksum = ChecksumWanted::Given(ChecksumHasher::digest(Algorithm::Sha256, &body));
            let stored = fixture.objects.put(&fixture.owner, put).await.unwrap();
            assert_eq!(stored.version_id, None);
            let (found_object, got) = fixture.find(get_request("key")).await.unwrap();
            assert_eq!(got, body);
            assert_eq!(found_object.version, stored.version);
            let object = found_object.version.object.unwrap();
            assert_eq!(object.etag, Etag::from_md5(Md5Hasher::digest(&body)));
            assert_eq!(object.checksum, Some(ChecksumHasher::digest(Algorithm::Sha256, &body)));
            assert_eq!(found_object.version.owner, fixture.owner.id());
            assert_eq!((object.headers.len(), object.meta.len(), object.tags.len()), (1, 1, 1));
            assert_eq!(fixture.blobs().await.len(), usize::from(length > 1024), "the replaced blob is gone");
        }
    });
}

#[test]
fn a_body_that_does_not_match_its_digests_leaves_no_bytes() {
    run(async {
        let fixture = BucketFixture::new().await;
        let other = Bytes::from_static(b"other");
        for length in [10, 5000] {
            let body = bytes(1, length);
            let crc = |bytes: &Bytes| ChecksumHasher::digest(Algorithm::Crc32, bytes);
            let trailer = |name: &str, value: String| Some((name.to_owned(), Bytes::from(value)));
            let whole = || vec![Ok(body.clone())];
            let broken = vec![Ok(body.clone()), Err(BodyError("gone".into()))];
            let of = |left, trailing| Box::new(ChunkedBody { left, trailing });
            let plain = || upload_body(&body);
            let trailing = |trailing| UploadBody {
                stream: of(whole(), trailing),
                checksum: ChecksumWanted::Trailing(Algorithm::Crc32),
                ..plain()
            };
            let header = "x-amz-checksum-crc32";
            let bad: Vec<(UploadBody, &str)> = vec![
                (UploadBody { md5: Some(Md5Hasher::digest(&other)), ..plain() }, "digest"),
                (UploadBody { checksum: ChecksumWanted::Given(crc(&other)), ..plain() }, "checksum"),
                (trailing(trailer(header, crc(&other).text())), "checksum"),
                (trailing(None), "broken"),
                (trailing(trailer("x-amz-checksum-sha1", crc(&body).text())), "broken"),
                (trailing(trailer(header, "?".into())), "invalid"),
                (UploadBody { length: Some(length as u64 + 1), ..plain() }, "broken"),
                (UploadBody { length: Some(length as u64 - 1), ..plain() }, "broken"),
                (UploadBody { stream: of(broken, None), length: None, ..plain() }, "broken"),
                (UploadBody { length: Some(u64::MAX), ..plain() }, "large"),
            ];
            for (upload_body, expected) in bad {
                let put = PutObject { upload_body, ..put_request("key", &body) };
                let kind = match fixture.objects.put(&fixture.owner, put).await.unwrap_err() {
                    Error::BadDigest => "digest",
                    Error::BadChecksum("CRC32") => "checksum",
                    Error::BrokenBody(_) => "broken",
                    Error::InvalidRequest(_) => "invalid",
                    Error::EntityTooLarge { .. } => "large",
                    other => panic!("{other}"),
                };
                assert_eq!(kind, expected);
                assert!(fixture.blobs().await.is_empty(), "{expected}");
                assert!(matches!(fixture.get("key", VersionSpec::Current).await, Err(Error::NoSuchKey)));
            }
            let good = PutObject {
                upload_body: trailing(trailer(&header.to_uppercase(), crc(&body).text())),
                ..put_request("good", &body)
            };
            let stored = fixture.objects.put(&fixture.owner, good).await.unwrap();
            assert_eq!(stored.version.object.unwrap().checksum, Some(crc(&body)));
            fixture.delete("good", &VersionSpec::Current).await;
        }
    });
}

#[test]
fn a_body_longer_than_allowed_is_refused_while_it_arrives() {
    run(async {
        let fixture = BucketFixture::new().await;
        let settings = super::super::ObjectsConfig { put_bytes_max: 2000, ..Default::default() };
        let objects = fixture.stores.gateway_with(settings).await;
        let mut put = put_request("key", &bytes(1, 2001));
        put.upload_body.length = None;
        assert!(matches!(objects.put(&fixture.owner, put).await, Err(Error::EntityTooLarge { max: 2000, .. })));
        assert!(fixture.blobs().await.is_empty());
        objects.put(&fixture.owner, put_request("key", &bytes(1, 2000))).await.unwrap();
    });
}

#[test]
fn write_conditions_test_the_current_version() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (body_1, body_2) = (bytes(1, 3000), bytes(2, 3000));
        let put = async |body: &Bytes, if_match, if_none_match| {
            let conditions = WriteConditions { if_match, if_none_match, ..WriteConditions::default() };
            fixture.objects.put(&fixture.owner, PutObject { conditions, ..put_request("key", body) }).await
        };
        assert!(matches!(put(&body_1, tag("*"), None).await, Err(Error::NoSuchKey)));
        let etag = put(&body_1, None, tag("*")).await.unwrap().version.object.unwrap().etag.to_string();
        assert!(matches!(put(&body_2, None, tag("*")).await, Err(Error::PreconditionFailed("If-None-Match"))));
        assert!(matches!(put(&body_2, tag("x"), None).await, Err(Error::PreconditionFailed("If-Match"))));
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), body_1);
        put(&body_2, tag(&etag), None).await.unwrap();
        assert!(matches!(put(&body_1, tag(&etag), None).await, Err(Error::PreconditionFailed("If-Match"))));
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), body_2);
        assert_eq!(fixture.blobs().await.len(), 1);
        fixture.delete("key", &VersionSpec::Current).await;
        put(&body_1, None, tag("*")).await.unwrap();
    });
}

#[test]
fn of_concurrent_conditional_creates_one_wins() {
    run(async {
        let fixture = BucketFixture::new().await;
        let racers = (0..8_u64).map(|seed| {
            let (objects, owner) = (fixture.objects.clone(), fixture.owner.clone());
            let conditions = WriteConditions { if_none_match: tag("*"), ..WriteConditions::default() };
            tokio::spawn(async move {
                objects.put(&owner, PutObject { conditions, ..put_request("key", &bytes(seed, 2000)) }).await
            })
        });
        let (mut won, mut lost) = (0, 0);
        for racer in racers.collect::<Vec<_>>() {
            match racer.await.unwrap() {
                Ok(_) => won += 1,
                Err(Error::PreconditionFailed(_) | Error::ConditionalConflict) => lost += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((won, lost, fixture.blobs().await.len()), (1, 7, 1));
    });
}

#[test]
fn writers_of_one_key_all_succeed_and_leave_one_body() {
    run(async {
        let fixture = BucketFixture::new().await;
        for versioning in [Versioning::Off, Versioning::Suspended] {
            fixture.versioning(versioning).await;
            let writers = (0..16_u64).map(|seed| {
                let (objects, owner) = (fixture.objects.clone(), fixture.owner.clone());
                tokio::spawn(async move { objects.put(&owner, put_request("key", &bytes(seed, 2000))).await })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.unwrap().unwrap();
            }
            assert_eq!(fixture.blobs().await.len(), 1);
            assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap().len(), 2000);
        }
    });
}

/// Puts that wait for their turn are answered by one that replaces them, but in a bucket that keeps versions [invariant 162].
#[test]
fn puts_that_wait_behind_one_that_replaces_them_are_not_written() {
    run(async {
        let fixture = BucketFixture::new().await;
        for (versioning, written) in [(Versioning::Off, 1), (Versioning::Suspended, 1), (Versioning::Enabled, 16)] {
            fixture.versioning(versioning).await;
            let location = fixture.location("key").await;
            let turn = fixture.turn("key").await;
            let putters: Vec<_> = (0..16_u8)
                .map(|seed| {
                    let (objects, location) = (fixture.objects.clone(), location.clone());
                    let object = version(Timestamp(1), false, Some(100)).object.unwrap();
                    let object = Object { etag: Etag { md5: [seed; 16], parts: None }, ..object };
                    let conditions = WriteConditions::default();
                    let cause = ChangeCause { action: EventAction::Put, origin: EventOrigin::Lifecycle };
                    tokio::spawn(async move {
                        let terms = WriteTerms { conditions: &conditions, cause };
                        objects.put_version(&location, "owner", &object, None, terms).await
                    })
                })
                .collect();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            drop(turn);
            let (mut stored, mut replaced) = (Vec::new(), 0);
            for putter in putters {
                match putter.await.unwrap().unwrap() {
                    (put, PutFate::Stored) => stored.push(put.version.id),
                    (_, PutFate::Replaced) => replaced += 1,
                }
            }
            assert_eq!((stored.len(), replaced), (written, 16 - written), "{versioning:?}");
            let current = fixture.head("key").await.current.unwrap();
            assert_eq!(stored.last().copied(), Some(current.id), "{versioning:?}");
        }
    });
}

#[test]
fn a_put_that_waited_behind_a_conditional_one_was_once_lost() {
    run(async {
        let fixture = BucketFixture::new().await;
        let turn = fixture.turn("key").await;
        let only_new = WriteConditions { if_none_match: Some(vec!["*".to_owned()]), ..WriteConditions::default() };
        let first = PutObject { conditions: only_new, ..put_request("key", &bytes(1, 500)) };
        let mut first = pin!(fixture.objects.put(&fixture.owner, first));
        until_it_waits(first.as_mut()).await;
        let last = bytes(2, 500);
        let mut second = pin!(fixture.put("key", &last));
        until_it_waits(second.as_mut()).await;
        drop(turn);
        let (first, _) = tokio::join!(first, second);
        first.unwrap();
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), last, "it came after the condition held");
    });
}

#[test]
fn a_forbidden_put_is_refused_before_its_body_is_read() {
    run(async {
        let fixture = BucketFixture::new().await;
        let put = || PutObject {
            upload_body: UploadBody {
                stream: Box::new(ChunkedBody { left: vec![Err(BodyError("read".into()))], trailing: None }),
                ..upload_body(&Bytes::new())
            },
            ..put_request("key", &Bytes::new())
        };
        assert!(matches!(fixture.objects.put(&anonymous(S3Action::PutObject), put()).await, Err(Error::AccessDenied)));
        let long = PutObject { key: vec![b'k'; 1025].into(), ..put() };
        assert!(matches!(fixture.objects.put(&fixture.owner, long).await, Err(Error::KeyTooLong(1025))));
        let nowhere = PutObject { bucket: "nowhere".into(), ..put() };
        assert!(matches!(fixture.objects.put(&fixture.owner, nowhere).await, Err(Error::NoSuchBucket(_))));
        assert_eq!(BUCKET, put().bucket);
    });
}

/// The edge runs connections as tasks of a multi-threaded runtime.
#[test]
fn calls_can_be_sent_between_threads() {
    fn assert_send<T: Send>(_: &T) {}
    run(async {
        let fixture = BucketFixture::new().await;
        let key = Bytes::from_static(b"key");
        assert_send(&fixture.objects.put(&fixture.owner, put_request("key", &Bytes::new())));
        assert_send(&fixture.objects.get(&fixture.owner, &get_request("key")));
        let copy = CopyObject {
            source: get_request("key"),
            bucket: BUCKET.into(),
            key: key.clone(),
            replace: None,
            tags: None,
            acl: AclChoice::Private,
            keeps_acl: false,
            own: Vec::new(),
            changes_more: false,
            encryption: crate::encryption::EncryptionChoice::BucketDefault,
            checksum: None,
            lock: ObjectLock::default(),
            conditions: WriteConditions::default(),
        };
        assert_send(&fixture.objects.copy(&fixture.owner, copy));
        assert_send(&fixture.objects.delete(
            &fixture.owner,
            BUCKET,
            &key,
            &VersionSpec::Current,
            None,
            GovernanceBypass::Absent,
        ));
        assert_send(&fixture.objects.put_object_tags(&fixture.owner, BUCKET, &key, &VersionSpec::Current, Vec::new()));
        assert_send(&fixture.objects.object_attributes(&fixture.owner, &get_request("key"), 0, 1));
    });
}

#[test]
fn a_condition_on_a_guessed_tag_told_a_writer_what_it_may_not_read() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (writer, key) = (new_caller(&fixture.objects, "writer").await, Bytes::from_static(b"key"));
        let stored = fixture.put("key", &bytes(1, 10)).await;
        let etag = stored.version.object.unwrap().etag.to_string();
        let put = async |if_match, if_none_match| {
            let conditions = WriteConditions { if_match, if_none_match, ..WriteConditions::default() };
            let writer = writer.with_action(S3Action::PutObject);
            fixture.objects.put(&writer, PutObject { conditions, ..put_request("key", &bytes(2, 10)) }).await
        };
        let delete = async |tags| {
            let (writer, spec) = (writer.with_action(S3Action::DeleteObject), VersionSpec::Current);
            fixture.objects.delete(&writer, BUCKET, &key, &spec, tags, GovernanceBypass::Absent).await
        };
        set_policy(&fixture, &writer, &["PutObject", "DeleteObject"]).await;
        for guess in [&etag, "x"] {
            assert!(matches!(put(tag(guess), None).await, Err(Error::AccessDenied)));
            assert!(matches!(put(None, tag(guess)).await, Err(Error::AccessDenied)));
            assert!(matches!(delete(tag(guess)).await, Err(Error::AccessDenied)));
        }
        // That there is an object, the answer of a put may tell.
        assert!(matches!(put(None, tag("*")).await, Err(Error::PreconditionFailed("If-None-Match"))));
        set_policy(&fixture, &writer, &["PutObject", "DeleteObject", "GetObject"]).await;
        assert!(matches!(delete(tag("x")).await, Err(Error::PreconditionFailed("If-Match"))));
        put(tag(&etag), None).await.unwrap();
        delete(tag("*")).await.unwrap();
    });
}

/// A body that takes so long that the owner replaces the object meanwhile.
struct OverwrittenWhileRead {
    owner: Caller,
    objects: Arc<Objects>,
    secret: Bytes,
    left: Option<Bytes>,
}

#[async_trait::async_trait]
impl ByteStream for OverwrittenWhileRead {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, BodyError>> {
        let body = self.left.take()?;
        self.objects.put(&self.owner, put_request("key", &self.secret)).await.unwrap();
        Some(Ok(body))
    }

    fn trailing(&mut self) -> Option<(String, Bytes)> {
        None
    }
}

#[test]
fn a_slow_put_told_the_tag_of_what_the_owner_put_meanwhile() {
    run(async {
        let fixture = BucketFixture::new().await;
        let writer = new_caller(&fixture.objects, "writer").await.with_action(S3Action::PutObject);
        set_policy(&fixture, &writer, &["PutObject"]).await;
        let secret = bytes(2, 3000);
        for (guess, matches) in [(&secret, true), (&secret, false), (&bytes(3, 3000), true), (&bytes(3, 3000), false)] {
            fixture.delete("key", &VersionSpec::Current).await;
            let stored = fixture.objects.put(&writer, put_request("key", &bytes(1, 3000))).await.unwrap();
            let own = stored.version.object.unwrap().etag.to_string();
            let guess = Etag::from_md5(Md5Hasher::digest(guess)).to_string();
            let conditions = match matches {
                true => WriteConditions { if_match: Some(vec![own, guess]), ..WriteConditions::default() },
                false => WriteConditions { if_none_match: tag(&guess), ..WriteConditions::default() },
            };
            let body = bytes(4, 3000);
            let (owner, objects) = (fixture.owner.clone(), Arc::clone(&fixture.objects));
            let slow = OverwrittenWhileRead { owner, objects, secret: secret.clone(), left: Some(body.clone()) };
            let upload_body = UploadBody { stream: Box::new(slow), ..upload_body(&body) };
            let put = PutObject { conditions, upload_body, ..put_request("key", &body) };
            let late = fixture.objects.put(&writer, put).await;
            assert!(matches!(late, Err(Error::AccessDenied)), "{late:?}");
            assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), secret);
        }
        assert_eq!(fixture.blobs().await.len(), 1, "the refused puts leave no bytes");
    });
}
