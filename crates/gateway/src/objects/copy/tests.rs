//! Copies: bytes of their own for another key, shared ones for the same key.

use larder_model::objects::policy::Policy;
use larder_model::objects::public_access::PublicAccess;
use larder_model::objects::{ObjectBody, SystemHeader, Versioning};

use super::super::buckets::testing::new_caller;
use super::super::commit::testing::{BUCKET, Desk, bytes, get_of, id, incoming, put_of, run};
use super::super::uploads::testing::{Bench, KEY};
use super::*;

fn copy_of(from: &str, to: &str) -> CopyObject {
    CopyObject {
        source: get_of(from),
        bucket: BUCKET.into(),
        key: Bytes::copy_from_slice(to.as_bytes()),
        replace: None,
        tags: None,
        acl: AclChoice::Private,
        own: Vec::new(),
        changes_more: false,
        checksum: None,
        conditions: WriteConditions::default(),
    }
}

fn about(value: &'static str) -> Option<About> {
    Some(About { meta: vec![("a".into(), Bytes::from_static(value.as_bytes()))], ..About::default() })
}

async fn put(desk: &Desk, length: usize) -> (Bytes, Object) {
    let body = bytes(1, length);
    let mut put = put_of("one", &body);
    put.about.meta = vec![("a".into(), Bytes::from_static(b"b"))];
    put.about.headers = vec![(SystemHeader::ContentType, Bytes::from_static(b"text/x"))];
    put.about.tags = vec![Tag { key: "t".into(), value: "v".into() }];
    (body, desk.objects.put(&desk.owner, put).await.unwrap().version.object.unwrap())
}

#[test]
fn a_copy_to_another_key_lives_on_its_own() {
    run(async {
        let desk = Desk::new().await;
        for length in [10, 5000] {
            let (body, source) = put(&desk, length).await;
            let copied = desk.objects.copy(&desk.owner, copy_of("one", "two")).await.unwrap();
            let copy = copied.stored.version.object.unwrap();
            assert_eq!((&copy.meta, &copy.headers, &copy.tags), (&source.meta, &source.headers, &source.tags));
            assert_eq!((copy.etag, &copy.checksum), (source.etag, &source.checksum));
            desk.delete("one", &VersionSpec::Current).await;
            assert_eq!(desk.get("two", VersionSpec::Current).await.unwrap(), body);
            let mut other = copy_of("two", "three");
            other.replace = about("c");
            other.tags = Some(Vec::new());
            other.checksum = Some(Algorithm::Sha1);
            let copy = desk.objects.copy(&desk.owner, other).await.unwrap().stored.version.object.unwrap();
            assert_eq!((&copy.meta, copy.headers.len(), copy.tags.len()), (&about("c").unwrap().meta, 0, 0));
            assert_eq!(copy.checksum.unwrap().algorithm, Algorithm::Sha1);
        }
        assert_eq!(desk.blobs().await.len(), 2);
    });
}

#[cfg(feature = "rules")]
#[test]
fn without_its_rule_a_copy_is_torn() {
    run(async {
        let desk = Desk::with(crate::Rules::without(Rule::CopyBytes)).await;
        put(&desk, 5000).await;
        desk.objects.copy(&desk.owner, copy_of("one", "two")).await.unwrap();
        desk.delete("one", &VersionSpec::Current).await;
        assert!(desk.get("two", VersionSpec::Current).await.is_err());
    });
}

