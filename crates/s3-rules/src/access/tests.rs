use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::ids::{BucketId, VersionId};
use serde_json::{Value as Json, json};

use super::super::acl::{Grant, Grantee};
use super::super::object_lock::ObjectLock;
use super::super::ownership::ObjectOwnership;
use super::super::policy::BucketPolicy;
use super::super::public_access::PublicAccessBlock;
use super::super::version::{Etag, Object, ObjectBody};
use super::*;

/// The callers: the bucket belongs to `owner`, its foreign object to `writer`, and `anonymous` does not sign.
const CALLERS: [&str; 5] = ["admin", "owner", "writer", "other", "anonymous"];

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
        created: Timestamp::ZERO,
        ..User::default()
    };
    (name != "anonymous").then_some(user)
}

fn bucket() -> Bucket {
    Bucket::new("tea", BucketId([1; 16]), "owner", Timestamp(1))
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
    Bucket { policy: Some(Arc::new(BucketPolicy::parse("tea", &text).unwrap())), ..bucket() }
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
        encryption: None,
        lock: ObjectLock::default(),
    };
    Version {
        id: VersionId([1; 16]),
        null: true,
        modified: Timestamp(1),
        owner: owner.to_owned(),
        object: Some(object),
    }
}

fn marker(owner: &str) -> Version {
    Version { object: None, ..version(owner, &[]) }
}

fn list() -> AccessRequest<'static> {
    S3Action::ListBucket.on_bucket()
}

fn on_key(action: S3Action) -> AccessRequest<'static> {
    action.on_key(b"a/b")
}

fn put() -> AccessRequest<'static> {
    on_key(S3Action::PutObject)
}

fn on(version: &Version, action: S3Action) -> AccessRequest<'_> {
    action.on_version(b"a/b", Some(version))
}

fn get(version: &Version) -> AccessRequest<'_> {
    on(version, S3Action::GetObject)
}

/// Checks that exactly the admin and the `expected` ones of [`CALLERS`] are allowed.
#[track_caller]
fn check_allowed(bucket: &Bucket, request: &AccessRequest<'_>, expected: &[&str]) {
    let at = AccessContext { source: Some("10.1.2.3".parse().unwrap()), ..AccessContext::default() };
    let is_allowed = |name: &&str| is_allowed(bucket, user(name).as_ref(), None, request, &at);
    let allowed: Vec<_> = CALLERS.into_iter().filter(is_allowed).collect();
    assert_eq!(allowed, [&["admin"], expected].concat(), "{request:?}");
}

#[test]
fn without_grants_only_the_owner_uses_a_bucket() {
    for request in [
        list(),
        put(),
        on_key(S3Action::DeleteObject),
        S3Action::GetBucketAcl.on_bucket(),
        S3Action::PutBucketAcl.on_bucket(),
        S3Action::DeleteBucket.on_bucket(),
        S3Action::PutBucketPolicy.on_bucket(),
        on_key(S3Action::GetObject),
    ] {
        check_allowed(&bucket(), &request, &["owner"]);
    }
}

#[test]
fn the_owner_of_an_object_reads_it_and_the_owner_of_the_bucket_deletes_it() {
    let (owned_version, foreign_version) = (version("owner", &[]), version("writer", &[]));
    for action in [S3Action::GetObject, S3Action::GetObjectAcl, S3Action::PutObjectAcl] {
        check_allowed(&bucket(), &on(&owned_version, action), &["owner"]);
        check_allowed(&bucket(), &on(&foreign_version, action), &["writer"]);
    }
    check_allowed(&bucket(), &on(&foreign_version, S3Action::DeleteObject), &["owner"]);
    check_allowed(&bucket(), &on(&foreign_version, S3Action::GetObjectTagging), &["owner"]);
    check_allowed(&bucket(), &get(&marker("writer")), &["owner"]);
}

#[test]
fn an_object_without_owner_is_read_through_grants_only() {
    check_allowed(&bucket(), &get(&version("", &[])), &[]);
    check_allowed(
        &bucket(),
        &get(&version("", &[(Grantee::AllUsers, Permission::Read)])),
        &["owner", "writer", "other", "anonymous"],
    );
}

