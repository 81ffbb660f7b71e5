//! What remains of a key after deletes, in all three modes: by hand, and against a model.

use std::collections::{BTreeMap, BTreeSet};

use larder_model::objects::{Entry, ObjectBody, VersionId};
use larder_store::{Partition, ReadQuery, Store as _};

use super::super::commit::testing::{BUCKET, Desk, bytes, get_of, id, run};
use super::super::copy::CopyObject;
use super::super::put::{About, WriteConditions};
use super::*;
use larder_model::keyspace::entry_shard;

async fn entry(desk: &Desk, key: &str) -> Option<Entry> {
    let place = desk.place(key).await;
    let partition = Partition::entries(place.id, entry_shard(&place.key));
    let page = desk.world.store.read(&partition, &ReadQuery::all(100), &desk.objects.options()).await.unwrap();
    page.rows.into_iter().find(|row| row.name == place.key).map(|row| Entry::decode(row.value).unwrap())
}

#[test]
fn without_versions_nothing_is_left() {
    run(async {
        let desk = Desk::new().await;
        desk.put("key", &bytes(1, 5000)).await;
        assert_eq!(entry(&desk, "key").await.unwrap().object.unwrap().length, 5000);
        assert_eq!(desk.delete("key", &VersionSpec::Current).await, Deleted::default());
        assert!(matches!(desk.get("key", VersionSpec::Current).await, Err(Error::NoSuchKey)));
        assert!(desk.blobs().await.is_empty());
        assert_eq!(entry(&desk, "key").await, None);
        assert_eq!(desk.delete("key", &VersionSpec::Current).await, Deleted::default(), "a second time is no error");
        desk.put("key", &bytes(1, 5000)).await;
        desk.delete("key", &id("null")).await;
        assert!(desk.blobs().await.is_empty());
    });
}

#[test]
fn a_head_without_versions_stays_a_day() {
    run(async {
        let desk = Desk::new().await;
        desk.put("key", &bytes(1, 10)).await;
        desk.delete("key", &VersionSpec::Current).await;
        let partition = desk.place("key").await.partition();
        let stamp = async || desk.objects.read_head(&partition, &desk.objects.options()).await.unwrap().stamp;
        assert!(stamp().await.is_some());
        tokio::time::sleep(std::time::Duration::from_secs(24 * 60 * 60 + 1)).await;
        assert_eq!(stamp().await, None);
    });
}

#[cfg(feature = "rules")]
#[test]
fn without_its_rule_the_head_goes_at_once() {
    run(async {
        let desk = Desk::with(crate::Rules::without(crate::Rule::KeepDeletedHeads)).await;
        desk.put("key", &bytes(1, 10)).await;
        desk.delete("key", &VersionSpec::Current).await;
        let partition = desk.place("key").await.partition();
        assert_eq!(desk.objects.read_head(&partition, &desk.objects.options()).await.unwrap().stamp, None);
    });
}

#[test]
fn a_delete_may_name_what_it_deletes() {
    run(async {
        let desk = Desk::new().await;
        let key = Bytes::from_static(b"key");
        let delete = async |tag: &str| {
            let tags = Some(vec![tag.to_owned()]);
            desk.objects.delete(&desk.owner, BUCKET, &key, &VersionSpec::Current, tags).await
        };
        delete("*").await.unwrap();
        desk.versioning(Versioning::Enabled).await;
        assert_eq!(delete("x").await.unwrap(), Deleted::default(), "nothing is as good as deleted: no marker");
        let stored = desk.put("key", &bytes(1, 10)).await;
        assert!(matches!(delete("x").await, Err(Error::PreconditionFailed("If-Match"))));
        assert!(delete(&stored.version.object.unwrap().etag.to_string()).await.unwrap().marker);
        assert_eq!(delete("*").await.unwrap(), Deleted::default());
    });
}

#[test]
fn only_who_may_deletes() {
    run(async {
        let desk = Desk::new().await;
        desk.put("key", &bytes(1, 10)).await;
        let key = Bytes::from_static(b"key");
        for spec in [VersionSpec::Current, id("null")] {
            let denied = desk.objects.delete(&Caller::default(), BUCKET, &key, &spec, None).await;
            assert!(matches!(denied, Err(Error::AccessDenied)));
        }
        let bad = desk.objects.delete(&desk.owner, BUCKET, &key, &id("?"), None).await;
        assert!(matches!(bad, Err(Error::BadVersionId(_))));
        desk.get("key", VersionSpec::Current).await.unwrap();
    });
}

/// A key as it should be: versions, newest first, by the ids clients know; no body: a marker.
#[derive(Default)]
struct Model {
    versions: Vec<(String, Option<Bytes>)>,
}

impl Model {
    fn add(&mut self, id: String, body: Option<Bytes>) {
        self.versions.retain(|(known, _)| *known != id);
        self.versions.insert(0, (id, body));
    }
}

