//! Copies: own bytes for another key, shared bytes for the same key.

use super::super::buckets::testing::{anonymous, new_caller};
use super::super::commit::testing::{
    BUCKET, BucketFixture, bytes, get_request, id, put_request, run, set_policy, upload_body,
};
use super::super::uploads::testing::{KEY, Trap, UploadSetup};
use super::*;
use crate::object_lock::GovernanceBypass;
use crate::rules::public_access::PublicAccessBlock;
use crate::rules::{ObjectBody, ObjectLock, Permission, SystemHeader, Versioning};

fn copy_request(from: &str, to: &str) -> CopyObject {
    CopyObject {
        source: get_request(from),
        bucket: BUCKET.into(),
        key: Bytes::copy_from_slice(to.as_bytes()),
        replace: None,
        tags: None,
        acl: AclChoice::Private,
        keeps_acl: false,
        own: Vec::new(),
        changes_more: false,
        encryption: EncryptionChoice::BucketDefault,
        checksum: None,
        lock: ObjectLock::default(),
        conditions: WriteConditions::default(),
    }
}

fn metadata(value: &'static str) -> Option<ObjectMetadata> {
    Some(ObjectMetadata { meta: vec![("a".into(), Bytes::from_static(value.as_bytes()))], ..ObjectMetadata::default() })
}

async fn put(fixture: &BucketFixture, length: usize) -> (Bytes, Object) {
    let body = bytes(1, length);
    let mut put = put_request("one", &body);
    put.metadata.meta = vec![("a".into(), Bytes::from_static(b"b"))];
    put.metadata.headers = vec![(SystemHeader::ContentType, Bytes::from_static(b"text/x"))];
    put.metadata.tags = vec![Tag { key: "t".into(), value: "v".into() }];
    (body, fixture.objects.put(&fixture.owner, put).await.unwrap().version.object.unwrap())
}

#[test]
fn a_copy_to_another_key_survives_its_source() {
    run(async {
        let fixture = BucketFixture::new().await;
        for length in [10, 5000] {
            let (body, source) = put(&fixture, length).await;
            let copied = fixture.objects.copy(&fixture.owner, copy_request("one", "two")).await.unwrap();
            let copy = copied.stored.version.object.unwrap();
            assert_eq!((&copy.meta, &copy.headers, &copy.tags), (&source.meta, &source.headers, &source.tags));
            assert_eq!((copy.etag, &copy.checksum), (source.etag, &source.checksum));
            fixture.delete("one", &VersionSpec::Current).await;
            assert_eq!(fixture.get("two", VersionSpec::Current).await.unwrap(), body);
            let mut other = copy_request("two", "three");
            other.replace = metadata("c");
            other.tags = Some(Vec::new());
            other.checksum = Some(Algorithm::Sha1);
            let copy = fixture.objects.copy(&fixture.owner, other).await.unwrap().stored.version.object.unwrap();
            assert_eq!((&copy.meta, copy.headers.len(), copy.tags.len()), (&metadata("c").unwrap().meta, 0, 0));
            assert_eq!(copy.checksum.unwrap().algorithm, Algorithm::Sha1);
        }
        assert_eq!(fixture.blobs().await.len(), 2);
    });
}

#[test]
fn a_copy_onto_itself_shares_bytes_until_the_last_reference_goes() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (body, source) = put(&fixture, 5000).await;
        let again = || CopyObject { replace: metadata("c"), ..copy_request("one", "one") };
        let copy = fixture.objects.copy(&fixture.owner, again()).await.unwrap().stored.version.object.unwrap();
        assert_eq!((&copy.body, &copy.meta), (&source.body, &metadata("c").unwrap().meta));
        assert_eq!(fixture.get("one", VersionSpec::Current).await.unwrap(), body);
        fixture.versioning(Versioning::Enabled).await;
        let second = fixture.objects.copy(&fixture.owner, again()).await.unwrap();
        assert_eq!(second.source_version.as_deref(), Some("null"));
        assert_eq!(fixture.blobs().await.len(), 1);
        fixture.delete("one", &id("null")).await;
        assert_eq!(
            fixture.get("one", VersionSpec::Current).await.unwrap(),
            body,
            "another version still references them"
        );
        fixture.delete("one", &id(&second.stored.version_id.unwrap())).await;
        assert!(fixture.blobs().await.is_empty());
    });
}