#[test]
fn grants_of_the_bucket() {
    let everybody = ["owner", "writer", "other", "anonymous"];
    let signed = ["owner", "writer", "other"];
    let cases: &[(Grantee, Permission, AccessRequest<'_>, &[&str])] = &[
        (Grantee::AllUsers, Permission::Read, list(), &everybody),
        (Grantee::AllUsers, Permission::Read, put(), &["owner"]),
        (Grantee::AllUsers, Permission::Write, put(), &everybody),
        (Grantee::AllUsers, Permission::Write, on_key(S3Action::DeleteObject), &everybody),
        (Grantee::AllUsers, Permission::Write, on_key(S3Action::DeleteObjectVersion), &["owner"]),
        (Grantee::AllUsers, Permission::Write, list(), &["owner"]),
        (Grantee::AllUsers, Permission::FullControl, list(), &everybody),
        (Grantee::AllUsers, Permission::FullControl, S3Action::DeleteBucket.on_bucket(), &["owner"]),
        (Grantee::AuthenticatedUsers, Permission::Read, list(), &signed),
        (Grantee::LogDelivery, Permission::FullControl, list(), &["owner"]),
        (to("writer"), Permission::Write, put(), &["owner", "writer"]),
        (to("writer"), Permission::Write, on_key(S3Action::NewObjectAcl), &["owner", "writer"]),
        (to("writer"), Permission::Write, on_key(S3Action::PutObjectAcl), &["owner"]),
        (to("writer"), Permission::FullControl, put(), &["owner", "writer"]),
        (to("KEY-writer"), Permission::Write, put(), &["owner"]),
        (to("writer"), Permission::ReadAcp, S3Action::GetBucketAcl.on_bucket(), &["owner", "writer"]),
        (to("writer"), Permission::ReadAcp, S3Action::PutBucketAcl.on_bucket(), &["owner"]),
        (to("other"), Permission::WriteAcp, S3Action::PutBucketAcl.on_bucket(), &["owner", "other"]),
        // A caller who may list the bucket may learn that an object does not exist.
        (to("other"), Permission::Read, on_key(S3Action::GetObject), &["owner", "other"]),
        (to("other"), Permission::Write, on_key(S3Action::GetObject), &["owner"]),
        (to("other"), Permission::Read, on_key(S3Action::GetObjectAcl), &["owner", "other"]),
        (to("other"), Permission::ReadAcp, on_key(S3Action::GetObjectAcl), &["owner"]),
    ];
    for (grantee, permission, request, expected) in cases {
        check_allowed(&with_acl(&[(grantee.clone(), *permission)]), request, expected);
    }
}

#[test]
fn grants_of_the_bucket_do_not_open_its_objects() {
    let open = with_acl(&[(Grantee::AllUsers, Permission::FullControl)]);
    let object = version("writer", &[]);
    check_allowed(&open, &get(&object), &["writer"]);
    check_allowed(&open, &on(&object, S3Action::PutObjectAcl), &["writer"]);
    check_allowed(&open, &get(&marker("writer")), &["owner", "writer", "other", "anonymous"]);
}

#[test]
fn grants_of_the_object() {
    let everybody = ["owner", "writer", "other", "anonymous"];
    let cases: &[(Grantee, Permission, S3Action, &[&str])] = &[
        (Grantee::AllUsers, Permission::Read, S3Action::GetObject, &everybody),
        (Grantee::AllUsers, Permission::Read, S3Action::GetObjectAcl, &["writer"]),
        (Grantee::AllUsers, Permission::Write, S3Action::DeleteObject, &["owner"]),
        (Grantee::AuthenticatedUsers, Permission::Read, S3Action::GetObject, &["owner", "writer", "other"]),
        (to("owner"), Permission::FullControl, S3Action::PutObjectAcl, &["owner", "writer"]),
        (to("other"), Permission::ReadAcp, S3Action::GetObjectAcl, &["writer", "other"]),
        (to("other"), Permission::ReadAcp, S3Action::GetObject, &["writer"]),
    ];
    for (grantee, permission, action, expected) in cases {
        let object = version("writer", &[(grantee.clone(), *permission)]);
        check_allowed(&bucket(), &on(&object, *action), expected);
    }
}

#[test]
fn grants_to_the_public_can_be_ignored() {
    let ignoring = |bucket| Bucket {
        public_access: Some(PublicAccessBlock { ignore_acls: true, ..PublicAccessBlock::default() }),
        ..bucket
    };
    check_allowed(&ignoring(with_acl(&[(Grantee::AllUsers, Permission::Read)])), &list(), &["owner"]);
    check_allowed(&ignoring(with_acl(&[(Grantee::AuthenticatedUsers, Permission::Read)])), &list(), &["owner"]);
    check_allowed(&ignoring(with_acl(&[(to("other"), Permission::Read)])), &list(), &["owner", "other"]);
    let object = version("owner", &[(Grantee::AllUsers, Permission::Read)]);
    check_allowed(&ignoring(bucket()), &get(&object), &["owner"]);
    check_allowed(&bucket(), &get(&object), &["owner", "writer", "other", "anonymous"]);
}

#[test]
fn under_enforced_ownership_the_bucket_owner_owns_all_and_no_grant_counts() {
    let enforced = |bucket| Bucket { ownership: Some(ObjectOwnership::BucketOwnerEnforced), ..bucket };
    let open = with_acl(&[(Grantee::AllUsers, Permission::FullControl), (to("other"), Permission::FullControl)]);
    let granted = version("writer", &[(Grantee::AllUsers, Permission::FullControl), (to("other"), Permission::Read)]);
    for action in [S3Action::GetObject, S3Action::GetObjectAcl, S3Action::GetObjectTagging] {
        check_allowed(&enforced(open.clone()), &on(&granted, action), &["owner"]);
    }
    for request in [list(), put(), on_key(S3Action::GetObject), S3Action::GetBucketAcl.on_bucket()] {
        check_allowed(&enforced(open.clone()), &request, &["owner"]);
    }
    let policy = enforced(with_policy(json!({"Action": "s3:GetObject", "Principal": {"AWS": "other"}})));
    check_allowed(&policy, &get(&granted), &["owner", "other"]);
    for setting in [ObjectOwnership::BucketOwnerPreferred, ObjectOwnership::ObjectWriter] {
        let bucket = Bucket { ownership: Some(setting), ..open.clone() };
        check_allowed(&bucket, &get(&version("writer", &[])), &["writer"]);
        check_allowed(&bucket, &put(), &["owner", "writer", "other", "anonymous"]);
    }
}

#[test]
fn policies_allow() {
    let object = version("owner", &[]);
    check_allowed(
        &with_policy(json!({"Action": "s3:GetObject"})),
        &get(&object),
        &["owner", "writer", "other", "anonymous"],
    );
    check_allowed(&with_policy(json!({"Action": "s3:GetObject"})), &put(), &["owner"]);
    check_allowed(&with_policy(json!({"Principal": {"AWS": "other"}})), &put(), &["owner", "other"]);
    check_allowed(
        &with_policy(json!({"Principal": {"AWS": "other"}})),
        &S3Action::DeleteBucket.on_bucket(),
        &["owner", "other"],
    );
    let tagged = json!({"Condition": {"StringEquals": {"s3:ExistingObjectTag/team": "red"}}});
    check_allowed(&with_policy(tagged.clone()), &get(&object), &["owner", "writer", "other", "anonymous"]);
    check_allowed(&with_policy(tagged), &put(), &["owner"]);
    let near = json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}});
    check_allowed(&with_policy(near), &put(), &["owner", "writer", "other", "anonymous"]);
    let far = json!({"Condition": {"IpAddress": {"aws:SourceIp": "11.0.0.0/8"}}});
    check_allowed(&with_policy(far), &put(), &["owner"]);
}

