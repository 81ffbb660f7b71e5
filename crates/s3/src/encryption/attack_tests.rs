//! A disk in wrong hands: encrypted bytes that are changed, cut, or moved to another place open nowhere, and no read answers them.

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Blobs as _, Durability};

use super::EncryptionChoice;
use super::tests::{A, encrypted, get_with};
use crate::buckets::testing::write_versions;
use crate::commit::testing::{BUCKET, BucketFixture, bytes, get_request, put_request, run, upload_body};
use crate::get::GetObject;
use crate::parts::PartAddress;
use crate::rules::Version;
use crate::uploads::testing::{KEY, UploadSetup, address, complete_request, create_request};
use larder_encryption::SecretKey;
use larder_encryption::sealed_body::{CHUNK_BYTES, TAG_BYTES};

const SEALED_CHUNK: usize = CHUNK_BYTES + TAG_BYTES;

/// A body as it is stored.
struct StoredBlob {
    id: BlobId,
    owner: BlobOwner,
    bytes: Bytes,
}

/// Encrypted objects whose bodies have one length, and their stored bytes.
struct AttackedStore {
    fixture: BucketFixture,
    key: Option<SecretKey>,
    objects: Vec<(&'static str, Bytes)>,
    blobs: Vec<StoredBlob>,
}

impl AttackedStore {
    /// Two objects, and one of two parts.
    async fn new(choice: EncryptionChoice) -> Self {
        let UploadSetup { fixture, .. } = UploadSetup::new().await;
        let length = 2 * CHUNK_BYTES + 77;
        let mut objects = Vec::new();
        for (number, name) in ["one", "two"].into_iter().enumerate() {
            let body = bytes(number as u64, length);
            let mut request = put_request(name, &body);
            request.metadata.encryption = choice;
            fixture.objects.put(&fixture.owner, request).await.unwrap();
            objects.push((name, body));
        }
        let mut create = create_request(KEY);
        create.metadata.encryption = choice;
        let upload = fixture.objects.uploads.create(&fixture.owner, create).await.unwrap().id.text();
        let (mut parts, mut whole) = (Vec::new(), Vec::new());
        for number in [1, 2] {
            let body = bytes(10 + u64::from(number), length);
            let at = PartAddress { encryption: choice, ..address(&upload, number) };
            parts.push(fixture.objects.uploads.put_part(&fixture.owner, &at, upload_body(&body)).await.unwrap().part);
            whole.extend_from_slice(&body);
        }
        let listed: Vec<_> = parts.iter().collect();
        fixture.objects.uploads.complete(&fixture.owner, complete_request(&upload, &listed)).await.unwrap();
        objects.push((KEY, whole.into()));
        let key = matches!(choice, EncryptionChoice::Customer(_)).then_some(A);
        let mut store = Self { fixture, key, objects, blobs: Vec::new() };
        store.blobs = store.stored().await;
        assert_eq!((store.blobs.len(), store.refused().await), (4, 0));
        store
    }

    async fn stored(&self) -> Vec<StoredBlob> {
        let store = &self.fixture.stores.store;
        let mut all = Vec::new();
        for listed in store.list(None, 100).await.unwrap() {
            let bytes = store.open(listed.id).await.unwrap().read(0, usize::MAX).await.unwrap();
            all.push(StoredBlob { id: listed.id, owner: listed.owner, bytes });
        }
        all
    }

    /// Stores other bytes in the place of a body, and counts the objects that are refused then. Puts its own bytes back.
    async fn refused_with(&self, blob: &StoredBlob, other: Bytes) -> usize {
        self.write(blob, other).await;
        let refused = self.refused().await;
        self.write(blob, blob.bytes.clone()).await;
        refused
    }

    async fn write(&self, blob: &StoredBlob, other: Bytes) {
        let mut writer = self.fixture.stores.store.create(blob.id, blob.owner.clone()).await.unwrap();
        writer.write(other).await.unwrap();
        drop(writer.finish(Durability::Buffered).await.unwrap());
    }