#[test]
fn a_copy_onto_itself_may_change_the_checksum_algorithm() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (body, source) = put(&fixture, 5000).await;
        let request =
            CopyObject { checksum: Some(Algorithm::Sha256), replace: metadata("c"), ..copy_request("one", "one") };
        let copy = fixture.objects.copy(&fixture.owner, request).await.unwrap().stored.version.object.unwrap();
        assert_ne!(copy.body, source.body);
        assert_eq!(copy.checksum.unwrap().algorithm, Algorithm::Sha256);
        assert_eq!(fixture.get("one", VersionSpec::Current).await.unwrap(), body);
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

#[test]
fn a_copy_of_parts_is_one_body() {
    run(async {
        let fixture = BucketFixture::new().await;
        let parts = [bytes(1, 3000), bytes(2, 2000)];
        fixture.put_parts("one", &parts).await;
        let copied = fixture.objects.copy(&fixture.owner, copy_request("one", "two")).await.unwrap();
        let copy = copied.stored.version.object.unwrap();
        assert!(matches!(copy.body, ObjectBody::Blob { length: 5000, .. }));
        assert_eq!((copy.etag.parts, copy.upload), (None, None));
        assert_eq!(fixture.get("two", VersionSpec::Current).await.unwrap(), parts.concat());
        // A copy onto itself shares the parts.
        let again = CopyObject { replace: metadata("c"), ..copy_request("one", "one") };
        fixture.objects.copy(&fixture.owner, again).await.unwrap();
        assert_eq!(fixture.get("one", VersionSpec::Current).await.unwrap(), parts.concat());
        assert_eq!(fixture.blobs().await.len(), 3);
        fixture.delete("one", &VersionSpec::Current).await;
        assert_eq!(fixture.blobs().await.len(), 1);
    });
}

#[test]
fn invalid_copies_are_refused() {
    run(async {
        let fixture = BucketFixture::new().await;
        put(&fixture, 10).await;
        let copy = async |request| fixture.objects.copy(&fixture.owner, request).await.unwrap_err();
        assert!(matches!(copy(copy_request("one", "one")).await, Error::InvalidRequest(_)));
        assert!(matches!(copy(copy_request("nothing", "one")).await, Error::NoSuchKey));
        let mut request = copy_request("one", "two");
        request.source.conditions.if_none_match = Some(vec!["*".into()]);
        assert!(matches!(copy(request).await, Error::PreconditionFailed("If-None-Match")));
        let mut request = copy_request("one", "two");
        request.conditions.if_match = Some(vec!["*".into()]);
        assert!(matches!(copy(request).await, Error::NoSuchKey));
        let denied = fixture.objects.copy(&anonymous(S3Action::PutObject), copy_request("one", "two")).await;
        assert!(matches!(denied, Err(Error::AccessDenied)));
        fixture.versioning(Versioning::Enabled).await;
        let marker = fixture.delete("one", &VersionSpec::Current).await.version_id.unwrap();
        assert!(matches!(copy(copy_request("one", "two")).await, Error::NoSuchKey));
        let mut request = copy_request("one", "two");
        request.source.version = id(&marker);
        assert!(matches!(copy(request).await, Error::InvalidRequest(_)));
        let mut request = copy_request("one", "one");
        request.source.version = id("null");
        fixture.objects.copy(&fixture.owner, request).await.unwrap();
        assert_eq!(fixture.get("one", VersionSpec::Current).await.unwrap().len(), 10, "an old version is brought back");
    });
}

