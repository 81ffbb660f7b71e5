use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value as Json, json};

use super::super::acl::{Grant, Grantee};
use super::super::ids::{BucketId, VersionId};
use super::super::policy::Policy;
use super::super::public_access::PublicAccess;
use super::super::version::{Etag, Object, ObjectBody};
use super::*;

/// Everybody there is: the bucket is `owner`'s, its foreign object `writer`'s.
const PEOPLE: [&str; 5] = ["admin", "owner", "writer", "other", "nobody"];

fn user(name: &str) -> Option<User> {
    let user = User {
        id: name.to_owned(),
        key_id: format!("KEY-{name}"),
        secret: String::new(),
        name: name.to_owned(),
        email: format!("{name}@example.com"),
        display_name: name.to_owned(),
        enabled: true,
        admin: name == "admin",
        created: 0,
    };
    (name != "nobody").then_some(user)
}

fn bucket() -> Bucket {
    Bucket::new("tea", BucketId([1; 16]), "owner", 1)
}

fn with_acl(grants: &[(Grantee, Permission)]) -> Bucket {
    Bucket { acl: acl(grants), ..bucket() }
}

fn with_policy(statement: Json) -> Bucket {
    let mut all = json!({"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "*"});
    for (name, value) in statement.as_object().unwrap() {
        all[name] = value.clone();
    }
    let text = json!({"Version": "2012-10-17", "Statement": all}).to_string();
    Bucket { policy: Some(Arc::new(Policy::parse("tea", &text).unwrap())), ..bucket() }
}

fn acl(grants: &[(Grantee, Permission)]) -> Acl {
    let grants = grants.iter().map(|(grantee, permission)| Grant { grantee: grantee.clone(), permission: *permission });
    Acl { grants: grants.collect() }
}

fn to(name: &str) -> Grantee {
    Grantee::User(name.to_owned())
}

fn version(owner: &str, grants: &[(Grantee, Permission)]) -> Version {
    let object = Object {
        body: ObjectBody::Inline(Bytes::new()),
        etag: Etag { md5: [0; 16], parts: None },
        headers: vec![],
        meta: vec![],
        tags: vec![super::super::tags::Tag { key: "team".into(), value: "red".into() }],
        acl: (!grants.is_empty()).then(|| acl(grants)),
        checksum: None,
        upload: None,
    };
    Version { id: VersionId([1; 16]), null: true, modified: 1, owner: owner.to_owned(), object: Some(object) }
}

fn marker(owner: &str) -> Version {
    Version { object: None, ..version(owner, &[]) }
}

fn on_bucket(action: &'static str, permission: Option<Permission>) -> Asked<'static> {
    Asked { action, permission, key: None, version: None }
}

fn on_key(action: &'static str, permission: Option<Permission>) -> Asked<'static> {
    Asked { key: Some(b"a/b"), ..on_bucket(action, permission) }
}

fn on<'a>(version: &'a Version, action: &'static str, permission: Permission) -> Asked<'a> {
    Asked { version: Some(version), ..on_key(action, Some(permission)) }
}

fn list() -> Asked<'static> {
    on_bucket("s3:ListBucket", Some(Permission::Read))
}

fn put() -> Asked<'static> {
    on_key("s3:PutObject", Some(Permission::Write))
}

fn get(version: &Version) -> Asked<'_> {
    on(version, "s3:GetObject", Permission::Read)
}

/// Who of [`PEOPLE`], beside the admin who always may, may.
#[track_caller]
fn may(bucket: &Bucket, asked: &Asked<'_>, expected: &[&str]) {
    let at = Circumstances { source: Some("10.1.2.3".parse().unwrap()), ..Circumstances::default() };
    let allowed: Vec<_> = PEOPLE.into_iter().filter(|name| allows(bucket, user(name).as_ref(), asked, &at)).collect();
    assert_eq!(allowed, [&["admin"], expected].concat(), "{asked:?}");
}

#[test]
fn without_grants_a_bucket_is_its_owners() {
    for asked in [
        list(),
        put(),
        on_key("s3:DeleteObject", Some(Permission::Write)),
        on_bucket("s3:GetBucketAcl", Some(Permission::ReadAcp)),
        on_bucket("s3:PutBucketAcl", Some(Permission::WriteAcp)),
        on_bucket("s3:DeleteBucket", None),
        on_bucket("s3:PutBucketPolicy", None),
        on_key("s3:GetObject", Some(Permission::Read)),
    ] {
        may(&bucket(), &asked, &["owner"]);
    }
}

#[test]
fn an_object_is_read_by_its_owner_and_deleted_by_the_buckets() {
    let (own, foreign) = (version("owner", &[]), version("writer", &[]));
    for (action, permission) in [
        ("s3:GetObject", Permission::Read),
        ("s3:GetObjectAcl", Permission::ReadAcp),
        ("s3:PutObjectAcl", Permission::WriteAcp),
    ] {
        may(&bucket(), &on(&own, action, permission), &["owner"]);
        may(&bucket(), &on(&foreign, action, permission), &["writer"]);
    }
    may(&bucket(), &on(&foreign, "s3:DeleteObject", Permission::Write), &["owner"]);
    let tagging = Asked { permission: None, ..get(&foreign) };
    may(&bucket(), &tagging, &["owner"]);
    may(&bucket(), &get(&marker("writer")), &["owner"]);
}

#[test]
fn an_object_nobody_owns_is_read_by_nobody() {
    may(&bucket(), &get(&version("", &[])), &[]);
    may(
        &bucket(),
        &get(&version("", &[(Grantee::AllUsers, Permission::Read)])),
        &["owner", "writer", "other", "nobody"],
    );
}

#[test]
fn grants_of_the_bucket() {
    let everybody = ["owner", "writer", "other", "nobody"];
    let signed = ["owner", "writer", "other"];
    let cases: &[(Grantee, Permission, Asked<'_>, &[&str])] = &[
        (Grantee::AllUsers, Permission::Read, list(), &everybody),
        (Grantee::AllUsers, Permission::Read, put(), &["owner"]),
        (Grantee::AllUsers, Permission::Write, put(), &everybody),
        (Grantee::AllUsers, Permission::Write, on_key("s3:DeleteObject", Some(Permission::Write)), &everybody),
        (Grantee::AllUsers, Permission::Write, list(), &["owner"]),
        (Grantee::AllUsers, Permission::FullControl, list(), &everybody),
        (Grantee::AllUsers, Permission::FullControl, on_bucket("s3:DeleteBucket", None), &["owner"]),
        (Grantee::AuthenticatedUsers, Permission::Read, list(), &signed),
        (Grantee::LogDelivery, Permission::FullControl, list(), &["owner"]),
        (to("writer"), Permission::Write, put(), &["owner", "writer"]),
        (to("writer"), Permission::FullControl, put(), &["owner", "writer"]),
        (to("KEY-writer"), Permission::Write, put(), &["owner"]),
        (
            to("writer"),
            Permission::ReadAcp,
            on_bucket("s3:GetBucketAcl", Some(Permission::ReadAcp)),
            &["owner", "writer"],
        ),
        (to("writer"), Permission::ReadAcp, on_bucket("s3:PutBucketAcl", Some(Permission::WriteAcp)), &["owner"]),
        (
            to("other"),
            Permission::WriteAcp,
            on_bucket("s3:PutBucketAcl", Some(Permission::WriteAcp)),
            &["owner", "other"],
        ),
        // Who may list may learn that there is no such object.
        (to("other"), Permission::Read, on_key("s3:GetObject", Some(Permission::Read)), &["owner", "other"]),
        (to("other"), Permission::Write, on_key("s3:GetObject", Some(Permission::Read)), &["owner"]),
        (to("other"), Permission::Read, on_key("s3:GetObjectAcl", Some(Permission::ReadAcp)), &["owner", "other"]),
        (to("other"), Permission::ReadAcp, on_key("s3:GetObjectAcl", Some(Permission::ReadAcp)), &["owner"]),
    ];
    for (grantee, permission, asked, expected) in cases {
        may(&with_acl(&[(grantee.clone(), *permission)]), asked, expected);
    }
}

#[test]
fn grants_of_the_bucket_open_no_object() {
    let open = with_acl(&[(Grantee::AllUsers, Permission::FullControl)]);
    let object = version("writer", &[]);
    may(&open, &get(&object), &["writer"]);
    may(&open, &on(&object, "s3:PutObjectAcl", Permission::WriteAcp), &["writer"]);
    may(&open, &get(&marker("writer")), &["owner", "writer", "other", "nobody"]);
}

#[test]
fn grants_of_the_object() {
    let everybody = ["owner", "writer", "other", "nobody"];
    let cases: &[(Grantee, Permission, &str, Permission, &[&str])] = &[
        (Grantee::AllUsers, Permission::Read, "s3:GetObject", Permission::Read, &everybody),
        (Grantee::AllUsers, Permission::Read, "s3:GetObjectAcl", Permission::ReadAcp, &["writer"]),
        (Grantee::AllUsers, Permission::Write, "s3:DeleteObject", Permission::Write, &["owner"]),
        (
            Grantee::AuthenticatedUsers,
            Permission::Read,
            "s3:GetObject",
            Permission::Read,
            &["owner", "writer", "other"],
        ),
        (to("owner"), Permission::FullControl, "s3:PutObjectAcl", Permission::WriteAcp, &["owner", "writer"]),
        (to("other"), Permission::ReadAcp, "s3:GetObjectAcl", Permission::ReadAcp, &["writer", "other"]),
        (to("other"), Permission::ReadAcp, "s3:GetObject", Permission::Read, &["writer"]),
    ];
    for (grantee, permission, action, asked, expected) in cases {
        let object = version("writer", &[(grantee.clone(), *permission)]);
        may(&bucket(), &on(&object, action, *asked), expected);
    }
}

#[test]
fn grants_to_the_public_can_be_ignored() {
    let ignoring = |bucket| Bucket {
        public_access: Some(PublicAccess { ignore_acls: true, ..PublicAccess::default() }),
        ..bucket
    };
    may(&ignoring(with_acl(&[(Grantee::AllUsers, Permission::Read)])), &list(), &["owner"]);
    may(&ignoring(with_acl(&[(Grantee::AuthenticatedUsers, Permission::Read)])), &list(), &["owner"]);
    may(&ignoring(with_acl(&[(to("other"), Permission::Read)])), &list(), &["owner", "other"]);
    let object = version("owner", &[(Grantee::AllUsers, Permission::Read)]);
    may(&ignoring(bucket()), &get(&object), &["owner"]);
    may(&bucket(), &get(&object), &["owner", "writer", "other", "nobody"]);
}

#[test]
fn policies_allow() {
    let object = version("owner", &[]);
    may(&with_policy(json!({"Action": "s3:GetObject"})), &get(&object), &["owner", "writer", "other", "nobody"]);
    may(&with_policy(json!({"Action": "s3:GetObject"})), &put(), &["owner"]);
    may(&with_policy(json!({"Principal": {"AWS": "other"}})), &put(), &["owner", "other"]);
    may(&with_policy(json!({"Principal": {"AWS": "other"}})), &on_bucket("s3:DeleteBucket", None), &["owner", "other"]);
    let tagged = json!({"Condition": {"StringEquals": {"s3:ExistingObjectTag/team": "red"}}});
    may(&with_policy(tagged.clone()), &get(&object), &["owner", "writer", "other", "nobody"]);
    may(&with_policy(tagged), &put(), &["owner"]);
    let near = json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}});
    may(&with_policy(near), &put(), &["owner", "writer", "other", "nobody"]);
    let far = json!({"Condition": {"IpAddress": {"aws:SourceIp": "11.0.0.0/8"}}});
    may(&with_policy(far), &put(), &["owner"]);
}

