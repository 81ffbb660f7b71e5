//! Quotas over gateways of one memory store: what is admitted, and what frees room.

use futures_util::future::join_all;
use larder_core::body::BodyError;

use super::super::buckets::testing::anonymous;
use super::super::commit::testing::{BUCKET, BucketFixture, ChunkedBody, bytes, put_request, run, upload_body};
use super::super::get::VersionSpec;
use super::super::put::{PutObject, UploadBody};
use super::super::uploads::testing::{UploadSetup, complete_request, put_part};
use super::super::{Caller, Objects};
use super::*;
use crate::acl_choice::AclChoice;
use crate::object_lock::GovernanceBypass;
use crate::parts::PartAddress;
use crate::rules::S3Action;

fn quota(objects: Option<u64>, bytes: Option<u64>) -> StorageQuota {
    StorageQuota { objects, bytes }
}

fn bucket() -> QuotaHolder {
    QuotaHolder::Bucket(BUCKET.into())
}

async fn put(objects: &Objects, caller: &Caller, key: &str, length: usize) -> Result<()> {
    objects.put(caller, put_request(key, &bytes(1, length))).await.map(drop)
}

#[track_caller]
fn check_refused<T>(result: Result<T>, text: &str) {
    match result {
        Err(Error::QuotaExceeded(message)) => assert_eq!(message, text),
        Err(other) => panic!("refused as {other}"),
        Ok(_) => panic!("taken"),
    }
}

const USED_UP: &str = "The quota of the bucket bucket is used up: 3 objects, 100 bytes.";

async fn limited() -> BucketFixture {
    let fixture = BucketFixture::new().await;
    fixture.objects.quotas.set(&bucket(), quota(Some(3), Some(100))).await.unwrap();
    fixture
}

#[test]
fn a_full_bucket_takes_nothing_until_something_is_deleted() {
    run(async {
        let fixture = limited().await;
        let BucketFixture { objects, owner, .. } = &fixture;
        for (key, length) in [("a", 50), ("b", 30)] {
            put(objects, owner, key, length).await.unwrap();
        }
        check_refused(put(objects, owner, "c", 21).await, USED_UP);
        put(objects, owner, "c", 20).await.unwrap();
        check_refused(put(objects, owner, "d", 0).await, USED_UP);
        assert_eq!(objects.quotas.stored(&bucket()).await.unwrap().1, Storage { objects: 3, bytes: 100 });
        delete(&fixture, "a", &VersionSpec::Current).await;
        tokio::time::sleep(REFUSAL_AGE_MAX).await;
        put(objects, owner, "d", 50).await.unwrap();
        check_refused(put(objects, owner, "e", 0).await, USED_UP);
        objects.quotas.set(&bucket(), StorageQuota::default()).await.unwrap();
        put(objects, owner, "e", 1000).await.unwrap();
        assert!(objects.quotas.all().await.unwrap().is_empty());
    });
}

#[test]
fn a_full_bucket_takes_an_object_in_the_place_of_a_larger_one() {
    run(async {
        let fixture = limited().await;
        let BucketFixture { objects, owner, .. } = &fixture;
        for key in ["a", "b", "c"] {
            put(objects, owner, key, 30).await.unwrap();
        }
        put(objects, owner, "a", 40).await.unwrap();
        check_refused(put(objects, owner, "a", 41).await, USED_UP);
        fixture.versioning(Versioning::Enabled).await;
        check_refused(put(objects, owner, "a", 1).await, USED_UP);
        delete(&fixture, "a", &VersionSpec::Current).await;
        tokio::time::sleep(REFUSAL_AGE_MAX).await;
        check_refused(put(objects, owner, "a", 1).await, USED_UP);
        delete(&fixture, "a", &VersionSpec::Id("null".into())).await;
        tokio::time::sleep(REFUSAL_AGE_MAX).await;
        put(objects, owner, "a", 40).await.unwrap();
        assert_eq!(objects.quotas.stored(&bucket()).await.unwrap().1, Storage { objects: 3, bytes: 100 });
    });
}

#[test]
fn of_puts_at_once_only_as_many_pass_as_there_is_room() {
    run(async {
        let BucketFixture { objects, owner, .. } = &limited().await;
        let keys: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let ended = join_all(keys.iter().map(|key| put(objects, owner, key, 5))).await;
        assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 3, "{ended:?}");
    });
}

#[test]
fn a_refused_body_is_not_read_and_a_failed_one_gives_its_room_back() {
    run(async {
        let BucketFixture { objects, owner, .. } = &limited().await;
        let broken = |length| PutObject {
            upload_body: UploadBody {
                stream: Box::new(ChunkedBody { left: vec![Err(BodyError("read".into()))], trailing: None }),
                length: Some(length),
                ..upload_body(&Bytes::new())
            },
            ..put_request("key", &Bytes::new())
        };
        for _ in 0..5 {
            check_refused(objects.put(owner, broken(101)).await, USED_UP);
            assert!(matches!(objects.put(owner, broken(100)).await, Err(Error::BrokenBody(_))));
        }
        put(objects, owner, "key", 100).await.unwrap();
    });
}