/// A model of the versions of a key, newest first: id, and the body it references.
#[derive(Debug, Default)]
struct VersionsModel(Vec<(String, Option<u64>)>);

impl VersionsModel {
    fn add(&mut self, id: Option<String>, body: Option<u64>) {
        let id = id.unwrap_or_else(|| "null".to_owned());
        self.0.retain(|(old, _)| *old != id);
        self.0.insert(0, (id, body));
    }
}

fn numbered_body(number: u64) -> Bytes {
    bytes(number, 2000 + number as usize)
}

/// One random step: a put, a copy of the key onto itself, a delete, or a change of versioning.
async fn step(fixture: &BucketFixture, model: &mut VersionsModel, dice: u64, number: u64) {
    let key = Bytes::from_static(b"one");
    let any = model.0.get(dice as usize / 16 % model.0.len().max(1)).cloned();
    match (dice % 16, any) {
        (0..4, _) | (_, None) => {
            let stored = fixture.put("one", &numbered_body(number)).await;
            model.add(stored.version_id, Some(number));
        }
        (4..9, Some((version, Some(body)))) => {
            let mut request = CopyObject { replace: metadata("c"), ..copy_request("one", "one") };
            request.source.version = id(&version);
            let copied = fixture.objects.copy(&fixture.owner, request).await.unwrap();
            model.add(copied.stored.version_id, Some(body));
        }
        (9..14, Some((version, _))) => {
            fixture.delete("one", &id(&version)).await;
            model.0.retain(|(old, _)| *old != version);
        }
        (14, Some(_)) => {
            let deleted = fixture
                .objects
                .delete(&fixture.owner, BUCKET, &key, &VersionSpec::Current, None, GovernanceBypass::Absent)
                .await
                .unwrap();
            model.add(deleted.version_id, None);
        }
        _ => fixture.versioning(if dice & 32 == 0 { Versioning::Enabled } else { Versioning::Suspended }).await,
    }
}

#[test]
fn versions_that_share_bytes_neither_lose_nor_leak_them() {
    for seed in 0..40_u64 {
        run(async {
            let (fixture, mut model) = (BucketFixture::new().await, VersionsModel::default());
            fixture.versioning(if seed % 2 == 0 { Versioning::Enabled } else { Versioning::Suspended }).await;
            for number in 1..60_u64 {
                let dice = u64::from(larder_rows::hash::id128(&[&seed.to_be_bytes(), &number.to_be_bytes()]) as u32);
                step(&fixture, &mut model, dice, number).await;
                for (version, body) in &model.0 {
                    let got = fixture.get("one", id(version)).await.ok();
                    assert_eq!(got, body.map(numbered_body), "seed {seed} step {number}: {version} of {model:?}");
                }
                let named: std::collections::BTreeSet<_> = model.0.iter().filter_map(|(_, body)| *body).collect();
                assert_eq!(fixture.blobs().await.len(), named.len(), "seed {seed} step {number}: {model:?}");
            }
        });
    }
}

#[test]
fn the_cost_of_removing_a_version_does_not_grow_with_the_others() {
    run(async {
        let setup = UploadSetup::new().await;
        setup.fixture.versioning(Versioning::Enabled).await;
        let mut ids = Vec::new();
        for number in 0..200 {
            ids.push(setup.fixture.put(KEY, &numbered_body(number)).await.version_id.unwrap());
        }
        let (key, before) = (Bytes::from_static(KEY.as_bytes()), setup.gate.reads());
        for version in [&ids[0], &ids[100], &ids[199]] {
            setup
                .slow
                .delete(&setup.fixture.owner, BUCKET, &key, &id(version), None, GovernanceBypass::Absent)
                .await
                .unwrap();
        }
        assert!(setup.gate.reads() - before < 20, "{} reads", setup.gate.reads() - before);
        assert_eq!(setup.fixture.blobs().await.len(), 197);
    });
}