    /// How many objects are refused; the others are read as they were put.
    async fn refused(&self) -> usize {
        let mut refused = 0;
        for (name, body) in &self.objects {
            let request = GetObject { customer_key: self.key, ..get_request(name) };
            match self.fixture.find(request).await {
                Ok((_, found)) => assert!(found == *body, "{name} is answered with other bytes"),
                Err(_) => refused += 1,
            }
        }
        refused
    }
}

#[test]
fn bodies_that_change_places_are_refused() {
    run(async {
        for choice in [EncryptionChoice::Server, EncryptionChoice::Customer(A)] {
            let store = AttackedStore::new(choice).await;
            for (number, blob) in store.blobs.iter().enumerate() {
                for (from, other) in store.blobs.iter().enumerate().filter(|(from, _)| *from != number) {
                    let refused = store.refused_with(blob, other.bytes.clone()).await;
                    assert_eq!(refused, 1, "{choice:?}: body {from} in the place of {number}");
                }
            }
        }
    });
}

#[test]
fn chunks_that_change_places_and_bits_that_flip_are_refused() {
    run(async {
        for choice in [EncryptionChoice::Server, EncryptionChoice::Customer(A)] {
            let store = AttackedStore::new(choice).await;
            let (blob, other) = (&store.blobs[0], &store.blobs[1]);
            let chunk = |blob: &StoredBlob, index: usize| {
                blob.bytes.slice(index * SEALED_CHUNK..((index + 1) * SEALED_CHUNK).min(blob.bytes.len()))
            };
            let swapped = [chunk(blob, 1), chunk(blob, 0), chunk(blob, 2)].concat();
            let foreign = [chunk(blob, 0), chunk(other, 1), chunk(blob, 2)].concat();
            let cut = [chunk(blob, 0), chunk(blob, 1)].concat();
            let twice = [chunk(blob, 0), chunk(blob, 0), chunk(blob, 2)].concat();
            for (what, bytes) in [("swapped", swapped), ("foreign", foreign), ("cut", cut), ("twice", twice)] {
                assert_eq!(store.refused_with(blob, bytes.into()).await, 1, "{choice:?}: {what}");
            }
            for at in [0, 5, SEALED_CHUNK - 1, SEALED_CHUNK, 2 * SEALED_CHUNK + 3, blob.bytes.len() - 1] {
                let mut bytes = blob.bytes.to_vec();
                bytes[at] ^= 1 << (at % 8);
                assert_eq!(store.refused_with(blob, bytes.into()).await, 1, "{choice:?}: a bit of byte {at}");
            }
        }
    });
}

/// Stores the current version of a key that another key has.
async fn put_in_place(fixture: &BucketFixture, version: Version) {
    let bucket = fixture.objects.buckets.find(BUCKET).await.unwrap();
    write_versions(&fixture.objects, &bucket, KEY.as_bytes(), &[version]).await;
}

#[test]
fn a_sealed_body_in_the_row_of_another_object_is_refused() {
    run(async {
        for choice in [EncryptionChoice::Server, EncryptionChoice::Customer(A)] {
            let fixture = BucketFixture::new().await;
            let key = matches!(choice, EncryptionChoice::Customer(_)).then_some(A);
            let put = async |number| {
                let request = encrypted(&bytes(number, 300), choice);
                fixture.objects.put(&fixture.owner, request).await.unwrap().version
            };
            let (first, second) = (put(1).await, put(2).await);
            put_in_place(&fixture, first.clone()).await;
            assert_eq!(fixture.find(get_with(key)).await.unwrap().1, bytes(1, 300), "its own");
            let mut mixed = second;
            let body = first.object.unwrap().body;
            mixed.object.as_mut().unwrap().body = body;
            put_in_place(&fixture, mixed).await;
            assert!(fixture.find(get_with(key)).await.is_err(), "{choice:?}");
        }
    });
}
