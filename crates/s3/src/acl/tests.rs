//! ACLs, over a memory store.

use std::sync::Arc;

use larder_rows::Timestamp;

use super::super::buckets::testing::{S3TestStore, new_caller, version, write_versions};
use super::*;
use crate::Error;
use crate::rules::public_access::PublicAccessBlock;
use crate::rules::{Acl, Bucket, Grantee, Permission, S3Action, User};

struct AclFixture {
    objects: Arc<Objects>,
    foo: Caller,
    bar: Caller,
}

async fn fixture() -> AclFixture {
    let objects = S3TestStore::new().gateway().await;
    let (foo, bar) = (new_caller(&objects, "foo").await, new_caller(&objects, "bar").await);
    objects.buckets.create(&foo, "tea", AclChoice::Private, None).await.unwrap();
    AclFixture { objects, foo, bar }
}

fn grants(acl: &Acl) -> Vec<(Grantee, Permission)> {
    acl.grants.iter().map(|grant| (grant.grantee.clone(), grant.permission)).collect()
}

fn user(caller: &Caller) -> Grantee {
    let user: &User = caller.require_user().unwrap();
    Grantee::User(user.id.clone())
}

#[tokio::test(start_paused = true)]
async fn grants_name_users_by_id_and_address_and_groups() {
    let AclFixture { objects, foo, bar } = fixture().await;
    let all_users = Grantee::AllUsers.uri().unwrap().to_owned();
    let choice = AclChoice::Grants(vec![
        (Permission::Read, GranteeRef::Email("bar@example.com".into())),
        (Permission::Write, GranteeRef::Id(bar.id().into())),
        (Permission::ReadAcp, GranteeRef::Group(all_users)),
    ]);
    objects.buckets.put_acl(&foo, "tea", Some(foo.id()), choice).await.unwrap();
    let reader = bar.with_action(S3Action::GetBucketAcl);
    let shown = objects.buckets.acl(&reader, "tea").await.unwrap();
    assert_eq!(shown.owner, foo.id());
    let expected = vec![
        (user(&foo), Permission::FullControl),
        (user(&bar), Permission::Read),
        (user(&bar), Permission::Write),
        (Grantee::AllUsers, Permission::ReadAcp),
    ];
    assert_eq!(grants(&shown.acl), expected);
    let writer = bar.with_action(S3Action::PutBucketAcl);
    assert!(matches!(
        objects.buckets.put_acl(&writer, "tea", None, AclChoice::Private).await,
        Err(Error::AccessDenied)
    ));
    let other = objects.buckets.put_acl(&foo, "tea", Some(bar.id()), AclChoice::Private).await;
    assert!(matches!(other, Err(Error::AccessDenied)));
    objects.buckets.put_acl(&foo, "tea", None, AclChoice::Private).await.unwrap();
    assert!(matches!(objects.buckets.acl(&reader, "tea").await, Err(Error::AccessDenied)));
    assert_eq!(grants(&objects.buckets.acl(&foo, "tea").await.unwrap().acl), expected[..1]);
}