#[test]
fn public_grants_blocked_while_the_body_arrives_are_refused() {
    run(async {
        let setup = UploadSetup::new().await;
        let fixture = &setup.fixture;
        fixture.put(KEY, &bytes(1, 10)).await;
        let block = |bucket: &mut crate::rules::Bucket| {
            bucket.public_access = Some(PublicAccessBlock { block_acls: true, ..PublicAccessBlock::default() });
            Ok(())
        };
        let public = || AclChoice::Canned("public-read".into());
        let location = fixture.location(KEY).await;
        let bucket = fixture.objects.buckets.find(BUCKET).await.unwrap();
        let acl = fixture
            .objects
            .buckets
            .new_object_acl(&fixture.owner, &bucket, &location.key, &public(), "owner")
            .await
            .unwrap();
        let to = fixture.objects.receiver.object_destination(&location).await.unwrap();
        let received = fixture.objects.receiver.receive(upload_body(&bytes(2, 3000)), to).await.unwrap();
        fixture.objects.buckets.configure(&fixture.owner, BUCKET, block).await.unwrap();
        let (_, object) = put(fixture, 10).await;
        let object = Object { acl, body: received.body.clone(), ..object };
        let cause = ChangeCause::request(EventAction::Put, &fixture.owner);
        let terms = WriteTerms { conditions: &WriteConditions::default(), cause };
        let late = fixture.objects.commit_object(&location, "owner".into(), object, received, terms).await;
        assert!(matches!(late, Err(Error::AccessDenied)), "{late:?}");
        assert!(fixture.blobs().await.is_empty(), "the refused put leaves no blob");
    });
}

#[test]
fn inheriting_tags_needs_permission_on_both_sides() {
    run(async {
        let fixture = BucketFixture::new().await;
        put(&fixture, 10).await;
        let reader = new_caller(&fixture.objects, "reader").await;
        let copy = async |tags| fixture.objects.copy(&reader, CopyObject { tags, ..copy_request("one", "two") }).await;
        let actions = ["GetObject", "PutObject", "GetObjectTagging", "PutObjectTagging"];
        for allowed in 2..=4 {
            set_policy(&fixture, &reader, &actions[..allowed]).await;
            assert_eq!(copy(None).await.map(drop).is_ok(), allowed == 4, "{allowed}");
            assert!(copy(Some(Vec::new())).await.is_ok(), "new tags need no permission at the source");
        }
    });
}

#[test]
fn setting_an_acl_needs_its_own_permission() {
    run(async {
        let fixture = BucketFixture::new().await;
        let writer = new_caller(&fixture.objects, "writer").await;
        let put = async |acl: &str| {
            let mut put = put_request("one", &bytes(1, 10));
            put.metadata.acl = AclChoice::Canned(acl.into());
            fixture.objects.put(&writer, put).await
        };
        set_policy(&fixture, &writer, &["PutObject"]).await;
        assert!(matches!(put("public-read").await, Err(Error::AccessDenied)));
        put("private").await.unwrap();
        let mut copy = copy_request("one", "two");
        copy.acl = AclChoice::Canned("public-read".into());
        set_policy(&fixture, &writer, &["PutObject", "GetObject"]).await;
        assert!(matches!(fixture.objects.copy(&writer, copy).await, Err(Error::AccessDenied)));
        set_policy(&fixture, &writer, &["PutObject", "PutObjectAcl"]).await;
        put("public-read").await.unwrap();
    });
}

