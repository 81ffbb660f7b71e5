use std::sync::Arc;

use bytes::Bytes;
use larder_rows::ActorId;

use super::*;
use crate::acl_choice::AclChoice;
use crate::buckets::testing::{BEGIN, S3TestStore, new_caller, version, write_versions};
use crate::list::KeyOrPrefix;
use crate::listing_page::{ListObjects, ListVersions};
use crate::rules::entry::ListedObject;
use crate::rules::lifecycle::{Expiration, LifecycleFilter, LifecycleRule, NoncurrentExpiration};
use crate::rules::{BucketId, Etag, ObjectLock, Tag, Upload, UploadId, UploadState, Version, Versioning};
use crate::uploads::UploadHead;
use crate::{Caller, Objects};

const DAY: u64 = 86_400_000_000;

fn rule(prefix: &str) -> LifecycleRule {
    let filter = LifecycleFilter { prefix: Some(prefix.into()), ..LifecycleFilter::default() };
    LifecycleRule { id: prefix.into(), enabled: true, filter, ..LifecycleRule::default() }
}

async fn bucket(rules: Vec<LifecycleRule>, versioning: Versioning) -> (Arc<Objects>, Caller, Arc<Bucket>) {
    let objects = S3TestStore::new().gateway().await;
    let caller = new_caller(&objects, "ann").await;
    objects.buckets.create(&caller, "bucket", AclChoice::default(), None).await.unwrap();
    let change = |bucket: &mut Bucket| {
        bucket.versioning = versioning;
        bucket.lifecycle = Some(Lifecycle { rules: rules.clone() });
        Ok(())
    };
    objects.buckets.configure(&caller, "bucket", change).await.unwrap();
    let bucket = objects.buckets.find("bucket").await.unwrap();
    (objects, caller, bucket)
}

async fn keys(objects: &Objects, caller: &Caller) -> Vec<String> {
    let request = ListObjects { bucket: "bucket".into(), max: 1000, ..ListObjects::default() };
    let page = objects.list(caller, &request).await.unwrap();
    page.lines.iter().map(name).collect()
}

/// Every version: its key, and its age in days, or `None` for a delete marker.
async fn versions(objects: &Objects, caller: &Caller) -> Vec<(String, Option<u64>)> {
    let listed = ListObjects { bucket: "bucket".into(), max: 1000, ..ListObjects::default() };
    let page = objects.list_versions(caller, &ListVersions { objects: listed, version: None }).await.unwrap();
    let age = |line: &KeyOrPrefix<_>| match line {
        KeyOrPrefix::Key(_, listed_version) => {
            let listed_version: &crate::listing_page::ListedVersion = listed_version;
            listed_version.version.object.as_ref().map(|_| BEGIN.since(listed_version.version.modified) / DAY)
        }
        KeyOrPrefix::Prefix(_) => None,
    };
    page.lines.iter().map(|line| (name(line), age(line))).collect()
}

fn name<T>(line: &KeyOrPrefix<T>) -> String {
    let (KeyOrPrefix::Key(key, _) | KeyOrPrefix::Prefix(key)) = line;
    String::from_utf8_lossy(key).into_owned()
}

fn aged(days: u64, length: usize) -> Version {
    version(BEGIN - days * DAY, true, Some(length))
}

#[tokio::test(start_paused = true)]
async fn due_objects_expire_and_no_others() {
    let tagged =
        LifecycleFilter { tags: vec![Tag { key: "a".into(), value: "b".into() }], ..LifecycleFilter::default() };
    let rules = vec![
        LifecycleRule { expiration: Some(Expiration::Days(3)), ..rule("log/") },
        LifecycleRule { expiration: Some(Expiration::Days(1)), enabled: false, ..rule("off/") },
        LifecycleRule { expiration: Some(Expiration::Days(1)), filter: tagged, ..rule("tags") },
    ];
    let (objects, caller, bucket) = bucket(rules, Versioning::Off).await;
    for (key, days) in [("log/old", 9), ("log/young", 1), ("off/old", 9), ("other", 9)] {
        write_versions(&objects, &bucket, key.as_bytes(), &[aged(days, 10)]).await;
    }
    let mut tagged = aged(9, 10);
    tagged.object.as_mut().unwrap().tags = vec![Tag { key: "a".into(), value: "b".into() }];
    write_versions(&objects, &bucket, b"tagged", &[tagged]).await;
    let pass = objects.lifecycle.run().await.unwrap();
    assert_eq!(pass, LifecyclePass { expired: 2, ..LifecyclePass::default() });
    assert_eq!(keys(&objects, &caller).await, ["log/young", "off/old", "other"]);
    assert_eq!(versions(&objects, &caller).await.len(), 3, "no version of them is left");
    assert_eq!(objects.lifecycle.run().await.unwrap(), LifecyclePass::default());
}

#[tokio::test(start_paused = true)]
async fn with_versioning_a_marker_hides_an_expired_object() {
    let rules = vec![LifecycleRule { expiration: Some(Expiration::Days(3)), ..rule("") }];
    let (objects, caller, bucket) = bucket(rules, Versioning::Enabled).await;
    write_versions(&objects, &bucket, b"k", &[version(BEGIN - 9 * DAY, false, Some(5))]).await;
    assert_eq!(objects.lifecycle.run().await.unwrap().expired, 1);
    assert_eq!(keys(&objects, &caller).await, [""; 0]);
    assert_eq!(versions(&objects, &caller).await, [("k".to_owned(), None), ("k".to_owned(), Some(9))]);
    assert_eq!(objects.lifecycle.run().await.unwrap(), LifecyclePass::default(), "a marker adds no second marker");
}