#[test]
fn a_copy_onto_itself_shares_bytes_until_nobody_names_them() {
    run(async {
        let desk = Desk::new().await;
        let (body, source) = put(&desk, 5000).await;
        let again = || CopyObject { replace: about("c"), ..copy_of("one", "one") };
        let copy = desk.objects.copy(&desk.owner, again()).await.unwrap().stored.version.object.unwrap();
        assert_eq!((&copy.body, &copy.meta), (&source.body, &about("c").unwrap().meta));
        assert_eq!(desk.get("one", VersionSpec::Current).await.unwrap(), body);
        desk.versioning(Versioning::Enabled).await;
        let second = desk.objects.copy(&desk.owner, again()).await.unwrap();
        assert_eq!(second.source_version.as_deref(), Some("null"));
        assert_eq!(desk.blobs().await.len(), 1);
        desk.delete("one", &id("null")).await;
        assert_eq!(desk.get("one", VersionSpec::Current).await.unwrap(), body, "the other version names them still");
        desk.delete("one", &id(&second.stored.version_id.unwrap())).await;
        assert!(desk.blobs().await.is_empty());
    });
}

#[test]
fn a_copy_onto_itself_may_ask_for_another_checksum() {
    run(async {
        let desk = Desk::new().await;
        let (body, source) = put(&desk, 5000).await;
        let request = CopyObject { checksum: Some(Algorithm::Sha256), replace: about("c"), ..copy_of("one", "one") };
        let copy = desk.objects.copy(&desk.owner, request).await.unwrap().stored.version.object.unwrap();
        assert_ne!(copy.body, source.body);
        assert_eq!(copy.checksum.unwrap().algorithm, Algorithm::Sha256);
        assert_eq!(desk.get("one", VersionSpec::Current).await.unwrap(), body);
        assert_eq!(desk.blobs().await.len(), 1);
    });
}

#[test]
fn a_copy_of_parts_is_one_body() {
    run(async {
        let desk = Desk::new().await;
        let parts = [bytes(1, 3000), bytes(2, 2000)];
        desk.put_parts("one", &parts).await;
        let copied = desk.objects.copy(&desk.owner, copy_of("one", "two")).await.unwrap();
        let copy = copied.stored.version.object.unwrap();
        assert!(matches!(copy.body, ObjectBody::Blob { length: 5000, .. }));
        assert_eq!((copy.etag.parts, copy.upload), (None, None));
        assert_eq!(desk.get("two", VersionSpec::Current).await.unwrap(), parts.concat());
        // Onto itself the parts are shared.
        let again = CopyObject { replace: about("c"), ..copy_of("one", "one") };
        desk.objects.copy(&desk.owner, again).await.unwrap();
        assert_eq!(desk.get("one", VersionSpec::Current).await.unwrap(), parts.concat());
        assert_eq!(desk.blobs().await.len(), 3);
        desk.delete("one", &VersionSpec::Current).await;
        assert_eq!(desk.blobs().await.len(), 1);
    });
}

#[test]
fn what_cannot_be_copied_is_refused() {
    run(async {
        let desk = Desk::new().await;
        put(&desk, 10).await;
        let copy = async |request| desk.objects.copy(&desk.owner, request).await.unwrap_err();
        assert!(matches!(copy(copy_of("one", "one")).await, Error::InvalidRequest(_)));
        assert!(matches!(copy(copy_of("nothing", "one")).await, Error::NoSuchKey));
        let mut request = copy_of("one", "two");
        request.source.conditions.if_none_match = Some(vec!["*".into()]);
        assert!(matches!(copy(request).await, Error::PreconditionFailed("If-None-Match")));
        let mut request = copy_of("one", "two");
        request.conditions.if_match = Some(vec!["*".into()]);
        assert!(matches!(copy(request).await, Error::NoSuchKey));
        let denied = desk.objects.copy(&Caller::default(), copy_of("one", "two")).await;
        assert!(matches!(denied, Err(Error::AccessDenied)));
        desk.versioning(Versioning::Enabled).await;
        let marker = desk.delete("one", &VersionSpec::Current).await.version_id.unwrap();
        assert!(matches!(copy(copy_of("one", "two")).await, Error::NoSuchKey));
        let mut request = copy_of("one", "two");
        request.source.version = id(&marker);
        assert!(matches!(copy(request).await, Error::InvalidRequest(_)));
        let mut request = copy_of("one", "one");
        request.source.version = id("null");
        desk.objects.copy(&desk.owner, request).await.unwrap();
        assert_eq!(desk.get("one", VersionSpec::Current).await.unwrap().len(), 10, "an old version is brought back");
    });
}