#[test]
fn policies_deny_even_owners_and_what_grants_give() {
    let object = version("writer", &[(Grantee::AllUsers, Permission::Read)]);
    let deny = |with: Json| {
        let mut with = with;
        with["Effect"] = json!("Deny");
        with_policy(with)
    };
    check_allowed(&deny(json!({})), &get(&object), &[]);
    check_allowed(&deny(json!({})), &list(), &[]);
    check_allowed(&deny(json!({"Principal": {"AWS": "other"}})), &get(&object), &["owner", "writer", "anonymous"]);
    check_allowed(&deny(json!({"Action": "s3:PutObject"})), &get(&object), &["owner", "writer", "other", "anonymous"]);
    let open =
        Bucket { acl: acl(&[(Grantee::AllUsers, Permission::Write)]), ..deny(json!({"Action": "s3:PutObject"})) };
    check_allowed(&open, &put(), &[]);
}

#[test]
fn an_owner_can_always_correct_the_policy() {
    let locked = with_policy(json!({"Effect": "Deny"}));
    for action in POLICY_ACTIONS {
        check_allowed(&locked, &action.on_bucket(), &["owner"]);
    }
    check_allowed(&locked, &S3Action::PutBucketAcl.on_bucket(), &[]);
}

#[test]
fn a_restricted_bucket_ignores_a_public_policy() {
    let restricted = |bucket| Bucket {
        public_access: Some(PublicAccessBlock { restrict_buckets: true, ..PublicAccessBlock::default() }),
        ..bucket
    };
    check_allowed(&restricted(with_policy(json!({}))), &put(), &["owner"]);
    let foreign = version("writer", &[]);
    check_allowed(&restricted(with_policy(json!({}))), &get(&foreign), &["owner", "writer"]);
    check_allowed(&restricted(with_policy(json!({"Principal": {"AWS": "other"}}))), &put(), &["owner", "other"]);
    check_allowed(&restricted(with_policy(json!({"Effect": "Deny"}))), &put(), &[]);
    let granted = Bucket { acl: acl(&[(to("other"), Permission::Write)]), ..restricted(with_policy(json!({}))) };
    check_allowed(&granted, &put(), &["owner", "other"]);
}

