//! Users, over a memory store.

use super::super::buckets::testing::{S3TestStore, caller};
use super::*;
use crate::acl_choice::AclChoice;
use crate::rules::KeyLimits;

fn key(id: &str, secret: &str) -> Option<(String, String)> {
    Some((id.to_owned(), secret.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn users_are_found_by_all_their_names() {
    let stores = S3TestStore::new();
    let objects = stores.gateway().await;
    let user = objects.users.create("foo@example.com", "Foo", false, None).await.unwrap();
    assert_eq!((user.key_id.len(), user.secret.len(), user.id.len()), (20, 40, 64));
    assert_eq!((user.display_name.as_str(), user.enabled, user.admin), ("foo", true, false));
    assert_eq!(objects.users.find_by_key(&user.key_id).await.unwrap(), user);
    assert_eq!(objects.users.find_by_id(&user.id).await.unwrap(), Some(Arc::clone(&user)));
    assert_eq!(objects.users.find_by_email("foo@example.com").await.unwrap(), Some(Arc::clone(&user)));
    assert_eq!(objects.users.display_name(&user.id).await, "foo");
    assert_eq!(objects.users.display_name("nobody").await, "nobody");
    assert!(matches!(objects.users.find_by_key("nobody").await, Err(Error::UnknownKey(_))));
    assert_eq!(objects.users.find_by_id("nobody").await.unwrap(), None);
    assert_eq!(objects.users.find_by_email("nobody@example.com").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn taken_and_malformed_users_are_refused() {
    let objects = S3TestStore::new().gateway().await;
    objects.users.create("a@b", "A", false, key("key/+ ü", "s")).await.unwrap();
    assert!(matches!(objects.users.create("a@b", "B", false, None).await, Err(Error::UserExists)));
    for (email, name, key) in [
        ("c@d", "C", key("key/+ ü", "s")),
        ("c", "C", None),
        ("c@d", "", None),
        ("c@d", "C", key("", "s")),
        ("c@d", "C", key("k", "s\n")),
    ] {
        let refused = objects.users.create(email, name, false, key).await;
        assert!(matches!(refused, Err(Error::InvalidUser(_))), "{email} {name}");
    }
    assert_eq!(objects.users.find_by_key("key/+ ü").await.unwrap().secret, "s");
    assert_eq!(objects.users.list("", 10).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn user_changes_hold_at_once_here_and_elsewhere_in_two_seconds() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let user = gateway_a.users.create("foo@example.com", "Foo", false, None).await.unwrap();
    assert_eq!(gateway_b.users.find_by_key(&user.key_id).await.unwrap(), user);
    gateway_a.users.find_by_key(&user.key_id).await.unwrap();
    let change = UserChange {
        email: Some("bar@example.com".into()),
        name: Some("Bar".into()),
        enabled: Some(false),
        new_secret: true,
    };
    let changed = gateway_a.users.update(&user.key_id, change).await.unwrap();
    assert_eq!((&changed.id, &changed.key_id), (&user.id, &user.key_id));
    assert_ne!(changed.secret, user.secret);
    assert_eq!((changed.display_name.as_str(), changed.enabled), ("bar", false));
    assert_eq!(gateway_a.users.find_by_key(&user.key_id).await.unwrap(), changed);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(gateway_b.users.find_by_key(&user.key_id).await.unwrap(), changed);
    assert_eq!(gateway_b.users.find_by_email("foo@example.com").await.unwrap(), None);
    gateway_b.users.create("foo@example.com", "New", false, None).await.unwrap();
    let back = UserChange { email: Some("foo@example.com".into()), ..UserChange::default() };
    assert!(matches!(gateway_a.users.update(&user.key_id, back).await, Err(Error::UserExists)));
    let unknown = gateway_a.users.update("nobody", UserChange::default()).await;
    assert!(matches!(unknown, Err(Error::UnknownKey(_))));
    assert_eq!(gateway_a.users.update(&user.key_id, UserChange::default()).await.unwrap(), changed);
}

#[tokio::test(start_paused = true)]
async fn users_are_listed_in_pages_and_removed() {
    let objects = S3TestStore::new().gateway().await;
    for at in 0..25 {
        objects.users.create(&format!("u{at}@example.com"), "U", false, None).await.unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = objects.users.list(&after, 7).await.unwrap();
        let Some(last) = page.last() else { break };
        after.clone_from(&last.id);
        listed.extend(page);
    }
    assert_eq!(listed.len(), 25);
    assert!(listed.is_sorted_by(|a, b| a.id < b.id));
    assert!(objects.users.list("", 0).await.unwrap().is_empty());
    let user = &listed[3];
    objects.buckets.create(&caller(user), "tea", AclChoice::Private, None).await.unwrap();
    assert!(matches!(objects.users.delete(&user.key_id).await, Err(Error::UserHasBuckets)));
    objects.buckets.delete(&caller(user), "tea").await.unwrap();
    objects.users.delete(&user.key_id).await.unwrap();
    assert!(matches!(objects.users.find_by_key(&user.key_id).await, Err(Error::UnknownKey(_))));
    assert!(matches!(objects.users.delete(&user.key_id).await, Err(Error::UnknownKey(_))));
    assert_eq!(objects.users.list("", 100).await.unwrap().len(), 24);
    objects.users.create(&user.email, "Again", false, None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_two_creators_of_one_address_one_wins() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    for round in 0..20 {
        let email = format!("u{round}@example.com");
        let (a, b) = tokio::join!(
            gateway_a.users.create(&email, "A", false, None),
            gateway_b.users.create(&email, "B", false, None)
        );
        assert!(a.is_ok() != b.is_ok());
    }
    assert_eq!(gateway_a.users.list("", 100).await.unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn concurrent_starts_create_one_admin() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let (a, b) = tokio::join!(gateway_a.users.ensure_admin(None), gateway_b.users.ensure_admin(None));
    let ((admin, is_created), (other, is_created_too)) = (a.unwrap(), b.unwrap());
    assert_eq!(admin, other);
    assert!(is_created != is_created_too);
    assert!(admin.admin && admin.name == "admin");
    assert_eq!(gateway_a.users.ensure_admin(None).await.unwrap(), (Arc::clone(&admin), false));

    let (fixed, is_created) = gateway_a.users.ensure_admin(key("FIXED", "secret")).await.unwrap();
    assert_eq!((fixed.key_id.as_str(), fixed.secret.as_str(), is_created), ("FIXED", "secret", false));
    assert_eq!(fixed.id, admin.id);
    assert!(matches!(gateway_a.users.find_by_key(&admin.key_id).await, Err(Error::UnknownKey(_))));
    assert_eq!(gateway_a.users.find_by_key("FIXED").await.unwrap(), fixed);
    assert_eq!(gateway_b.users.ensure_admin(key("FIXED", "secret")).await.unwrap(), (fixed, false));
    assert_eq!(gateway_b.users.ensure_admin(key("FIXED", "other")).await.unwrap().0.secret, "other");
    assert_eq!(gateway_a.users.list("", 10).await.unwrap().len(), 1);

    gateway_a.users.create("x@y", "X", false, key("X", "x")).await.unwrap();
    assert!(matches!(gateway_a.users.ensure_admin(key("X", "x")).await, Err(Error::InvalidUser(_))));
}

#[tokio::test(start_paused = true)]
async fn a_removed_admin_is_made_anew_even_if_its_address_was_taken() {
    let objects = S3TestStore::new().gateway().await;
    let (first, is_created) = objects.users.ensure_admin(key("FIRST", "s")).await.unwrap();
    assert!(is_created);
    objects.users.delete("FIRST").await.unwrap();
    objects.users.create(&first.email, "Guest", false, None).await.unwrap();
    let (second, is_created) = objects.users.ensure_admin(None).await.unwrap();
    assert!(is_created && second.admin && second.id != first.id);
    assert_eq!(objects.users.ensure_admin(None).await.unwrap(), (second, false));
}

#[tokio::test(start_paused = true)]
async fn many_concurrent_creates_succeed() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let admin = caller(&gateway_a.users.ensure_admin(None).await.unwrap().0);
    let mut crowd = tokio::task::JoinSet::new();
    for at in 0..200 {
        let objects = Arc::clone(if at % 2 == 0 { &gateway_a } else { &gateway_b });
        let admin = admin.clone();
        crowd.spawn(async move {
            objects.users.create(&format!("u{at}@example.com"), "U", false, None).await.unwrap();
            objects.buckets.create(&admin, &format!("bucket-{at}"), AclChoice::Private, None).await.unwrap();
        });
    }
    crowd.join_all().await;
    assert_eq!(gateway_a.users.list("", 1000).await.unwrap().len(), 201);
    assert_eq!(gateway_a.buckets.list(&admin, "", "", 1000).await.unwrap().buckets.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn overlong_names_find_no_user() {
    let objects = S3TestStore::new().gateway().await;
    let long = "k".repeat(100_000);
    assert!(matches!(objects.users.find_by_key(&long).await, Err(Error::UnknownKey(_))));
    assert_eq!(objects.users.find_by_id(&long).await.unwrap(), None);
    assert_eq!(objects.users.find_by_email(&long).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn further_keys_find_their_user_until_they_are_revoked() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let user = gateway_a.users.create("foo@example.com", "Foo", false, None).await.unwrap();
    let given = NewKey { id: Some("GIVEN".into()), secret: Some("s".into()), ..NewKey::default() };
    let (_, key) = gateway_a.users.add_key(&user.key_id, given).await.unwrap();
    let (with_both, random) = gateway_a.users.add_key("GIVEN", NewKey::default()).await.unwrap();
    assert_eq!((key.secret.as_str(), with_both.further_keys.len()), ("s", 2));
    assert!(random.id.len() == 20 && random.id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()));
    let holder = gateway_b.users.key_holder(&random.id).await.unwrap();
    assert_eq!((&holder.user.id, holder.secret(), holder.policies().is_some()), (&user.id, &*random.secret, true));
    let first = gateway_b.users.key_holder(&user.key_id).await.unwrap();
    assert_eq!((first.secret(), first.policies().is_some()), (&*user.secret, false));
    // A change of the user keeps its keys.
    let change = UserChange { new_secret: true, ..UserChange::default() };
    assert_eq!(gateway_a.users.update(&user.key_id, change).await.unwrap().further_keys.len(), 2);
    let refused = gateway_a.users.update("GIVEN", UserChange { new_secret: true, ..UserChange::default() }).await;
    assert!(matches!(refused, Err(Error::InvalidUser(_))), "the secret of the first key is another key's: {refused:?}");
    gateway_a.users.revoke_key("GIVEN").await.unwrap();
    assert!(matches!(gateway_a.users.key_holder("GIVEN").await, Err(Error::UnknownKey(_))), "at once here");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(matches!(gateway_b.users.key_holder("GIVEN").await, Err(Error::UnknownKey(_))), "in two seconds elsewhere");
    assert!(matches!(gateway_a.users.revoke_key(&user.key_id).await, Err(Error::InvalidUser(_))));
    gateway_a.users.delete(&user.key_id).await.unwrap();
    assert!(
        matches!(gateway_a.users.key_holder(&random.id).await, Err(Error::UnknownKey(_))),
        "no key outlives its user"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_and_ids_that_are_taken_or_no_limits_are_refused() {
    let objects = S3TestStore::new().gateway().await;
    let id = "0123456789abcdef".repeat(4);
    let new = NewUser { email: "a@b".into(), name: "A".into(), id: Some(id.clone()), ..NewUser::default() };
    let user = objects.users.create_user(new.clone()).await.unwrap();
    assert_eq!(user.id, id);
    for taken in [id.as_str(), "F", &id.to_uppercase()] {
        let refused = NewUser { email: "c@d".into(), id: Some(taken.to_owned()), ..new.clone() };
        assert!(matches!(objects.users.create_user(refused).await, Err(Error::InvalidUser(_))), "{taken}");
    }
    let bucket = || vec!["tea".to_owned()];
    for refused in [
        NewKey { id: Some(user.key_id.clone()), ..NewKey::default() },
        NewKey { id: Some(id.clone()), ..NewKey::default() },
        NewKey { secret: Some(String::new()), ..NewKey::default() },
        NewKey { limits: KeyLimits { prefixes: vec!["a".into()], ..KeyLimits::default() }, ..NewKey::default() },
        NewKey {
            limits: KeyLimits { buckets: bucket(), prefixes: vec![String::new()], ..KeyLimits::default() },
            ..NewKey::default()
        },
        NewKey {
            limits: KeyLimits { expires: Some(larder_rows::Timestamp(1)), ..KeyLimits::default() },
            ..NewKey::default()
        },
    ] {
        assert!(matches!(objects.users.add_key(&user.key_id, refused).await, Err(Error::InvalidUser(_))));
    }
    let wildcard =
        NewKey { limits: KeyLimits { buckets: vec!["*".into()], ..KeyLimits::default() }, ..NewKey::default() };
    assert!(matches!(objects.users.add_key(&user.key_id, wildcard).await, Err(Error::InvalidBucketName(_))));
    for _ in 0..20 {
        objects.users.add_key(&user.key_id, NewKey::default()).await.unwrap();
    }
    assert!(matches!(objects.users.add_key(&user.key_id, NewKey::default()).await, Err(Error::InvalidUser(_))));
}