/// The versions of a key as they should be, newest first: id, and which body it names.
#[derive(Debug, Default)]
struct Told(Vec<(String, Option<u64>)>);

impl Told {
    fn add(&mut self, id: Option<String>, body: Option<u64>) {
        let id = id.unwrap_or_else(|| "null".to_owned());
        self.0.retain(|(old, _)| *old != id);
        self.0.insert(0, (id, body));
    }
}

fn body_of(number: u64) -> Bytes {
    bytes(number, 2000 + number as usize)
}

/// One step of many: puts, copies of the key onto itself, deletes, in a bucket that keeps versions or does not.
async fn step(desk: &Desk, told: &mut Told, dice: u64, number: u64) {
    let key = Bytes::from_static(b"one");
    let any = told.0.get(dice as usize / 16 % told.0.len().max(1)).cloned();
    match (dice % 16, any) {
        (0..4, _) | (_, None) => {
            let stored = desk.put("one", &body_of(number)).await;
            told.add(stored.version_id, Some(number));
        }
        (4..9, Some((version, Some(body)))) => {
            let mut request = CopyObject { replace: about("c"), ..copy_of("one", "one") };
            request.source.version = id(&version);
            let copied = desk.objects.copy(&desk.owner, request).await.unwrap();
            told.add(copied.stored.version_id, Some(body));
        }
        (9..14, Some((version, _))) => {
            desk.delete("one", &id(&version)).await;
            told.0.retain(|(old, _)| *old != version);
        }
        (14, Some(_)) => {
            let deleted = desk.objects.delete(&desk.owner, BUCKET, &key, &VersionSpec::Current, None).await.unwrap();
            told.add(deleted.version_id, None);
        }
        _ => desk.versioning(if dice & 32 == 0 { Versioning::Enabled } else { Versioning::Suspended }).await,
    }
}

#[test]
fn versions_that_share_bytes_lose_none_and_leave_none() {
    for seed in 0..40_u64 {
        run(async {
            let (desk, mut told) = (Desk::new().await, Told::default());
            desk.versioning(if seed % 2 == 0 { Versioning::Enabled } else { Versioning::Suspended }).await;
            for number in 1..60_u64 {
                let dice = u64::from(larder_model::hash::id128(&[&seed.to_be_bytes(), &number.to_be_bytes()]) as u32);
                step(&desk, &mut told, dice, number).await;
                for (version, body) in &told.0 {
                    let got = desk.get("one", id(version)).await.ok();
                    assert_eq!(got, body.map(body_of), "seed {seed} step {number}: {version} of {told:?}");
                }
                let named: std::collections::BTreeSet<_> = told.0.iter().filter_map(|(_, body)| *body).collect();
                assert_eq!(desk.blobs().await.len(), named.len(), "seed {seed} step {number}: {told:?}");
            }
        });
    }
}

#[test]
fn what_removing_a_version_costs_does_not_grow_with_the_others() {
    run(async {
        let bench = Bench::new().await;
        bench.desk.versioning(Versioning::Enabled).await;
        let mut ids = Vec::new();
        for number in 0..200 {
            ids.push(bench.desk.put(KEY, &body_of(number)).await.version_id.unwrap());
        }
        let (key, before) = (Bytes::from_static(KEY.as_bytes()), bench.gate.reads());
        for version in [&ids[0], &ids[100], &ids[199]] {
            bench.slow.delete(&bench.desk.owner, BUCKET, &key, &id(version), None).await.unwrap();
        }
        assert!(bench.gate.reads() - before < 20, "{} reads", bench.gate.reads() - before);
        assert_eq!(bench.desk.blobs().await.len(), 197);
    });
}

