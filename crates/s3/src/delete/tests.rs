//! Deletes in all three versioning modes: by example and against a model.

use std::collections::{BTreeMap, BTreeSet};

use larder_rows::keyspace::entry_shard;
use larder_store::{Partition, ReadQuery, Store as _};

use super::super::buckets::testing::{anonymous, new_caller};
use super::super::commit::testing::{BUCKET, BucketFixture, bytes, get_request, id, run, set_policy};
use super::super::copy::CopyObject;
use super::super::put::{ObjectMetadata, WriteConditions};
use super::*;
use crate::object_lock::GovernanceBypass;
use crate::rules::{ListingEntry, ObjectBody, ObjectLock, S3Action, VersionId};

async fn entry(fixture: &BucketFixture, key: &str) -> Option<ListingEntry> {
    let location = fixture.location(key).await;
    let partition = Partition::entries(location.id, entry_shard(&location.key));
    let page =
        fixture.stores.store.read(&partition, &ReadQuery::all(100), &fixture.objects.heads.options()).await.unwrap();
    page.rows.into_iter().find(|row| row.name == location.key).map(|row| ListingEntry::decode(row.value).unwrap())
}

#[test]
fn a_delete_without_versioning_leaves_no_bytes_and_no_entry() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.put("key", &bytes(1, 5000)).await;
        assert_eq!(entry(&fixture, "key").await.unwrap().object.unwrap().length, 5000);
        assert_eq!(fixture.delete("key", &VersionSpec::Current).await, DeletedObject::default());
        assert!(matches!(fixture.get("key", VersionSpec::Current).await, Err(Error::NoSuchKey)));
        assert!(fixture.blobs().await.is_empty());
        assert_eq!(entry(&fixture, "key").await, None);
        assert_eq!(
            fixture.delete("key", &VersionSpec::Current).await,
            DeletedObject::default(),
            "a second time is no error"
        );
        fixture.put("key", &bytes(1, 5000)).await;
        fixture.delete("key", &id("null")).await;
        assert!(fixture.blobs().await.is_empty());
    });
}

#[test]
fn a_head_without_versions_stays_a_day() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.put("key", &bytes(1, 10)).await;
        fixture.delete("key", &VersionSpec::Current).await;
        let partition = fixture.location("key").await.partition();
        let stamp =
            async || fixture.objects.heads.read_head(&partition, &fixture.objects.heads.options()).await.unwrap().stamp;
        assert!(stamp().await.is_some());
        tokio::time::sleep(std::time::Duration::from_secs(24 * 60 * 60 + 1)).await;
        assert_eq!(stamp().await, None);
    });
}

#[test]
fn a_delete_with_if_match_needs_the_current_entity_tag() {
    run(async {
        let fixture = BucketFixture::new().await;
        let key = Bytes::from_static(b"key");
        let delete = async |tag: &str| {
            let tags = Some(vec![tag.to_owned()]);
            fixture
                .objects
                .delete(&fixture.owner, BUCKET, &key, &VersionSpec::Current, tags, GovernanceBypass::Absent)
                .await
        };
        delete("*").await.unwrap();
        fixture.versioning(Versioning::Enabled).await;
        assert_eq!(
            delete("x").await.unwrap(),
            DeletedObject::default(),
            "a missing object counts as deleted: no marker"
        );
        let stored = fixture.put("key", &bytes(1, 10)).await;
        assert!(matches!(delete("x").await, Err(Error::PreconditionFailed("If-Match"))));
        assert!(delete(&stored.version.object.unwrap().etag.to_string()).await.unwrap().marker);
        assert_eq!(delete("*").await.unwrap(), DeletedObject::default());
    });
}