#[tokio::test(start_paused = true)]
async fn noncurrent_versions_and_single_markers_are_removed_when_due() {
    let noncurrent = Some(NoncurrentExpiration { days: 2, keep: Some(1) });
    let left = LifecycleRule { expiration: Some(Expiration::ExpiredDeleteMarkers), ..rule("b") };
    let rules = vec![
        LifecycleRule { noncurrent, ..rule("a") },
        LifecycleRule { noncurrent: Some(NoncurrentExpiration { days: 2, keep: None }), id: "b2".into(), ..rule("b") },
        left,
    ];
    let (objects, caller, bucket) = bucket(rules, Versioning::Enabled).await;
    let at = |days: u64, length| version(BEGIN - days * DAY, false, length);
    let some = Some(5);
    // Rule "a" keeps one version of any age. The version of 9 days ago was replaced 5 days ago, that of 5 days ago yesterday.
    write_versions(&objects, &bucket, b"a1", &[at(4, some), at(5, some), at(6, some), at(7, some)]).await;
    write_versions(&objects, &bucket, b"a2", &[at(0, some), at(1, some), at(5, some), at(9, some)]).await;
    write_versions(&objects, &bucket, b"b1", &[at(5, None), at(6, some)]).await;
    write_versions(&objects, &bucket, b"b2", &[at(5, some), at(6, some)]).await;
    let pass = objects.lifecycle.run().await.unwrap();
    assert_eq!(pass, LifecyclePass { removed: 6, ..LifecyclePass::default() });
    let left = [("a1", 4), ("a1", 5), ("a2", 0), ("a2", 1), ("a2", 5), ("b2", 5)];
    let left: Vec<_> = left.into_iter().map(|(key, days)| (key.to_owned(), Some(days))).collect();
    assert_eq!(versions(&objects, &caller).await, left);
}

#[tokio::test(start_paused = true)]
async fn old_uploads_are_aborted() {
    let rules = vec![LifecycleRule { abort_uploads_days: Some(3), ..rule("log/") }];
    let (objects, _, bucket) = bucket(rules, Versioning::Off).await;
    let mut ids = Vec::new();
    for (key, days) in [("log/old", 9), ("log/young", 1), ("other", 9)] {
        let initiated = BEGIN - days * DAY;
        let id = UploadId::new(initiated, ActorId(key.len() as u64));
        let upload = Upload {
            bucket: bucket.id,
            key: key.into(),
            initiator: "ann".into(),
            owner: "ann".into(),
            initiated,
            headers: Vec::new(),
            meta: Vec::new(),
            tags: Vec::new(),
            acl: None,
            checksum: None,
            encryption: None,
            lock: ObjectLock::default(),
            state: UploadState::Open,
        };
        objects.heads.write_upload(None, UploadHead { id, upload, stamp: initiated }).await.unwrap();
        ids.push(id);
    }
    let pass = objects.lifecycle.run().await.unwrap();
    assert_eq!(pass, LifecyclePass { aborted: 1, ..LifecyclePass::default() });
    let mut states = Vec::new();
    for id in ids {
        states.push(objects.heads.read_upload(id).await.unwrap().unwrap().upload.state.is_alive());
    }
    assert_eq!(states, [false, true, true]);
}

#[test]
fn the_prefilter_skips_keys_by_their_entries() {
    let bucket = Bucket::new("bucket", BucketId([1; 16]), "ann", Timestamp::ZERO);
    let rules = ["log/", "log/a", "", "tmp"].map(|prefix| {
        let expiration = Some(Expiration::Days(3)).filter(|_| !prefix.is_empty());
        LifecycleRule { expiration, ..rule(prefix) }
    });
    let prefilter = LifecyclePrefilter::new(&bucket, &Lifecycle { rules: rules.to_vec() });
    assert_eq!(prefilter.prefixes(), [Bytes::from("log/"), Bytes::from("tmp")]);
    let etag = Etag { md5: [0; 16], parts: None };
    let object = ListedObject { etag, length: 5, storage_class: None, checksum: None };
    let entry =
        |days: u64| ListingEntry { modified: BEGIN - days * DAY, owner: "ann".into(), object: Some(object.clone()) };
    assert!(prefilter.may_have_due(b"log/x", &entry(9), BEGIN));
    assert!(!prefilter.may_have_due(b"log/x", &entry(1), BEGIN), "too young");
    assert!(!prefilter.may_have_due(b"x", &entry(9), BEGIN), "another prefix");
    let noncurrent = Some(NoncurrentExpiration { days: 5, keep: None });
    let rules = Lifecycle { rules: vec![LifecycleRule { noncurrent, ..rule("log/") }] };
    assert!(
        !LifecyclePrefilter::new(&bucket, &rules).may_have_due(b"log/x", &entry(1), BEGIN),
        "there are no versions"
    );
    let versioned = Bucket { versioning: Versioning::Suspended, ..bucket };
    assert!(
        LifecyclePrefilter::new(&versioned, &rules).may_have_due(b"log/x", &entry(1), BEGIN),
        "older ones may be old"
    );
}
