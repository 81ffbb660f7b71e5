//! Users of another S3 store, made here from what its operator exported.

use std::sync::Arc;

use larder_core::{Config, Core};
use larder_moving::rules::SourceUsers;
use larder_moving::{UserImportReport, import_users};
use larder_s3::users::{AttachmentChange, PolicyHolder};
use larder_s3::{Objects, ObjectsConfig};
use larder_testkit::VirtualClock;

use crate::move_world::ports;

/// An export of MinIO: erin's policy has no form here, carol has none, dave is disabled, fay's group lacks its policy.
const EXPORT: &str = r#"{
    "policies.json": {
        "only-photos": {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::photos/*"]}]},
        "infra": {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["admin:ServerInfo"]}]},
        "readwrite": {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}]},
        "readonly": {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:GetBucketLocation"],"Resource":["arn:aws:s3:::*"]}]},
        "consoleAdmin": {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["admin:*"]},{"Effect":"Allow","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}]}
    },
    "users.json": {
        "alice": {"secretKey":"sa","status":"enabled"}, "bob": {"secretKey":"sb","status":"enabled"},
        "carol": {"secretKey":"sc","status":"enabled"}, "dave": {"secretKey":"sd","status":"disabled"},
        "erin": {"secretKey":"se","status":"enabled"}, "fay": {"secretKey":"sf","status":"enabled"}
    },
    "groups.json": {
        "readers": {"status":"enabled","members":["bob"]}, "operators": {"status":"enabled","members":["fay"]}
    },
    "user_mappings.json": {
        "alice": {"policy":"readwrite"}, "dave": {"policy":"readonly"}, "erin": {"policy":"infra,readonly"}
    },
    "group_mappings.json": { "readers": {"policy":"readonly,only-photos"}, "operators": {"policy":"infra"} },
    "svcaccts.json": {
        "alice-app": {"parent":"alice","secretKey":"sk","sessionPolicy":null,"status":"on","expiration":"1970-01-01T00:00:00Z"},
        "alice-temp": {"parent":"alice","secretKey":"st","sessionPolicy":null,"status":"on","expiration":"2030-12-03T05:15:58Z"},
        "alice-less": {"parent":"alice","secretKey":"sl","sessionPolicy":{"Version":"2012-10-17"},"status":"on"}
    }
}"#;

async fn objects() -> Arc<Objects> {
    let ports = ports(Arc::new(VirtualClock::start()));
    let core = Core::start(ports, Config { single_process: true, ..Config::default() }).await.unwrap();
    Objects::new(core, Vec::new(), ObjectsConfig::default())
}

async fn import(objects: &Objects) -> UserImportReport {
    import_users(&objects.users, SourceUsers::parse(EXPORT).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_user_whose_limits_cannot_all_be_had_stays_disabled() {
    let objects = objects().await;
    let report = import(&objects).await;
    assert_eq!((report.users, report.policies, report.groups, report.keys), (6, 4, 2, 2), "{report:?}");
    for (key, enabled, policies, groups) in [
        ("alice", true, vec!["readwrite"], vec![]),
        ("bob", true, vec![], vec!["readers"]),
        ("carol", false, vec![], vec![]),
        ("dave", false, vec!["readonly"], vec![]),
        ("erin", false, vec![], vec![]),
        ("fay", false, vec![], vec![]),
    ] {
        let user = objects.users.find_by_key(key).await.unwrap();
        assert_eq!(
            (user.enabled, user.policies.clone(), user.groups.clone()),
            (enabled, strings(policies), strings(groups)),
            "{key}"
        );
    }
    let alice = objects.users.find_by_key("alice").await.unwrap();
    let keys: Vec<_> = alice.further_keys.iter().map(|key| (&*key.id, key.limits.expires.is_some())).collect();
    assert_eq!(keys, [("alice-app", false), ("alice-temp", true)]);
    for note in [
        "policy infra: ",
        "user carol: it stays disabled, since no policy",
        "user erin: it stays disabled, since not all",
    ] {
        assert!(report.notes.iter().any(|line| line.starts_with(note)), "{note}: {:?}", report.notes);
    }
}

#[tokio::test]
async fn an_import_again_changes_nothing() {
    let objects = objects().await;
    let first = import(&objects).await;
    let users = objects.users.list("", 100).await.unwrap();
    let again = import(&objects).await;
    assert_eq!(
        (again.users, again.policies, again.groups, again.keys),
        (first.users, first.policies, first.groups, first.keys)
    );
    assert_eq!(objects.users.list("", 100).await.unwrap(), users);
}

#[tokio::test]
async fn a_key_that_is_another_users_here_is_not_taken() {
    let objects = objects().await;
    let key = Some(("alice".to_owned(), "other".to_owned()));
    objects.users.create("x@y", "x", false, key).await.unwrap();
    let report = import(&objects).await;
    let alice = objects.users.find_by_key("alice").await.unwrap();
    assert_eq!((&*alice.email, alice.policies.len()), ("x@y", 0));
    assert!(report.notes.contains(&"user alice: its key is another one's here".to_owned()), "{:?}", report.notes);
    assert!(alice.further_keys.is_empty() && report.keys == 0, "its further keys were once given to the other user");
}

#[tokio::test]
async fn a_policy_or_a_group_of_the_same_name_once_gave_more_rights() {
    let objects = objects().await;
    let users = &objects.users;
    let all = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#;
    users.put_policy("only-photos", all).await.unwrap();
    users.create_group("operators").await.unwrap();
    users.change_policies(PolicyHolder::Group("operators"), &["readwrite"], AttachmentChange::Attach).await.unwrap();
    let export = EXPORT.replace(r#""policy":"readwrite""#, r#""policy":"only-photos""#);
    let report = import_users(users, SourceUsers::parse(&export).unwrap()).await.unwrap();
    for key in ["alice", "bob", "fay"] {
        let user = users.find_by_key(key).await.unwrap();
        assert!(!user.enabled && user.policies.is_empty(), "{key}: {user:?}");
    }
    assert!(users.find_by_key("fay").await.unwrap().groups.is_empty());
    assert_eq!(users.policy("only-photos").await.unwrap().document, all, "what is here stays");
    for note in ["policy only-photos: there is another one", "group operators: there is one with other policies"] {
        assert!(report.notes.iter().any(|line| line.starts_with(note)), "{note}: {:?}", report.notes);
    }
}

#[tokio::test]
async fn a_built_in_policy_that_the_source_changed_is_not_given() {
    let objects = objects().await;
    let export = EXPORT.replace(r#""Effect":"Allow","Action":["s3:*"]"#, r#""Effect":"Deny","Action":["s3:*"]"#);
    import_users(&objects.users, SourceUsers::parse(&export).unwrap()).await.unwrap();
    let alice = objects.users.find_by_key("alice").await.unwrap();
    assert!(!alice.enabled && alice.policies.is_empty(), "{alice:?}");
}

fn strings(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}
