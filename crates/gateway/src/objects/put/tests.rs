//! What is put is read back; what is refused leaves nothing.

use larder_model::objects::Versioning;
use larder_model::objects::checksum::{Hasher, Md5};

use super::super::commit::testing::{BUCKET, Desk, Pieces, bytes, get_of, incoming, put_of, run};
use super::super::copy::CopyObject;
use super::super::get::VersionSpec;
use super::*;
use crate::body::BodyError;

fn tag(tag: &str) -> Option<Vec<String>> {
    Some(vec![tag.to_owned()])
}

#[test]
fn objects_come_back_with_what_was_said_about_them() {
    run(async {
        let desk = Desk::new().await;
        for length in [0, 1, 1024, 1025, 100_000] {
            let body = bytes(length as u64, length);
            let mut put = put_of("key", &body);
            put.about.headers = vec![(SystemHeader::ContentType, Bytes::from_static(b"text/x"))];
            put.about.meta = vec![("a".into(), Bytes::from_static(b"b"))];
            put.about.tags = vec![Tag { key: "t".into(), value: "v".into() }];
            put.incoming.md5 = Some(Md5::of(&body));
            put.incoming.checksum = ChecksumWanted::Given(Hasher::of(Algorithm::Sha256, &body));
            let stored = desk.objects.put(&desk.owner, put).await.unwrap();
            assert_eq!(stored.version_id, None);
            let (found, got) = desk.find(get_of("key")).await.unwrap();
            assert_eq!(got, body);
            assert_eq!(found.version, stored.version);
            let object = found.version.object.unwrap();
            assert_eq!(object.etag, Etag::of_md5(Md5::of(&body)));
            assert_eq!(object.checksum, Some(Hasher::of(Algorithm::Sha256, &body)));
            assert_eq!(found.version.owner, desk.owner.id());
            assert_eq!((object.headers.len(), object.meta.len(), object.tags.len()), (1, 1, 1));
            assert_eq!(desk.blobs().await.len(), usize::from(length > 1024), "what was replaced is gone");
        }
    });
}

#[test]
fn a_body_that_is_not_what_its_client_said_leaves_nothing() {
    run(async {
        let desk = Desk::new().await;
        let other = Bytes::from_static(b"other");
        for length in [10, 5000] {
            let body = bytes(1, length);
            let crc = |bytes: &Bytes| Hasher::of(Algorithm::Crc32, bytes);
            let trailer = |name: &str, value: String| Some((name.to_owned(), Bytes::from(value)));
            let whole = || vec![Ok(body.clone())];
            let broken = vec![Ok(body.clone()), Err(BodyError("gone".into()))];
            let of = |left, trailing| Box::new(Pieces { left, trailing });
            let plain = || incoming(&body);
            let trailing = |trailing| Incoming {
                stream: of(whole(), trailing),
                checksum: ChecksumWanted::Trailing(Algorithm::Crc32),
                ..plain()
            };
            let header = "x-amz-checksum-crc32";
            let bad: Vec<(Incoming, &str)> = vec![
                (Incoming { md5: Some(Md5::of(&other)), ..plain() }, "digest"),
                (Incoming { checksum: ChecksumWanted::Given(crc(&other)), ..plain() }, "checksum"),
                (trailing(trailer(header, crc(&other).text())), "checksum"),
                (trailing(None), "broken"),
                (trailing(trailer("x-amz-checksum-sha1", crc(&body).text())), "broken"),
                (trailing(trailer(header, "?".into())), "invalid"),
                (Incoming { length: Some(length as u64 + 1), ..plain() }, "broken"),
                (Incoming { length: Some(length as u64 - 1), ..plain() }, "broken"),
                (Incoming { stream: of(broken, None), length: None, ..plain() }, "broken"),
                (Incoming { length: Some(u64::MAX), ..plain() }, "large"),
            ];
            for (incoming, expected) in bad {
                let put = PutObject { incoming, ..put_of("key", &body) };
                let kind = match desk.objects.put(&desk.owner, put).await.unwrap_err() {
                    Error::BadDigest => "digest",
                    Error::BadChecksum("CRC32") => "checksum",
                    Error::BrokenBody(_) => "broken",
                    Error::InvalidRequest(_) => "invalid",
                    Error::EntityTooLarge { .. } => "large",
                    other => panic!("{other}"),
                };
                assert_eq!(kind, expected);
                assert!(desk.blobs().await.is_empty(), "{expected}");
                assert!(matches!(desk.get("key", VersionSpec::Current).await, Err(Error::NoSuchKey)));
            }
            let good = PutObject {
                incoming: trailing(trailer(&header.to_uppercase(), crc(&body).text())),
                ..put_of("good", &body)
            };
            let stored = desk.objects.put(&desk.owner, good).await.unwrap();
            assert_eq!(stored.version.object.unwrap().checksum, Some(crc(&body)));
            desk.delete("good", &VersionSpec::Current).await;
        }
    });
}