#[test]
fn a_delete_of_a_version_asked_for_the_right_to_read_the_current_one() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.versioning(Versioning::Enabled).await;
        let (old, key) = (fixture.put("key", &bytes(1, 10)).await, Bytes::from_static(b"key"));
        fixture.put("key", &bytes(2, 10)).await;
        let spec = id(&old.version_id.unwrap());
        let caller = new_caller(&fixture.objects, "caller").await.with_action(S3Action::DeleteObject);
        let delete = async |tag: &str| {
            let tags = Some(vec![tag.to_owned()]);
            fixture.objects.delete(&caller, BUCKET, &key, &spec, tags, GovernanceBypass::Absent).await
        };
        set_policy(&fixture, &caller, &["DeleteObjectVersion", "GetObject"]).await;
        assert!(matches!(delete("x").await, Err(Error::AccessDenied)));
        set_policy(&fixture, &caller, &["DeleteObjectVersion", "GetObjectVersion"]).await;
        assert!(matches!(delete("x").await, Err(Error::PreconditionFailed("If-Match"))));
        delete(&old.version.object.unwrap().etag.to_string()).await.unwrap();
    });
}

#[test]
fn deletes_need_permission() {
    run(async {
        let fixture = BucketFixture::new().await;
        fixture.put("key", &bytes(1, 10)).await;
        let key = Bytes::from_static(b"key");
        for spec in [VersionSpec::Current, id("null")] {
            let denied = fixture
                .objects
                .delete(&anonymous(S3Action::DeleteObject), BUCKET, &key, &spec, None, GovernanceBypass::Absent)
                .await;
            assert!(matches!(denied, Err(Error::AccessDenied)));
        }
        let bad = fixture.objects.delete(&fixture.owner, BUCKET, &key, &id("?"), None, GovernanceBypass::Absent).await;
        assert!(matches!(bad, Err(Error::BadVersionId(_))));
        fixture.get("key", VersionSpec::Current).await.unwrap();
    });
}

/// A model of a key: versions, newest first, by id for clients; no body: a delete marker.
#[derive(Default)]
struct KeyModel {
    versions: Vec<(String, Option<Bytes>)>,
}

impl KeyModel {
    fn add(&mut self, id: String, body: Option<Bytes>) {
        self.versions.retain(|(known, _)| *known != id);
        self.versions.insert(0, (id, body));
    }
}

/// A seeded random generator.
struct DeleteRng(u64);