/// A walk of a seed: numbers below a bound.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn a_key_is_what_a_simple_model_says_after_any_changes() {
    for seed in 0..20 {
        run(walk(seed));
    }
}

async fn walk(seed: u64) {
    let desk = Desk::new().await;
    let (mut dice, mut model, mut mode) = (Dice(seed), Model::default(), Versioning::Off);
    for step in 0..60 {
        if dice.roll(10) == 0 {
            mode = if mode == Versioning::Enabled { Versioning::Suspended } else { Versioning::Enabled };
            desk.versioning(mode).await;
        }
        let kept = mode != Versioning::Off;
        match dice.roll(6) {
            0 | 1 => {
                let body = bytes(step, [10, 3000][dice.roll(2)]);
                let stored = desk.put("key", &body).await;
                assert_eq!(stored.version_id.is_some(), kept);
                model.add(stored.version_id.unwrap_or("null".into()), Some(body));
            }
            2 => {
                let deleted = desk.delete("key", &VersionSpec::Current).await;
                assert_eq!(deleted.marker, kept);
                match deleted.version_id {
                    Some(id) => model.add(id, None),
                    None => model.versions.clear(),
                }
            }
            3 if !model.versions.is_empty() => {
                let (name, body) = model.versions.remove(dice.roll(model.versions.len()));
                let deleted = desk.delete("key", &id(&name)).await;
                assert_eq!(deleted, Deleted { marker: body.is_none(), version_id: kept.then_some(name) });
            }
            4 if !model.versions.is_empty() => copy_onto_itself(&desk, &mut model, &mut dice).await,
            5 if !model.versions.is_empty() => {
                let (name, body) = model.versions[dice.roll(model.versions.len())].clone();
                let key = Bytes::from_static(b"key");
                let tags = vec![larder_model::objects::Tag { key: "step".into(), value: step.to_string() }];
                let put = desk.objects.put_object_tags(&desk.owner, BUCKET, &key, &id(&name), tags.clone()).await;
                assert_eq!(put.is_ok(), body.is_some());
                if body.is_some() {
                    let got = desk.objects.object_tags(&desk.owner, BUCKET, &key, &id(&name)).await.unwrap();
                    assert_eq!(got, (tags, kept.then_some(name)));
                }
            }
            _ => {}
        }
        check(&desk, &model, &format!("seed {seed} step {step}")).await;
    }
}

async fn copy_onto_itself(desk: &Desk, model: &mut Model, dice: &mut Dice) {
    let (name, body) = model.versions[dice.roll(model.versions.len())].clone();
    let request = CopyObject {
        source: super::super::get::GetObject { version: id(&name), ..get_of("key") },
        bucket: BUCKET.into(),
        key: Bytes::from_static(b"key"),
        replace: Some(About::default()),
        tags: None,
        acl: Default::default(),
        own: Vec::new(),
        changes_more: false,
        checksum: None,
        conditions: WriteConditions::default(),
    };
    match (desk.objects.copy(&desk.owner, request).await, body) {
        (Ok(copied), Some(body)) => {
            model.add(copied.stored.version_id.unwrap_or("null".into()), Some(body));
        }
        (Err(Error::InvalidRequest(_)), None) => {}
        (other, _) => panic!("{other:?}"),
    }
}

/// Every version reads as the model says, the current one and the listing entry too; bytes nobody names are gone.
async fn check(desk: &Desk, model: &Model, at: &str) {
    let mut named = BTreeSet::new();
    let mut ids = BTreeMap::<VersionId, usize>::new();
    for (name, body) in &model.versions {
        match (desk.find(super::super::get::GetObject { version: id(name), ..get_of("key") }).await, body) {
            (Ok((found, got)), Some(body)) => {
                assert_eq!(got, *body, "{at}");
                *ids.entry(found.version.id).or_default() += 1;
                if let ObjectBody::Blob { id, .. } = found.version.object.unwrap().body {
                    named.insert(id);
                }
            }
            (Err(Error::DeleteMarker { current: false, .. }), None) => {}
            (other, _) => panic!("{at}: {name}: {other:?}"),
        }
    }
    assert!(ids.values().all(|count| *count == 1), "{at}");
    assert_eq!(desk.blobs().await, named, "{at}");
    let current = desk.get("key", VersionSpec::Current).await;
    let listed = entry(desk, "key").await.map(|entry| entry.object.map(|object| object.length));
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
    let partition = desk.place("key").await.partition();
    let rows = desk.world.store.read(&partition, &ReadQuery::all(100), &desk.objects.options()).await.unwrap().rows;
    assert_eq!(rows.iter().filter(|row| !row.name.is_empty()).count(), model.versions.len().saturating_sub(1), "{at}");
    assert_eq!(desk.head("key").await.older, model.versions.len() > 1, "{at}");
}