#[test]
fn a_body_without_an_announced_length_is_counted_when_it_has_come() {
    run(async {
        let fixture = limited().await;
        let of_form = |length| {
            let mut put = put_request("key", &bytes(1, length));
            put.upload_body.length = None;
            fixture.objects.put(&fixture.owner, put)
        };
        check_refused(of_form(5000).await, USED_UP);
        assert!(fixture.blobs().await.is_empty(), "a refused body leaves no bytes");
        of_form(100).await.unwrap();
    });
}

#[test]
fn the_quota_of_a_user_counts_all_its_buckets_whoever_writes() {
    run(async {
        let BucketFixture { objects, owner, .. } = &BucketFixture::new().await;
        objects.buckets.create(owner, "other", AclChoice::Canned("public-read-write".into()), None).await.unwrap();
        let holder = QuotaHolder::User(owner.id().to_owned());
        objects.quotas.set(&holder, quota(Some(2), None)).await.unwrap();
        put(objects, owner, "a", 1).await.unwrap();
        let into_other = |key| PutObject { bucket: "other".into(), ..put_request(key, &bytes(1, 1)) };
        let anyone = anonymous(S3Action::PutObject);
        objects.put(&anyone, into_other("b")).await.unwrap();
        let text = "The quota of the bucket's owner is used up: 2 objects in all its buckets.";
        check_refused(objects.put(&anyone, into_other("c")).await, text);
        check_refused(put(objects, owner, "c", 1).await, text);
        let (quota, stored) = objects.quotas.stored(&holder).await.unwrap();
        assert_eq!((quota, stored), (self::quota(Some(2), None), Storage { objects: 2, bytes: 2 }));
        assert_eq!(objects.quotas.all().await.unwrap(), BTreeMap::from([(holder, quota)]));
    });
}

#[test]
fn parts_count_from_their_upload_on_and_their_object_not_again() {
    run(async {
        let setup = UploadSetup::new().await;
        let BucketFixture { objects, owner, .. } = &setup.fixture;
        objects.quotas.set(&bucket(), quota(Some(1), Some(25))).await.unwrap();
        let (upload, used_up) =
            (setup.begin().await, "The quota of the bucket bucket is used up: 1 objects, 25 bytes.");
        let (ten, six) = (bytes(1, 10), bytes(1, 6));
        let (part_1, part_2) = (setup.part(&upload, 1, &ten).await, setup.part(&upload, 2, &ten).await);
        check_refused(put_part(objects, owner, &upload, 3, &six).await, used_up);
        objects.uploads.complete(owner, complete_request(&upload, &[&part_1, &part_2])).await.unwrap();
        tokio::time::sleep(REFUSAL_AGE_MAX).await;
        assert_eq!(objects.quotas.stored(&bucket()).await.unwrap().1, Storage { objects: 1, bytes: 20 });
        setup.begin_at("other").await;
        assert_eq!(
            objects.quotas.stored(&bucket()).await.unwrap().1.bytes,
            20,
            "an upload without parts holds nothing"
        );
        check_refused(put(objects, owner, "third", 1).await, used_up);
    });
}

#[test]
fn a_part_without_an_announced_length_is_counted_when_it_has_come() {
    run(async {
        let setup = UploadSetup::new().await;
        let BucketFixture { objects, owner, .. } = &setup.fixture;
        objects.quotas.set(&bucket(), quota(None, Some(100))).await.unwrap();
        let upload = setup.begin().await;
        let part = async |number, length| {
            let at = PartAddress {
                bucket: "bucket".into(),
                key: "key".into(),
                upload: upload.clone(),
                number,
                encryption: crate::encryption::EncryptionChoice::default(),
            };
            let body = UploadBody { length: None, ..upload_body(&bytes(1, length)) };
            objects.uploads.put_part(owner, &at, body).await
        };
        check_refused(part(1, 5000).await, "The quota of the bucket bucket is used up: 100 bytes.");
        assert!(setup.fixture.blobs().await.is_empty(), "a refused part leaves no bytes");
        part(1, 100).await.unwrap();
    });
}

#[test]
fn another_gateway_measures_what_this_one_wrote() {
    run(async {
        let BucketFixture { objects, owner, stores } = &limited().await;
        let other = stores.gateway().await;
        put(&other, owner, "a", 1).await.unwrap();
        for key in ["b", "c"] {
            put(objects, owner, key, 1).await.unwrap();
        }
        // The other one counted its own object only; the age of its measurement makes the next write start another.
        tokio::time::sleep(AGE_MAX).await;
        put(&other, owner, "a", 2).await.unwrap();
        tokio::time::sleep(REFUSAL_AGE_MAX).await;
        check_refused(put(&other, owner, "d", 1).await, USED_UP);
    });
}

async fn delete(fixture: &BucketFixture, key: &str, version: &VersionSpec) {
    let key = Bytes::copy_from_slice(key.as_bytes());
    fixture.objects.delete(&fixture.owner, BUCKET, &key, version, None, GovernanceBypass::Absent).await.unwrap();
}