#[test]
fn policies_deny_even_owners_and_what_grants_give() {
    let object = version("writer", &[(Grantee::AllUsers, Permission::Read)]);
    let deny = |with: Json| {
        let mut with = with;
        with["Effect"] = json!("Deny");
        with_policy(with)
    };
    may(&deny(json!({})), &get(&object), &[]);
    may(&deny(json!({})), &list(), &[]);
    may(&deny(json!({"Principal": {"AWS": "other"}})), &get(&object), &["owner", "writer", "nobody"]);
    may(&deny(json!({"Action": "s3:PutObject"})), &get(&object), &["owner", "writer", "other", "nobody"]);
    let open =
        Bucket { acl: acl(&[(Grantee::AllUsers, Permission::Write)]), ..deny(json!({"Action": "s3:PutObject"})) };
    may(&open, &put(), &[]);
}

#[test]
fn an_owner_can_always_mend_the_policy() {
    let locked = with_policy(json!({"Effect": "Deny"}));
    for action in ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"] {
        may(&locked, &on_bucket(action, None), &["owner"]);
    }
    may(&locked, &on_bucket("s3:PutBucketAcl", Some(Permission::WriteAcp)), &[]);
}

#[test]
fn restricted_buckets_count_no_policy_for_the_public() {
    let restricted = |bucket| Bucket {
        public_access: Some(PublicAccess { restrict_buckets: true, ..PublicAccess::default() }),
        ..bucket
    };
    may(&restricted(with_policy(json!({}))), &put(), &["owner"]);
    let foreign = version("writer", &[]);
    may(&restricted(with_policy(json!({}))), &get(&foreign), &["owner", "writer"]);
    may(&restricted(with_policy(json!({"Principal": {"AWS": "other"}}))), &put(), &["owner", "other"]);
    may(&restricted(with_policy(json!({"Effect": "Deny"}))), &put(), &[]);
    let granted = Bucket { acl: acl(&[(to("other"), Permission::Write)]), ..restricted(with_policy(json!({}))) };
    may(&granted, &put(), &["owner", "other"]);
}