#[tokio::test(start_paused = true)]
async fn unknown_grantees_are_refused() {
    let AclFixture { objects, foo, .. } = fixture().await;
    let put = async |choice| objects.buckets.put_acl(&foo, "tea", None, choice).await;
    let grant_to = |to| AclChoice::Grants(vec![(Permission::Read, to)]);
    assert!(matches!(put(AclChoice::Canned("open".into())).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(put(grant_to(GranteeRef::Id("x".into()))).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(put(grant_to(GranteeRef::Group("x".into()))).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(put(grant_to(GranteeRef::Email("x@y".into()))).await, Err(Error::UnknownEmail(_))));
    let many = vec![(Permission::Read, GranteeRef::Id(foo.id().into())); 101];
    assert!(matches!(put(AclChoice::Grants(many.clone())).await, Err(Error::InvalidRequest(_))));
    put(AclChoice::Grants(many[1..].to_vec())).await.unwrap();
    assert_eq!(AclChoice::Private.resolve(&objects.users, "a", "b").await.unwrap(), None);
    assert_eq!(AclChoice::Canned("private".into()).resolve(&objects.users, "a", "b").await.unwrap(), None);
    let canned = AclChoice::Canned("bucket-owner-read".into()).resolve(&objects.users, "a", "b").await.unwrap();
    assert_eq!(grants(&canned.unwrap()), [(Grantee::User("b".into()), Permission::Read)]);
}

#[tokio::test(start_paused = true)]
async fn an_object_acl_changes_in_the_row_of_its_version() {
    let AclFixture { objects, foo, bar } = fixture().await;
    let bar = bar.with_action(S3Action::PutObjectAcl);
    let bucket = objects.buckets.find("tea").await.unwrap();
    let key = Bytes::from_static(b"key");
    let owned = |stamp| crate::rules::Version { owner: foo.id().to_owned(), ..version(stamp, false, Some(3)) };
    let (new, old) = (owned(Timestamp(20)), owned(Timestamp(10)));
    write_versions(&objects, &bucket, &key, &[new.clone(), old.clone()]).await;
    let named = VersionSpec::Id(old.id.text());
    let public = || AclChoice::Canned("public-read-write".into());
    for (spec, choice) in [(&named, public()), (&VersionSpec::Current, AclChoice::Canned("authenticated-read".into()))]
    {
        assert!(objects.put_object_acl(&bar, "tea", &key, spec, None, public()).await.is_err());
        let other = objects.put_object_acl(&foo, "tea", &key, spec, Some(bar.id()), public()).await;
        assert!(matches!(other, Err(Error::AccessDenied)));
        objects.put_object_acl(&foo, "tea", &key, spec, Some(foo.id()), choice).await.unwrap();
    }
    let shown = async |spec: &VersionSpec| {
        let shown = objects.object_acl(&foo, "tea", &key, spec).await.unwrap();
        assert_eq!(shown.owner, foo.id());
        grants(&shown.acl).into_iter().skip(1).collect::<Vec<_>>()
    };
    let all = [(Grantee::AllUsers, Permission::Read), (Grantee::AllUsers, Permission::Write)];
    assert_eq!(shown(&named).await, all);
    assert_eq!(shown(&VersionSpec::Current).await, [(Grantee::AuthenticatedUsers, Permission::Read)]);
    assert_eq!(shown(&VersionSpec::Id(new.id.text())).await, [(Grantee::AuthenticatedUsers, Permission::Read)]);
    let missing = objects.object_acl(&foo, "tea", &Bytes::from_static(b"none"), &VersionSpec::Current).await;
    assert!(matches!(missing, Err(Error::NoSuchKey)));
    objects.put_object_acl(&foo, "tea", &key, &named, None, AclChoice::Private).await.unwrap();
    assert_eq!(shown(&named).await, []);
}

#[tokio::test(start_paused = true)]
async fn the_public_access_block_refuses_grants_to_the_public() {
    let AclFixture { objects, foo, .. } = fixture().await;
    let bucket = objects.buckets.find("tea").await.unwrap();
    let key = Bytes::from_static(b"key");
    let owned = crate::rules::Version { owner: foo.id().to_owned(), ..version(Timestamp(10), true, Some(3)) };
    write_versions(&objects, &bucket, &key, &[owned]).await;
    let block = |bucket: &mut Bucket| {
        bucket.public_access = Some(PublicAccessBlock { block_acls: true, ..PublicAccessBlock::default() });
        Ok(())
    };
    objects.buckets.configure(&foo, "tea", block).await.unwrap();
    let public = || AclChoice::Canned("public-read".into());
    let current = VersionSpec::Current;
    let of_object = objects.put_object_acl(&foo, "tea", &key, &current, None, public()).await;
    assert!(matches!(of_object, Err(Error::AccessDenied)));
    assert!(matches!(objects.buckets.put_acl(&foo, "tea", None, public()).await, Err(Error::AccessDenied)));
    objects.put_object_acl(&foo, "tea", &key, &current, None, AclChoice::Private).await.unwrap();
}