#[test]
fn grants_to_the_public_forbidden_while_the_body_arrived_are_refused() {
    run(async {
        let bench = Bench::new().await;
        let desk = &bench.desk;
        desk.put(KEY, &bytes(1, 10)).await;
        let block = |bucket: &mut larder_model::objects::Bucket| {
            bucket.public_access = Some(PublicAccess { block_acls: true, ..PublicAccess::default() });
            Ok(())
        };
        let public = || AclChoice::Canned("public-read".into());
        let place = desk.place(KEY).await;
        let bucket = desk.objects.bucket(BUCKET).await.unwrap();
        let acl = desk.objects.acl_for(&desk.owner, &bucket, &place.key, (&public(), "owner")).await.unwrap();
        let to = desk.objects.object_destination(&place).await.unwrap();
        let received = desk.objects.receive(incoming(&bytes(2, 3000)), to).await.unwrap();
        desk.objects.configure(&desk.owner, BUCKET, "s3:PutBucketPublicAccessBlock", block).await.unwrap();
        let (_, object) = put(desk, 10).await;
        let object = Object { acl, body: received.body.clone(), ..object };
        let late = desk.objects.store(&place, "owner".into(), object, received, &WriteConditions::default()).await;
        assert!(matches!(late, Err(Error::AccessDenied)), "{late:?}");
        assert!(desk.blobs().await.is_empty(), "nothing of it remains");
    });
}

/// Lets a policy allow somebody these actions, and nobody else anything.
async fn allow(desk: &Desk, who: &Caller, actions: &[&str]) {
    let actions: Vec<_> = actions.iter().map(|action| format!("\"s3:{action}\"")).collect();
    let policy = format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"CanonicalUser":"{}"}},
        "Action":[{}],"Resource":"arn:aws:s3:::{BUCKET}/*"}}]}}"#,
        who.id(),
        actions.join(",")
    );
    let policy = Policy::parse(BUCKET, &policy).unwrap();
    let allow = |bucket: &mut Bucket| {
        bucket.policy = Some(Arc::new(policy.clone()));
        Ok(())
    };
    desk.objects.configure(&desk.owner, BUCKET, "s3:PutBucketPolicy", allow).await.unwrap();
}

#[test]
fn tags_are_taken_over_by_who_may_read_them_and_give_them() {
    run(async {
        let desk = Desk::new().await;
        put(&desk, 10).await;
        let reader = new_caller(&desk.objects, "reader").await;
        let copy = async |tags| desk.objects.copy(&reader, CopyObject { tags, ..copy_of("one", "two") }).await;
        let actions = ["GetObject", "PutObject", "GetObjectTagging", "PutObjectTagging"];
        for allowed in 2..=4 {
            allow(&desk, &reader, &actions[..allowed]).await;
            assert_eq!(copy(None).await.map(drop).is_ok(), allowed == 4, "{allowed}");
            assert!(copy(Some(Vec::new())).await.is_ok(), "they are left behind");
        }
    });
}

#[test]
fn who_may_put_objects_alone_gives_nobody_grants() {
    run(async {
        let desk = Desk::new().await;
        let writer = new_caller(&desk.objects, "writer").await;
        let put = async |acl: &str| {
            let mut put = put_of("one", &bytes(1, 10));
            put.about.acl = AclChoice::Canned(acl.into());
            desk.objects.put(&writer, put).await
        };
        allow(&desk, &writer, &["PutObject"]).await;
        assert!(matches!(put("public-read").await, Err(Error::AccessDenied)));
        put("private").await.unwrap();
        let mut copy = copy_of("one", "two");
        copy.acl = AclChoice::Canned("public-read".into());
        allow(&desk, &writer, &["PutObject", "GetObject"]).await;
        assert!(matches!(desk.objects.copy(&writer, copy).await, Err(Error::AccessDenied)));
        allow(&desk, &writer, &["PutObject", "PutObjectAcl"]).await;
        put("public-read").await.unwrap();
    });
}