/// Whether each of [`CALLERS`] is allowed whose attached policies decide this.
fn allowed_with(bucket: &Bucket, attached: PolicyDecision, request: &AccessRequest<'_>) -> Vec<&'static str> {
    let at = AccessContext::default();
    let attached = |name: &str| (name != "anonymous").then_some(attached);
    CALLERS.into_iter().filter(|name| is_allowed(bucket, user(name).as_ref(), attached(name), request, &at)).collect()
}

#[test]
fn attached_policies_take_the_place_of_ownership() {
    let own = version("owner", &[]);
    for request in [list(), put(), get(&own), S3Action::PutBucketPolicy.on_bucket()] {
        let allowed = |attached| allowed_with(&bucket(), attached, &request);
        assert_eq!(allowed(PolicyDecision::Neutral), ["admin"], "{request:?}");
        assert_eq!(allowed(PolicyDecision::Deny), ["admin"], "{request:?}");
        assert_eq!(allowed(PolicyDecision::Allow), ["admin", "owner", "writer", "other"], "{request:?}");
    }
}

#[test]
fn the_allow_of_a_bucket_is_enough_and_a_deny_of_either_side_is_final() {
    let allowing = with_policy(json!({}));
    assert_eq!(allowed_with(&allowing, PolicyDecision::Neutral, &list()), CALLERS);
    assert_eq!(allowed_with(&allowing, PolicyDecision::Deny, &list()), ["admin", "anonymous"]);
    let denying = with_policy(json!({"Effect": "Deny"}));
    assert_eq!(allowed_with(&denying, PolicyDecision::Allow, &list()), ["admin"]);
    // The owner corrects a policy that locks it out, where an attached policy allows that.
    let correct = S3Action::DeleteBucketPolicy.on_bucket();
    assert_eq!(allowed_with(&denying, PolicyDecision::Allow, &correct), ["admin", "owner"]);
    assert_eq!(allowed_with(&denying, PolicyDecision::Neutral, &correct), ["admin"]);
    let at = AccessContext::default();
    let is_denied = |attached| is_denied(&bucket(), user("owner").as_ref(), attached, &put(), &at);
    assert!(is_denied(Some(PolicyDecision::Deny)) && !is_denied(Some(PolicyDecision::Neutral)) && !is_denied(None));
}

#[test]
fn grants_count_beside_attached_policies_but_not_those_of_an_owner_to_itself() {
    let neutral = |bucket: &Bucket, request: &AccessRequest<'_>| allowed_with(bucket, PolicyDecision::Neutral, request);
    let granted = with_acl(&[(to("owner"), Permission::FullControl), (to("other"), Permission::Read)]);
    assert_eq!(neutral(&granted, &list()), ["admin", "other"]);
    let public = with_acl(&[(Grantee::AuthenticatedUsers, Permission::Read)]);
    assert_eq!(neutral(&public, &list()), ["admin", "owner", "writer", "other"]);
    let of_writer = version("writer", &[(to("writer"), Permission::FullControl), (to("owner"), Permission::Read)]);
    assert_eq!(neutral(&bucket(), &get(&of_writer)), ["admin", "owner"]);
}