impl DeleteRng {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn a_key_matches_a_simple_model_after_random_changes() {
    for seed in 0..20 {
        run(walk(seed));
    }
}

async fn walk(seed: u64) {
    let fixture = BucketFixture::new().await;
    let (mut dice, mut model, mut mode) = (DeleteRng(seed), KeyModel::default(), Versioning::Off);
    for step in 0..60 {
        if dice.roll(10) == 0 {
            mode = if mode == Versioning::Enabled { Versioning::Suspended } else { Versioning::Enabled };
            fixture.versioning(mode).await;
        }
        let kept = mode != Versioning::Off;
        match dice.roll(6) {
            0 | 1 => {
                let body = bytes(step, [10, 3000][dice.roll(2)]);
                let stored = fixture.put("key", &body).await;
                assert_eq!(stored.version_id.is_some(), kept);
                model.add(stored.version_id.unwrap_or("null".into()), Some(body));
            }
            2 => {
                let deleted = fixture.delete("key", &VersionSpec::Current).await;
                assert_eq!(deleted.marker, kept);
                match deleted.version_id {
                    Some(id) => model.add(id, None),
                    None => model.versions.clear(),
                }
            }
            3 if !model.versions.is_empty() => {
                let (name, body) = model.versions.remove(dice.roll(model.versions.len()));
                let deleted = fixture.delete("key", &id(&name)).await;
                assert_eq!(deleted, DeletedObject { marker: body.is_none(), version_id: kept.then_some(name) });
            }
            4 if !model.versions.is_empty() => copy_onto_itself(&fixture, &mut model, &mut dice).await,
            5 if !model.versions.is_empty() => {
                let (name, body) = model.versions[dice.roll(model.versions.len())].clone();
                let key = Bytes::from_static(b"key");
                let tags = vec![crate::rules::Tag { key: "step".into(), value: step.to_string() }];
                let put = fixture.objects.put_object_tags(&fixture.owner, BUCKET, &key, &id(&name), tags.clone()).await;
                assert_eq!(put.is_ok(), body.is_some());
                if body.is_some() {
                    let got = fixture.objects.object_tags(&fixture.owner, BUCKET, &key, &id(&name)).await.unwrap();
                    assert_eq!(got, (tags, kept.then_some(name)));
                }
            }
            _ => {}
        }
        check(&fixture, &model, &format!("seed {seed} step {step}")).await;
    }
}

async fn copy_onto_itself(fixture: &BucketFixture, model: &mut KeyModel, dice: &mut DeleteRng) {
    let (name, body) = model.versions[dice.roll(model.versions.len())].clone();
    let request = CopyObject {
        source: super::super::get::GetObject { version: id(&name), ..get_request("key") },
        bucket: BUCKET.into(),
        key: Bytes::from_static(b"key"),
        replace: Some(ObjectMetadata::default()),
        tags: None,
        acl: Default::default(),
        keeps_acl: false,
        own: Vec::new(),
        changes_more: false,
        encryption: crate::encryption::EncryptionChoice::BucketDefault,
        checksum: None,
        lock: ObjectLock::default(),
        conditions: WriteConditions::default(),
    };
    match (fixture.objects.copy(&fixture.owner, request).await, body) {
        (Ok(copied), Some(body)) => {
            model.add(copied.stored.version_id.unwrap_or("null".into()), Some(body));
        }
        (Err(Error::InvalidRequest(_)), None) => {}
        (other, _) => panic!("{other:?}"),
    }
}

/// Checks every version, the current one and the listing entry against the model, and that unreferenced blobs are gone.
async fn check(fixture: &BucketFixture, model: &KeyModel, at: &str) {
    let mut named = BTreeSet::new();
    let mut ids = BTreeMap::<VersionId, usize>::new();
    for (name, body) in &model.versions {
        match (fixture.find(super::super::get::GetObject { version: id(name), ..get_request("key") }).await, body) {
            (Ok((found_object, got)), Some(body)) => {
                assert_eq!(got, *body, "{at}");
                *ids.entry(found_object.version.id).or_default() += 1;
                if let ObjectBody::Blob { id, .. } = found_object.version.object.unwrap().body {
                    named.insert(id);
                }
            }
            (Err(Error::DeleteMarker { current: false, .. }), None) => {}
            (other, _) => panic!("{at}: {name}: {other:?}"),
        }
    }
    assert!(ids.values().all(|count| *count == 1), "{at}");
    assert_eq!(fixture.blobs().await, named, "{at}");
    let current = fixture.get("key", VersionSpec::Current).await;
    let listed = entry(fixture, "key").await.map(|entry| entry.object.map(|object| object.length));
    match model.versions.first() {
        Some((_, Some(body))) => {
            assert_eq!(current.unwrap(), *body, "{at}");
            assert_eq!(listed, Some(Some(body.len() as u64)), "{at}");
        }
        Some((_, None)) => {
            assert!(matches!(current, Err(Error::DeleteMarker { current: true, .. })), "{at}");
            assert_eq!(listed, Some(None), "{at}");
        }
        None => {
            assert!(matches!(current, Err(Error::NoSuchKey)), "{at}");
            assert_eq!(listed, None, "{at}");
        }
    }
    let partition = fixture.location("key").await.partition();
    let rows = fixture
        .stores
        .store
        .read(&partition, &ReadQuery::all(100), &fixture.objects.heads.options())
        .await
        .unwrap()
        .rows;
    assert_eq!(rows.iter().filter(|row| !row.name.is_empty()).count(), model.versions.len().saturating_sub(1), "{at}");
    assert_eq!(fixture.head("key").await.older, model.versions.len() > 1, "{at}");
}