#[test]
fn a_body_longer_than_allowed_is_refused_while_it_arrives() {
    run(async {
        let desk = Desk::new().await;
        let settings = super::super::ObjectsConfig { put_bytes_max: 2000, ..Default::default() };
        let objects = desk.world.gateway_of(crate::Rules::default(), settings).await;
        let mut put = put_of("key", &bytes(1, 2001));
        put.incoming.length = None;
        assert!(matches!(objects.put(&desk.owner, put).await, Err(Error::EntityTooLarge { max: 2000, .. })));
        assert!(desk.blobs().await.is_empty());
        objects.put(&desk.owner, put_of("key", &bytes(1, 2000))).await.unwrap();
    });
}

#[test]
fn conditions_hold_of_the_current_version() {
    run(async {
        let desk = Desk::new().await;
        let (one, two) = (bytes(1, 3000), bytes(2, 3000));
        let put = async |body: &Bytes, if_match, if_none_match| {
            let conditions = WriteConditions { if_match, if_none_match };
            desk.objects.put(&desk.owner, PutObject { conditions, ..put_of("key", body) }).await
        };
        assert!(matches!(put(&one, tag("*"), None).await, Err(Error::NoSuchKey)));
        let etag = put(&one, None, tag("*")).await.unwrap().version.object.unwrap().etag.to_string();
        assert!(matches!(put(&two, None, tag("*")).await, Err(Error::PreconditionFailed("If-None-Match"))));
        assert!(matches!(put(&two, tag("x"), None).await, Err(Error::PreconditionFailed("If-Match"))));
        assert_eq!(desk.get("key", VersionSpec::Current).await.unwrap(), one);
        put(&two, tag(&etag), None).await.unwrap();
        assert!(matches!(put(&one, tag(&etag), None).await, Err(Error::PreconditionFailed("If-Match"))));
        assert_eq!(desk.get("key", VersionSpec::Current).await.unwrap(), two);
        assert_eq!(desk.blobs().await.len(), 1);
        desk.delete("key", &VersionSpec::Current).await;
        put(&one, None, tag("*")).await.unwrap();
    });
}

#[test]
fn of_those_who_find_nothing_one_wins() {
    run(async {
        let desk = Desk::new().await;
        let racers = (0..8_u64).map(|seed| {
            let (objects, owner) = (desk.objects.clone(), desk.owner.clone());
            let conditions = WriteConditions { if_match: None, if_none_match: tag("*") };
            tokio::spawn(async move {
                objects.put(&owner, PutObject { conditions, ..put_of("key", &bytes(seed, 2000)) }).await
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
        assert_eq!((won, lost, desk.blobs().await.len()), (1, 7, 1));
    });
}

#[test]
fn writers_of_one_key_all_succeed_and_leave_one_body() {
    run(async {
        let desk = Desk::new().await;
        for versioning in [Versioning::Off, Versioning::Suspended] {
            desk.versioning(versioning).await;
            let writers = (0..16_u64).map(|seed| {
                let (objects, owner) = (desk.objects.clone(), desk.owner.clone());
                tokio::spawn(async move { objects.put(&owner, put_of("key", &bytes(seed, 2000))).await })
            });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.unwrap().unwrap();
            }
            assert_eq!(desk.blobs().await.len(), 1);
            assert_eq!(desk.get("key", VersionSpec::Current).await.unwrap().len(), 2000);
        }
    });
}

#[test]
fn who_may_not_is_refused_before_the_body_is_read() {
    run(async {
        let desk = Desk::new().await;
        let put = || PutObject {
            incoming: Incoming {
                stream: Box::new(Pieces { left: vec![Err(BodyError("read".into()))], trailing: None }),
                ..incoming(&Bytes::new())
            },
            ..put_of("key", &Bytes::new())
        };
        assert!(matches!(desk.objects.put(&Caller::default(), put()).await, Err(Error::AccessDenied)));
        let long = PutObject { key: vec![b'k'; 1025].into(), ..put() };
        assert!(matches!(desk.objects.put(&desk.owner, long).await, Err(Error::KeyTooLong(1025))));
        let nowhere = PutObject { bucket: "nowhere".into(), ..put() };
        assert!(matches!(desk.objects.put(&desk.owner, nowhere).await, Err(Error::NoSuchBucket(_))));
        assert_eq!(BUCKET, put().bucket);
    });
}

/// Connections are served by tasks of a runtime with several threads.
#[test]
fn calls_can_be_sent_between_threads() {
    fn sent<T: Send>(_: &T) {}
    run(async {
        let desk = Desk::new().await;
        let key = Bytes::from_static(b"key");
        sent(&desk.objects.put(&desk.owner, put_of("key", &Bytes::new())));
        sent(&desk.objects.get(&desk.owner, &get_of("key")));
        let copy = CopyObject {
            source: get_of("key"),
            bucket: BUCKET.into(),
            key: key.clone(),
            replace: None,
            tags: None,
            acl: AclChoice::Private,
            own: Vec::new(),
            changes_more: false,
            checksum: None,
            conditions: WriteConditions::default(),
        };
        sent(&desk.objects.copy(&desk.owner, copy));
        sent(&desk.objects.delete(&desk.owner, BUCKET, &key, &VersionSpec::Current, None));
        sent(&desk.objects.put_object_tags(&desk.owner, BUCKET, &key, &VersionSpec::Current, Vec::new()));
        sent(&desk.objects.object_attributes(&desk.owner, &get_of("key"), 0, 1));
    });
}
