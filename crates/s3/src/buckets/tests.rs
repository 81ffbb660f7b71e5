//! Buckets, over a memory store.

use std::time::Duration;

use larder_rows::Timestamp;

use super::testing::{S3TestStore, anonymous, caller, new_caller, version, write_versions};
use super::*;
use crate::catalogue::{CatalogueGuard, S3Catalogue};
use crate::rules::public_access::PublicAccessBlock;
use crate::rules::{Acl, S3Action, Versioning};
use crate::{Objects, ObjectsConfig};

async fn create(objects: &Objects, caller: &Caller, name: &str) -> Result<()> {
    objects.buckets.create(caller, name, AclChoice::Private, None).await
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_created_once_and_visible_on_every_gateway() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let (foo, bar) = (new_caller(&gateway_a, "foo").await, new_caller(&gateway_a, "bar").await);
    create(&gateway_a, &foo, "tea").await.unwrap();
    let bucket = gateway_b.buckets.find_for(&foo.with_action(S3Action::ListBucket), "tea").await.unwrap();
    assert_eq!((bucket.owner.as_str(), bucket.versioning), (foo.id(), Versioning::Off));
    // As in AWS: creating an own bucket again succeeds in us-east-1 only.
    create(&gateway_b, &foo, "tea").await.unwrap();
    gateway_b.buckets.create(&foo, "far", AclChoice::Private, Some("eu".into())).await.unwrap();
    assert!(matches!(create(&gateway_b, &foo, "far").await, Err(Error::BucketExists { own: true })));
    assert_eq!(gateway_b.buckets.location(&gateway_b.buckets.find("far").await.unwrap()), "eu");
    assert!(matches!(create(&gateway_b, &bar, "tea").await, Err(Error::BucketExists { own: false })));
    assert!(matches!(create(&gateway_b, &Caller::default(), "milk").await, Err(Error::AccessDenied)));
    assert!(matches!(create(&gateway_b, &bar, "Milk").await, Err(Error::InvalidBucketName(_))));
    assert!(matches!(
        gateway_b.buckets.find_for(&bar.with_action(S3Action::ListBucket), "tea").await,
        Err(Error::AccessDenied)
    ));
    assert!(matches!(
        gateway_b.buckets.find_for(&bar.with_action(S3Action::ListBucket), "milk").await,
        Err(Error::NoSuchBucket(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn bucket_grants_allow_exactly_their_actions() {
    let objects = S3TestStore::new().gateway().await;
    let (foo, bar) = (new_caller(&objects, "foo").await, new_caller(&objects, "bar").await);
    objects.buckets.create(&foo, "tea", AclChoice::Canned("public-read".into()), None).await.unwrap();
    for who in [&foo, &bar, &anonymous(S3Action::PutObject)] {
        objects.buckets.find_for(&who.with_action(S3Action::ListBucket), "tea").await.unwrap();
        objects.buckets.find_for(&who.with_action(S3Action::ListBucketVersions), "tea").await.unwrap();
    }
    for action in
        [S3Action::GetBucketAcl, S3Action::PutBucketAcl, S3Action::DeleteBucket, S3Action::GetBucketVersioning]
    {
        let refused = objects.buckets.find_for(&bar.with_action(action), "tea").await;
        assert!(matches!(refused, Err(Error::AccessDenied)), "{action:?}");
        objects.buckets.find_for(&foo.with_action(action), "tea").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_catalogue_change_reloads_only_the_changed_bucket() {
    let objects = S3TestStore::new().gateway().await;
    let foo = new_caller(&objects, "foo").await;
    create(&objects, &foo, "tea").await.unwrap();
    let known = || S3Catalogue::within(&objects.gateway.catalogue().current()).bucket("tea").cloned().unwrap();
    let first = known();
    create(&objects, &foo, "milk").await.unwrap();
    assert!(Arc::ptr_eq(&first, &known()), "another one was created");
    objects.buckets.delete(&foo, "tea").await.unwrap();
    create(&objects, &foo, "tea").await.unwrap();
    assert_ne!(first.id, known().id, "of the same name, but another one");
}

#[tokio::test(start_paused = true)]
async fn the_bucket_limit_of_a_user_holds() {
    let settings = ObjectsConfig { buckets_max: 3, ..ObjectsConfig::default() };
    let objects = S3TestStore::new().gateway_with(settings).await;
    let foo = new_caller(&objects, "foo").await;
    for name in ["one", "two", "three"] {
        create(&objects, &foo, name).await.unwrap();
    }
    let refused = create(&objects, &foo, "four").await;
    assert!(matches!(refused, Err(Error::TooManyBuckets { current: 3, allowed: 3 })));
    objects.buckets.delete(&foo, "one").await.unwrap();
    create(&objects, &foo, "four").await.unwrap();
    let admin = caller(&objects.users.ensure_admin(None).await.unwrap().0);
    for name in ["a-1", "a-2", "a-3", "a-4"] {
        create(&objects, &admin, name).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_are_listed_by_name_in_pages() {
    let objects = S3TestStore::new().gateway().await;
    let (foo, bar) = (new_caller(&objects, "foo").await, new_caller(&objects, "bar").await);
    for name in ["tea-3", "tea-1", "milk", "tea-2", "zoo"] {
        create(&objects, &foo, name).await.unwrap();
    }
    create(&objects, &bar, "tea-0").await.unwrap();
    let page = async |prefix: &'static str, after: &str, max| {
        let page = objects.buckets.list(&foo, prefix, after, max).await.unwrap();
        let names: Vec<_> = page.buckets.iter().map(|bucket| bucket.name.clone()).collect();
        (names.join(" "), page.next)
    };
    let next = |name: &str| Some(name.to_owned());
    assert_eq!(page("", "", 100).await, ("milk tea-1 tea-2 tea-3 zoo".into(), None));
    assert_eq!(page("tea", "", 2).await, ("tea-1 tea-2".into(), next("tea-2")));
    assert_eq!(page("tea", "tea-2", 2).await, ("tea-3".into(), None));
    assert_eq!(page("", "milk", 1).await, ("tea-1".into(), next("tea-1")));
    assert_eq!(page("tea", "zoo", 1).await, (String::new(), None));
    assert_eq!(page("", "", 0).await, (String::new(), None));
    assert!(matches!(objects.buckets.list(&Caller::default(), "", "", 1).await, Err(Error::AccessDenied)));
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_configuration_holds_on_every_gateway() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let (foo, bar) = (new_caller(&gateway_a, "foo").await, new_caller(&gateway_a, "bar").await);
    create(&gateway_a, &foo, "tea").await.unwrap();
    let enable = |bucket: &mut Bucket| {
        bucket.versioning = Versioning::Enabled;
        Ok(())
    };
    let id = gateway_b.buckets.find("tea").await.unwrap().id;
    let refused = gateway_a.buckets.configure(&bar.with_action(S3Action::PutBucketVersioning), "tea", enable).await;
    assert!(matches!(refused, Err(Error::AccessDenied)));
    gateway_a.buckets.configure(&foo, "tea", enable).await.unwrap();
    assert_eq!(
        CatalogueGuard::take(&gateway_b.gateway, "tea", id).await.unwrap().bucket.versioning,
        Versioning::Enabled
    );
    gateway_a.buckets.configure(&foo, "tea", enable).await.unwrap();
    let fail = gateway_a.buckets.configure(&foo, "tea", |_| Err(Error::InvalidTag("no".into()))).await;
    assert!(matches!(fail, Err(Error::InvalidTag(_))));
    let missing = gateway_a.buckets.configure(&foo, "milk", enable).await;
    assert!(matches!(missing, Err(Error::NoSuchBucket(_))));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_change_waits_for_writes_under_the_old_one() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let foo = new_caller(&gateway_a, "foo").await;
    create(&gateway_a, &foo, "tea").await.unwrap();
    let id = gateway_b.buckets.find("tea").await.unwrap().id;
    let guard = CatalogueGuard::take(&gateway_b.gateway, "tea", id).await.unwrap();
    let suspend = |bucket: &mut Bucket| {
        bucket.versioning = Versioning::Suspended;
        Ok(())
    };
    let change = gateway_a.buckets.configure(&foo, "tea", suspend);
    tokio::pin!(change);
    let early = tokio::time::timeout(Duration::from_secs(8), change.as_mut()).await;
    assert!(early.is_err(), "the change is answered during a write under the old configuration");
    drop(guard);
    change.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_configuration_change_waits_for_own_writes_without_a_heartbeat() {
    let stores = S3TestStore::new();
    let objects = stores.gateway().await;
    let foo = new_caller(&objects, "foo").await;
    create(&objects, &foo, "tea").await.unwrap();
    let id = objects.buckets.find("tea").await.unwrap().id;
    let guard = CatalogueGuard::take(&objects.gateway, "tea", id).await.unwrap();
    let begun = tokio::time::Instant::now();
    let work = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(guard);
    };
    let suspend = |bucket: &mut Bucket| {
        bucket.versioning = Versioning::Suspended;
        Ok(())
    };
    let (done, ()) = tokio::join!(objects.buckets.configure(&foo, "tea", suspend), work);
    done.unwrap();
    // Virtual time, no measurement.
    assert!(begun.elapsed() < Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn only_empty_buckets_are_deleted_and_a_new_one_of_the_name_is_another() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let (foo, bar) = (new_caller(&gateway_a, "foo").await, new_caller(&gateway_a, "bar").await);
    create(&gateway_a, &foo, "tea").await.unwrap();
    let first = gateway_a.buckets.find("tea").await.unwrap();
    write_versions(&gateway_a, &first, b"key", &[version(Timestamp(9), true, None)]).await;
    assert!(matches!(gateway_b.buckets.delete(&foo, "tea").await, Err(Error::BucketNotEmpty)));
    assert!(matches!(
        gateway_b.buckets.delete(&bar.with_action(S3Action::DeleteBucket), "tea").await,
        Err(Error::AccessDenied)
    ));
    assert!(matches!(gateway_b.buckets.delete(&foo, "milk").await, Err(Error::NoSuchBucket(_))));
    write_versions(&gateway_a, &first, b"key", &[]).await;
    gateway_b.buckets.delete(&foo, "tea").await.unwrap();
    assert!(matches!(gateway_a.buckets.find("tea").await, Err(Error::NoSuchBucket(_))));
    assert!(matches!(gateway_a.buckets.delete(&foo, "tea").await, Err(Error::NoSuchBucket(_))));
    create(&gateway_a, &bar, "tea").await.unwrap();
    let second = gateway_b.buckets.find("tea").await.unwrap();
    assert_ne!(first.id, second.id);
    assert!(matches!(CatalogueGuard::take(&gateway_a.gateway, "tea", first.id).await, Err(Error::NoSuchBucket(_))));
}

#[tokio::test(start_paused = true)]
async fn a_running_put_keeps_its_bucket() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let foo = new_caller(&gateway_a, "foo").await;
    create(&gateway_a, &foo, "tea").await.unwrap();
    let bucket = gateway_b.buckets.find("tea").await.unwrap();
    let put = async {
        let guard = CatalogueGuard::take(&gateway_b.gateway, "tea", bucket.id).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        write_versions(&gateway_b, &guard.bucket, b"key", &[version(Timestamp(9), true, Some(3))]).await;
    };
    let (deleted, ()) = tokio::join!(gateway_a.buckets.delete(&foo, "tea"), put);
    assert!(matches!(deleted, Err(Error::BucketNotEmpty)), "{deleted:?}");
    assert_eq!(gateway_b.buckets.find("tea").await.unwrap().id, bucket.id, "it is open again");
}

#[tokio::test(start_paused = true)]
async fn the_next_create_finishes_an_abandoned_deletion() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let (foo, bar) = (new_caller(&gateway_a, "foo").await, new_caller(&gateway_a, "bar").await);
    for (name, full) in [("empty", false), ("full", true)] {
        create(&gateway_a, &foo, name).await.unwrap();
        let bucket = gateway_b.buckets.find(name).await.unwrap();
        let delete = gateway_a.buckets.delete(&foo, name);
        // A held guard stops the deletion in the middle, where the test drops it.
        let guard = CatalogueGuard::take(&gateway_b.gateway, name, bucket.id).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(5), delete).await.is_err());
        drop(guard);
        if full {
            write_versions(&gateway_b, &bucket, b"key", &[version(Timestamp(9), true, Some(3))]).await;
        }
        assert!(matches!(gateway_b.buckets.find(name).await, Err(Error::NoSuchBucket(_))));
        assert!(matches!(create(&gateway_b, &bar, name).await, Err(Error::OperationAborted)));
        assert!(matches!(gateway_b.buckets.delete(&foo, name).await, Err(Error::OperationAborted)));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    create(&gateway_b, &bar, "empty").await.unwrap();
    assert_eq!(gateway_a.buckets.find("empty").await.unwrap().owner, bar.id());
    assert!(matches!(create(&gateway_b, &bar, "full").await, Err(Error::BucketExists { own: false })));
    assert_eq!(gateway_a.buckets.find("full").await.unwrap().owner, foo.id());
}

#[tokio::test(start_paused = true)]
async fn creators_and_deleters_race_to_one_outcome() {
    let stores = S3TestStore::new();
    let (gateway_a, gateway_b) = (stores.gateway().await, stores.gateway().await);
    let (foo, bar) = (new_caller(&gateway_a, "foo").await, new_caller(&gateway_a, "bar").await);
    for round in 0..10 {
        let name = format!("tea-{round}");
        let (a, b) = tokio::join!(create(&gateway_a, &foo, &name), create(&gateway_b, &bar, &name));
        assert!(a.is_ok() != b.is_ok());
        let owner = if a.is_ok() { &foo } else { &bar };
        let (a, b) = tokio::join!(gateway_a.buckets.delete(owner, &name), gateway_b.buckets.delete(owner, &name));
        assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
        let (a, b) = tokio::join!(create(&gateway_a, &foo, &name), create(&gateway_b, &foo, &name));
        assert!(a.is_ok() || b.is_ok());
        let (deleted, created) = tokio::join!(gateway_a.buckets.delete(&foo, &name), create(&gateway_b, &bar, &name));
        deleted.unwrap();
        let there = gateway_a.buckets.find(&name).await;
        assert_eq!(created.is_ok(), there.is_ok_and(|bucket| bucket.owner == bar.id()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_public_access_block_refuses_public_grants() {
    let objects = S3TestStore::new().gateway().await;
    let foo = new_caller(&objects, "foo").await;
    create(&objects, &foo, "tea").await.unwrap();
    let block = |bucket: &mut Bucket| {
        bucket.public_access = Some(PublicAccessBlock { block_acls: true, ..PublicAccessBlock::default() });
        Ok(())
    };
    objects.buckets.configure(&foo, "tea", block).await.unwrap();
    let public = |bucket: &mut Bucket| {
        bucket.acl = Acl::canned("public-read", "o", "o").unwrap();
        Ok(())
    };
    assert!(matches!(objects.buckets.configure(&foo, "tea", public).await, Err(Error::AccessDenied)));
    objects.buckets.find_for(&foo.with_action(S3Action::ListBucket), "tea").await.unwrap();
}

/// The edge runs every request as a task of its own.
#[tokio::test(start_paused = true)]
async fn calls_can_be_sent_between_threads() {
    fn assert_send(_: &impl Send) {}
    let objects = S3TestStore::new().gateway().await;
    let foo = new_caller(&objects, "foo").await;
    let (keys, versions) = (Default::default(), Default::default());
    assert_send(&create(&objects, &foo, "tea"));
    assert_send(&objects.buckets.delete(&foo, "tea"));
    assert_send(&objects.buckets.configure(&foo, "tea", |_| Ok(())));
    assert_send(&objects.buckets.list(&foo, "", "", 1));
    assert_send(&objects.list(&foo, &keys));
    assert_send(&objects.list_versions(&foo, &versions));
    assert_send(&objects.buckets.put_acl(&foo, "tea", None, AclChoice::Private));
    assert_send(&objects.put_object_acl(&foo, "tea", &"key".into(), &Default::default(), None, AclChoice::Private));
    assert_send(&objects.users.update("K", Default::default()));
    assert_send(&objects.users.delete("K"));
    assert_send(&objects.users.ensure_admin(None));
    assert_send(&objects.usage.flush());
    assert_send(&objects.usage.samples("K", Timestamp::ZERO, Timestamp(1)));
    assert_send(&objects.usage.user_storage("id"));
}
