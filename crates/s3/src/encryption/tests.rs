//! Encrypted objects, from put to get: what is stored, which key opens it, and what a copy makes of it.

use bytes::Bytes;
use larder_store::Blobs as _;

use super::{EncryptionChoice, EncryptionError};
use crate::Error;
use crate::acl_choice::AclChoice;
use crate::commit::testing::{BUCKET, BucketFixture, bytes, get_request, put_request, read_all, run, upload_body};
use crate::copy::CopyObject;
use crate::get::{GetObject, ReadConditions, ReadWindow, VersionSpec};
use crate::parts::ListParts;
use crate::put::{PutObject, StoredVersion, WriteConditions};
use crate::rules::checksum::Md5Hasher;
use crate::rules::encryption::{BucketEncryption, EncryptionKind};
use crate::rules::{Etag, ObjectBody, ObjectLock};
use crate::uploads::testing::{KEY, UploadSetup, complete_request, create_request, parts_request};
use larder_encryption::SecretKey;
use larder_encryption::sealed_body::{CHUNK_BYTES, sealed_length};

pub(super) const A: SecretKey = SecretKey::new([1; 32]);
const B: SecretKey = SecretKey::new([2; 32]);

pub(super) fn encrypted(body: &Bytes, encryption: EncryptionChoice) -> PutObject {
    let mut request = put_request(KEY, body);
    request.metadata.encryption = encryption;
    request
}

async fn put(fixture: &BucketFixture, body: &Bytes, encryption: EncryptionChoice) -> StoredVersion {
    fixture.objects.put(&fixture.owner, encrypted(body, encryption)).await.unwrap()
}

pub(super) fn get_with(key: Option<SecretKey>) -> GetObject {
    GetObject { customer_key: key, ..get_request(KEY) }
}

/// The error of a get or head, which are the same.
async fn refusal(fixture: &BucketFixture, key: Option<SecretKey>) -> EncryptionError {
    let read = fixture.find(get_with(key)).await.map(|_| ());
    let head = fixture.objects.head(&fixture.owner, &get_with(key)).await.map(|_| ());
    match (read, head) {
        (Err(Error::Encryption(read)), Err(Error::Encryption(head))) if read == head => read,
        other => panic!("{other:?}"),
    }
}

#[test]
fn encrypted_bodies_of_all_sizes_come_back_and_are_not_stored_plain() {
    run(async {
        for choice in [EncryptionChoice::Server, EncryptionChoice::Customer(A)] {
            let key = (choice != EncryptionChoice::Server).then_some(A);
            for length in [0, 1, 500, 5_000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 9] {
                let fixture = BucketFixture::new().await;
                let body = bytes(length as u64, length);
                let stored = put(&fixture, &body, choice).await.version.object.unwrap();
                assert_eq!(stored.length(), length as u64);
                let secret = match &stored.body {
                    ObjectBody::Inline(sealed) => sealed.clone(),
                    ObjectBody::Blob { id, length } => {
                        let mut blob = fixture.stores.store.open(*id).await.unwrap();
                        assert_eq!(blob.length(), sealed_length(*length));
                        assert_eq!(stored.blob(), Some((*id, blob.length())));
                        blob.read(0, usize::MAX).await.unwrap()
                    }
                    ObjectBody::Parts { .. } => panic!("parts"),
                };
                let sample = &body[..length.min(40)];
                assert!(length < 8 || !secret.windows(sample.len()).any(|window| window == sample), "{length}");
                assert_eq!(fixture.find(get_with(key)).await.unwrap().1, body, "{choice:?} {length}");
            }
        }
    });
}

#[test]
fn a_range_reads_the_bytes_of_the_client() {
    run(async {
        let fixture = BucketFixture::new().await;
        let length = 2 * CHUNK_BYTES + 100;
        let body = bytes(3, length);
        put(&fixture, &body, EncryptionChoice::Server).await;
        let edges = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, length - 1];
        for first in edges {
            for last in edges.into_iter().filter(|last| *last >= first) {
                let window = ReadWindow::Range(first as u64, Some(last as u64));
                let request = GetObject { window, ..get_request(KEY) };
                let (found, reader) = fixture.objects.get(&fixture.owner, &request).await.unwrap();
                assert_eq!(found.window, first as u64..last as u64 + 1);
                for_sizes(&fixture, &request, &body[first..=last]).await;
                assert_eq!(read_all(reader, 1 << 20).await.unwrap(), body[first..=last], "{first} {last}");
            }
        }
    });
}

async fn for_sizes(fixture: &BucketFixture, request: &GetObject, expected: &[u8]) {
    for at_once in [70_000, 200_000] {
        let (_, reader) = fixture.objects.get(&fixture.owner, request).await.unwrap();
        assert_eq!(read_all(reader, at_once).await.unwrap(), expected);
    }
}

