//! Copies: bytes of their own for another key, shared ones for the same key.

use larder_model::objects::{ObjectBody, SystemHeader, Versioning};

use super::super::commit::testing::{BUCKET, Desk, bytes, get_of, id, put_of, run};
use super::*;

fn copy_of(from: &str, to: &str) -> CopyObject {
    CopyObject {
        source: get_of(from),
        bucket: BUCKET.into(),
        key: Bytes::copy_from_slice(to.as_bytes()),
        replace: None,
        tags: None,
        acl: AclChoice::Private,
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