#[test]
fn a_copy_that_keeps_grants_takes_access_from_nobody() {
    run(async {
        let fixture = BucketFixture::new().await;
        let (writer, other) =
            (new_caller(&fixture.objects, "writer").await, new_caller(&fixture.objects, "other").await);
        let mut given = put_request("one", &bytes(1, 10));
        given.metadata.acl = AclChoice::Canned("public-read".into());
        set_policy(&fixture, &writer, &["PutObject", "PutObjectAcl"]).await;
        fixture.objects.put(&writer, given).await.unwrap();
        let request = || CopyObject { replace: metadata("c"), keeps_acl: true, ..copy_request("one", "one") };
        set_policy(&fixture, &other, &["PutObject", "PutObjectAcl", "GetObject"]).await;
        let refused = fixture.objects.copy(&other, request()).await;
        assert!(matches!(refused, Err(Error::AccessDenied)), "it may not read the grants");
        set_policy(&fixture, &other, &["PutObject", "PutObjectAcl", "GetObject", "GetObjectAcl"]).await;
        let copy = fixture.objects.copy(&other, request()).await.unwrap().stored.version;
        assert_eq!(copy.owner, other.id());
        let acl = copy.object.unwrap().acl.unwrap();
        assert!(acl.has_grant(Some(writer.id()), Permission::FullControl, false));
        assert!(acl.has_grant(None, Permission::Read, true));
        let again = fixture.objects.copy(&other, request()).await.unwrap().stored.version;
        assert_eq!(again.object.unwrap().acl.unwrap(), acl, "its owner's own grant is not added");
    });
}

#[test]
fn a_copy_onto_itself_of_a_version_that_is_not_current_any_more_is_refused() {
    run(async {
        let fixture = BucketFixture::new().await;
        put(&fixture, 10).await;
        let seen = fixture.objects.get(&fixture.owner, &get_request("one")).await.unwrap().0.version.id;
        let conditions = WriteConditions { if_version: Some(seen), ..WriteConditions::default() };
        let change = |value| CopyObject {
            replace: metadata(value),
            conditions: conditions.clone(),
            ..copy_request("one", "one")
        };
        fixture.objects.copy(&fixture.owner, change("first")).await.unwrap();
        let refused = fixture.objects.copy(&fixture.owner, change("second")).await;
        assert!(matches!(refused, Err(Error::PreconditionFailed(_))), "the entity tag is the same, the version is not");
        let (now, _) = fixture.objects.get(&fixture.owner, &get_request("one")).await.unwrap();
        assert_eq!(now.version.object.unwrap().meta, metadata("first").unwrap().meta);
    });
}

#[test]
fn a_copy_onto_itself_paused_at_any_call_takes_no_tags_back() {
    for step in 0.. {
        let met = run(async {
            let setup = UploadSetup::new().await;
            let (fixture, key) = (&setup.fixture, Bytes::from_static(KEY.as_bytes()));
            fixture.put(KEY, &bytes(1, 3000)).await;
            setup.gate.set(Trap::Stop, step);
            let request = CopyObject { replace: metadata("c"), ..copy_request(KEY, KEY) };
            let copy = setup.slow.copy(&fixture.owner, request);
            let tagged = vec![Tag { key: "t".into(), value: "v".into() }];
            let tag = async {
                setup.gate.reached().await;
                let given = tagged.clone();
                fixture
                    .objects
                    .put_object_tags(&fixture.owner, BUCKET, &key, &VersionSpec::Current, given)
                    .await
                    .unwrap();
                setup.gate.open();
            };
            let both = async { tokio::join!(copy, tag) };
            // A step after the last call pauses nothing.
            let Ok((copied, ())) = tokio::time::timeout(std::time::Duration::from_secs(60), both).await else {
                return false;
            };
            copied.unwrap_or_else(|error| panic!("step {step}: {error}"));
            let (now, _) = fixture.objects.get(&fixture.owner, &get_request(KEY)).await.unwrap();
            let object = now.version.object.unwrap();
            assert_eq!((&object.tags, &object.meta), (&tagged, &metadata("c").unwrap().meta), "step {step}");
            true
        });
        if !met {
            assert!(step > 3);
            break;
        }
    }
}