#[test]
fn an_object_under_a_customers_key_opens_with_that_key_alone() {
    run(async {
        let fixture = BucketFixture::new().await;
        for length in [10, 5_000] {
            let body = bytes(1, length);
            let stored = put(&fixture, &body, EncryptionChoice::Customer(A)).await.version.object.unwrap();
            assert_ne!(stored.etag, Etag::from_md5(Md5Hasher::digest(&body)), "the MD5 is not shown");
            let again = put(&fixture, &body, EncryptionChoice::Customer(A)).await.version.object.unwrap();
            assert_ne!(stored.etag, again.etag, "nor that two objects are equal");
            assert_eq!(fixture.find(get_with(Some(A))).await.unwrap().1, body);
            assert_eq!(refusal(&fixture, None).await, EncryptionError::CustomerKeyNeeded);
            assert_eq!(refusal(&fixture, Some(B)).await, EncryptionError::OtherCustomerKey);
            // A condition says nothing to those without the key.
            let conditions = ReadConditions { if_none_match: Some(vec!["*".into()]), ..ReadConditions::default() };
            let request = GetObject { conditions, ..get_with(Some(B)) };
            let refused = fixture.objects.head(&fixture.owner, &request).await.unwrap_err();
            assert!(matches!(refused, Error::Encryption(EncryptionError::OtherCustomerKey)), "{refused}");
            put(&fixture, &body, EncryptionChoice::Server).await;
            assert_eq!(refusal(&fixture, Some(A)).await, EncryptionError::NotApplicable);
            put(&fixture, &body, EncryptionChoice::BucketDefault).await;
            assert_eq!(refusal(&fixture, Some(A)).await, EncryptionError::NotApplicable);
        }
    });
}

#[test]
fn a_bucket_encrypts_by_default_and_may_refuse_customers_keys() {
    run(async {
        let fixture = BucketFixture::new().await;
        let body = bytes(1, 100);
        let set = |encryption| {
            fixture.objects.buckets.configure(&fixture.owner, BUCKET, move |bucket| {
                bucket.encryption = encryption;
                Ok(())
            })
        };
        let kind = |stored: StoredVersion| stored.version.object.unwrap().encryption_kind();
        assert_eq!(kind(put(&fixture, &body, EncryptionChoice::BucketDefault).await), None);
        let default = BucketEncryption { encrypts: true, ..BucketEncryption::default() };
        set(Some(default)).await.unwrap();
        let stored = put(&fixture, &body, EncryptionChoice::BucketDefault).await;
        assert_eq!(kind(stored), Some(EncryptionKind::Server));
        assert_eq!(fixture.get(KEY, VersionSpec::Current).await.unwrap(), body);
        set(Some(BucketEncryption { blocks_customer_keys: Some(true), ..default })).await.unwrap();
        let request = encrypted(&body, EncryptionChoice::Customer(A));
        let refused = fixture.objects.put(&fixture.owner, request).await.unwrap_err();
        assert!(matches!(refused, Error::Encryption(EncryptionError::CustomerKeysBlocked)), "{refused}");
    });
}

#[test]
fn objects_outlive_a_rotation_and_a_missing_key_is_named() {
    run(async {
        let fixture = BucketFixture::new().await;
        let body = bytes(1, 100);
        put(&fixture, &body, EncryptionChoice::Server).await;
        let ring = &fixture.objects.keys.ring;
        let [first] = ring.ids()[..] else { panic!("one key") };
        ring.rotate(larder_testkit::unique_bytes).await.unwrap();
        assert_eq!(fixture.get(KEY, VersionSpec::Current).await.unwrap(), body);
        // Another gateway that was started with another ring.
        let other = fixture.stores.gateway().await;
        let error = other.get(&fixture.owner, &get_request(KEY)).await.unwrap_err();
        let Error::Encryption(EncryptionError::MissingMasterKey(id)) = &error else { panic!("{error}") };
        assert_eq!(*id, first.to_string());
    });
}

