//! Imports: versions keep what they were, and what clients write here stays.

use super::*;
use crate::commit::testing::{BUCKET, BucketFixture, bytes, get_request, id, run, upload_body};
use crate::get::VersionSpec;
use crate::rules::{Retention, RetentionMode};

const LONG_AGO: Timestamp = Timestamp(1_500_000_000_123_000);

fn place(after: Option<VersionId>) -> ImportPlace {
    ImportPlace { bucket: BUCKET.into(), key: "key".into(), after, actor: ActorId(99) }
}

fn identity(number: u64) -> ImportedIdentity {
    let etag = Etag { md5: [7; 16], parts: Some(3) };
    ImportedIdentity { etag: Some(etag), modified: Timestamp(LONG_AGO.0 + number), null: false }
}

fn marker(number: u64) -> ImportedIdentity {
    ImportedIdentity { etag: None, ..identity(number) }
}

fn object(body: &Bytes) -> ImportedObject {
    ImportedObject { metadata: ObjectMetadata::default(), upload_body: upload_body(body) }
}

impl BucketFixture {
    async fn import(&self, after: Option<VersionId>, number: u64, body: &Bytes) -> ImportFate {
        self.objects.import(&place(after), identity(number), object(body)).await.unwrap()
    }

    async fn current(&self) -> Option<Version> {
        self.objects.current_version(BUCKET, &"key".into()).await.unwrap()
    }
}

fn imported(fate: ImportFate) -> VersionId {
    match fate {
        ImportFate::Imported(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_imported_object_keeps_its_tag_and_time() {
    run(async {
        let fixture = BucketFixture::new().await;
        for (number, length) in [10, 100_000].into_iter().enumerate() {
            let (after, body) = (fixture.current().await.map(|current| current.id), bytes(1, length));
            let id = imported(fixture.import(after, number as u64, &body).await);
            let (found, got) = fixture.find(get_request("key")).await.unwrap();
            assert_eq!((found.version.id, found.version.modified, got), (id, identity(number as u64).modified, body));
            assert_eq!(found.version.object.unwrap().etag, identity(0).etag.unwrap());
            assert_eq!(found.version.owner, fixture.owner.id());
        }
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

#[test]
fn what_a_client_wrote_meanwhile_stays() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (old, own, new) = (bytes(1, 5000), bytes(2, 5000), bytes(3, 5000));
        let id = imported(fixture.import(None, 1, &old).await);
        fixture.put("key", &own).await;
        assert_eq!(fixture.import(Some(id), 2, &new).await, ImportFate::Kept);
        assert_eq!(fixture.objects.import_marker(&place(Some(id)), marker(3)).await.unwrap(), ImportFate::Kept);
        assert_eq!(fixture.objects.remove_imported(&place(Some(id))).await.unwrap(), ImportFate::Kept);
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), own);
        fixture.delete("key", &VersionSpec::Current).await;
        assert_eq!(fixture.import(Some(id), 2, &new).await, ImportFate::Kept, "deleted here");
        assert_eq!(fixture.objects.remove_imported(&place(Some(id))).await.unwrap(), ImportFate::Removed);
        assert_eq!(fixture.blobs().await.len(), 0);
    });
}

#[test]
fn an_import_that_nobody_noted_is_found_again() {
    run(async {
        let fixture = BucketFixture::new().await;
        let body = bytes(1, 5000);
        let id = imported(fixture.import(None, 1, &body).await);
        assert_eq!(fixture.import(None, 1, &body).await, ImportFate::Imported(id));
        fixture.versioning(Versioning::Enabled).await;
        let hidden = fixture.objects.import_marker(&place(Some(id)), marker(2)).await.unwrap();
        assert_eq!(fixture.objects.import_marker(&place(Some(id)), marker(2)).await.unwrap(), hidden);
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

#[test]
fn an_unnoted_import_that_its_source_has_replaced_was_once_taken_for_a_clients_write() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (old, new) = (bytes(1, 5000), bytes(2, 5000));
        imported(fixture.import(None, 1, &old).await);
        // Nobody noted it.
        imported(fixture.import(None, 2, &new).await);
        assert_eq!(fixture.get("key", VersionSpec::Current).await.unwrap(), new);
        assert_eq!(fixture.objects.remove_imported(&place(None)).await.unwrap(), ImportFate::Removed);
        assert_eq!(fixture.blobs().await.len(), 0);
    });
}

#[test]
fn versions_come_in_their_order_and_a_deletion_hides_them() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.versioning(Versioning::Enabled).await;
        let mut after = None;
        let mut ids = Vec::new();
        for number in 0..3 {
            after = Some(imported(fixture.import(after, number, &bytes(number, 2000)).await));
            ids.extend(after);
        }
        let hidden = imported(fixture.objects.import_marker(&place(after), marker(3)).await.unwrap());
        assert!(fixture.get("key", VersionSpec::Current).await.is_err());
        for (number, version) in ids.iter().enumerate() {
            assert_eq!(fixture.get("key", id(&version.text())).await.unwrap(), bytes(number as u64, 2000));
        }
        let last = imported(fixture.import(Some(hidden), 4, &bytes(4, 2000)).await);
        imported(fixture.objects.remove_imported(&place(Some(last))).await.unwrap());
        assert!(fixture.get("key", VersionSpec::Current).await.is_err());
        assert_eq!(fixture.get("key", id(&last.text())).await.unwrap(), bytes(4, 2000));
    });
}

#[test]
fn a_key_that_the_source_has_no_more_gives_its_space_back() {
    run(async {
        let fixture = BucketFixture::new().await;
        let id = imported(fixture.import(None, 1, &bytes(1, 5000)).await);
        assert_eq!(fixture.objects.remove_imported(&place(Some(id))).await.unwrap(), ImportFate::Removed);
        assert_eq!((fixture.current().await, fixture.blobs().await.len()), (None, 0));
    });
}

#[test]
fn a_lock_needs_a_bucket_with_object_lock_and_wrong_bytes_leave_none() {
    run(async {
        let fixture = BucketFixture::new().await;
        let body = bytes(1, 5000);
        let retention = Retention { mode: RetentionMode::Compliance, until: LONG_AGO };
        let mut locked = object(&body);
        locked.metadata.lock = ObjectLock { retention: Some(retention), legal_hold: None };
        let refused = fixture.objects.import(&place(None), identity(1), locked).await;
        assert!(matches!(refused, Err(Error::InvalidRequest(_))), "{refused:?}");
        let mut wrong = object(&body);
        wrong.upload_body.md5 = Some([9; 16]);
        let refused = fixture.objects.import(&place(None), identity(1), wrong).await;
        assert!(matches!(refused, Err(Error::BadDigest)), "{refused:?}");
        assert_eq!((fixture.current().await, fixture.blobs().await.len()), (None, 0));
    });
}