#[test]
fn an_upload_is_encrypted_as_it_began() {
    run(async {
        for choice in [EncryptionChoice::Server, EncryptionChoice::Customer(A), EncryptionChoice::BucketDefault] {
            let setup = UploadSetup::new().await;
            let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
            let mut create = create_request(KEY);
            create.metadata.encryption = choice;
            let created = objects.uploads.create(owner, create).await.unwrap();
            let upload = created.id.text();
            let key = matches!(choice, EncryptionChoice::Customer(_)).then_some(A);
            let at = |number, encryption| crate::parts::PartAddress {
                encryption,
                ..crate::uploads::testing::address(&upload, number)
            };
            let bodies = [bytes(1, CHUNK_BYTES + 50), Bytes::new(), bytes(2, 70)];
            let mut parts = Vec::new();
            for (number, body) in [1, 3, 4].into_iter().zip(&bodies) {
                if number == 3 {
                    continue;
                }
                let stored = objects.uploads.put_part(owner, &at(number, choice), upload_body(body)).await.unwrap();
                assert_eq!(stored.encryption, created.encryption);
                let is_md5 = stored.part.md5 == Md5Hasher::digest(body);
                assert_eq!(is_md5, key.is_none(), "the MD5 under a customer's key is not shown");
                parts.push(stored.part);
            }
            for (other, expected) in [
                (key.map_or(EncryptionChoice::Customer(A), |_| EncryptionChoice::Server), EncryptionError::PartDiffers),
                (
                    EncryptionChoice::Customer(B),
                    key.map_or(EncryptionError::PartDiffers, |_| EncryptionError::PartKeyDiffers),
                ),
            ] {
                let refused =
                    objects.uploads.put_part(owner, &at(1, other), upload_body(&bodies[0])).await.unwrap_err();
                assert!(matches!(&refused, Error::Encryption(error) if *error == expected), "{choice:?} {refused}");
                // A listing with another key was once answered.
                let list = |encryption| ListParts { encryption, ..parts_request(&upload, 0, 10) };
                let refused = objects.uploads.list_parts(owner, &list(other)).await.unwrap_err();
                assert!(matches!(&refused, Error::Encryption(error) if *error == expected), "{choice:?} {refused}");
                assert_eq!(objects.uploads.list_parts(owner, &list(choice)).await.unwrap().page.parts.len(), 2);
            }
            let listed: Vec<_> = parts.iter().collect();
            let mut complete = complete_request(&upload, &listed);
            complete.encryption = EncryptionChoice::Customer(B);
            assert!(objects.uploads.complete(owner, complete).await.is_err());
            let done = objects.uploads.complete(owner, complete_request(&upload, &listed)).await.unwrap();
            assert_eq!(done.encryption, created.encryption);
            let whole = [&bodies[0][..], &bodies[2]].concat();
            assert_eq!(setup.fixture.find(get_with(key)).await.unwrap().1, whole);
            let middle = GetObject { window: ReadWindow::Range(65_530, Some(65_600)), ..get_with(key) };
            assert_eq!(setup.fixture.find(middle).await.unwrap().1, whole[65_530..=65_600]);
            let second = GetObject { window: ReadWindow::Part(2), ..get_with(key) };
            assert_eq!(setup.fixture.find(second).await.unwrap().1, bodies[2]);
        }
    });
}

#[test]
fn a_part_that_asks_for_encryption_was_stored_plain_in_a_plain_upload() {
    run(async {
        let setup = UploadSetup::new().await;
        let (objects, owner) = (&setup.fixture.objects, &setup.fixture.owner);
        let upload = setup.begin().await;
        let encryption = EncryptionChoice::Server;
        let at = crate::parts::PartAddress { encryption, ..crate::uploads::testing::address(&upload, 1) };
        let refused = objects.uploads.put_part(owner, &at, upload_body(&bytes(1, 30))).await.unwrap_err();
        assert!(matches!(refused, Error::Encryption(EncryptionError::PartDiffers)), "{refused}");
    });
}

#[test]
fn a_copy_has_the_encryption_of_its_request() {
    run(async {
        let fixture = BucketFixture::new().await;
        let all = [EncryptionChoice::BucketDefault, EncryptionChoice::Server, EncryptionChoice::Customer(A)];
        let secret = |choice| if let EncryptionChoice::Customer(key) = choice { Some(key) } else { None };
        for from in all {
            for to in [EncryptionChoice::BucketDefault, EncryptionChoice::Server, EncryptionChoice::Customer(B)] {
                for target in ["other", KEY] {
                    let body = bytes(1, 5_000);
                    put(&fixture, &body, from).await;
                    let copy = CopyObject {
                        source: get_with(secret(from)),
                        bucket: BUCKET.into(),
                        key: Bytes::from_static(target.as_bytes()),
                        replace: Some(crate::put::ObjectMetadata::default()),
                        tags: None,
                        acl: AclChoice::Private,
                        keeps_acl: false,
                        own: Vec::new(),
                        changes_more: false,
                        encryption: to,
                        lock: ObjectLock::default(),
                        checksum: None,
                        conditions: WriteConditions::default(),
                    };
                    let copied = fixture.objects.copy(&fixture.owner, copy).await.unwrap();
                    let object = copied.stored.version.object.unwrap();
                    let is_md5 = object.etag == Etag::from_md5(Md5Hasher::digest(&body));
                    assert_eq!(is_md5, secret(to).is_none());
                    let request = GetObject { customer_key: secret(to), ..get_request(target) };
                    assert_eq!(fixture.find(request).await.unwrap().1, body, "{from:?} {to:?} {target}");
                }
            }
        }
    });
}

#[test]
fn a_damaged_chunk_is_damage_and_no_wrong_bytes() {
    run(async {
        let fixture = BucketFixture::new().await;
        let stored = put(&fixture, &bytes(1, 100), EncryptionChoice::Server).await;
        let mut version = stored.version;
        let object = version.object.as_mut().unwrap();
        let ObjectBody::Inline(sealed) = &object.body else { panic!("a blob") };
        let mut sealed = sealed.to_vec();
        sealed[7] ^= 1;
        object.body = ObjectBody::Inline(sealed.into());
        let bucket = fixture.objects.buckets.find(BUCKET).await.unwrap();
        crate::buckets::testing::write_versions(&fixture.objects, &bucket, KEY.as_bytes(), &[version]).await;
        let error = fixture.get(KEY, VersionSpec::Current).await.unwrap_err();
        assert!(matches!(error, Error::Gateway(larder_core::Error::Damaged(_))), "{error}");
    });
}
