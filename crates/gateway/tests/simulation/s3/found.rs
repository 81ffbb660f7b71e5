//! Schedules that once broke a promise, as the random walk found them.

use larder_model::objects::Versioning;
use larder_store::Table;

use super::cloud::{Cloud, Laws};
use super::gate::Step;
use super::rules::{local, reads, spawn};
use crate::world::run;

/// Two clocks may show the same: the bytes of two parts must not share a name.
#[test]
fn a_part_put_through_two_gateways_at_one_moment_has_bytes_of_its_own() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let (one, other) = (cloud.client(0), cloud.client(1));
        let upload = one.begin("k").await.unwrap();
        cloud.pass(100).await;
        let (first, second) = tokio::join!(one.part("k", &upload, 1, "first"), other.part("k", &upload, 1, "second"));
        let completed = one.complete("k", &upload, &[first.unwrap()]).await.is_ok();
        if completed {
            reads(&one, "k", &[Some("first")]).await.unwrap();
        } else {
            one.complete("k", &upload, &[second.unwrap()]).await.unwrap();
            reads(&one, "k", &[Some("second")]).await.unwrap();
        }
    }));
}

/// Who takes a completion back finds no version, because it was copied onto itself meanwhile: the copy has its manifest.
#[test]
fn a_manifest_stays_with_the_copy_of_a_version_whose_upload_is_taken_back() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let client = cloud.client(1);
        let upload = client.begin("k").await.unwrap();
        let parts =
            [client.part("k", &upload, 1, "a").await.unwrap(), client.part("k", &upload, 2, "b").await.unwrap()];
        let stop = cloud.stop(0, Step::AfterSwap(Table::Heads));
        let dies = spawn(cloud.client(0), async move |client| client.complete("k", &upload, &parts).await.map(|_| ()));
        let _dead = stop.reached().await;
        dies.abort();
        cloud.pass(20_000).await;
        let stop = cloud.stop(0, Step::AfterSwap(Table::Uploads));
        let sweeper = spawn(cloud.client(0), async |client| client.objects.sweep().await);
        let go = stop.reached().await;
        client.copy("k", "k").await.unwrap();
        let _ = go.send(());
        sweeper.await.unwrap().unwrap();
        reads(&client, "k", &[Some("a b")]).await.unwrap();
    }));
}

/// One gateway keeps versions already, the other does not know yet: its delete must not bring an older version back.
#[test]
fn a_delete_while_versioning_is_switched_on_brings_nothing_back() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let client = cloud.client(1);
        let switch = spawn(client.clone(), async |client| {
            client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok()
        });
        cloud.pass(1).await;
        client.put("k", "first").await.unwrap();
        client.put("k", "second").await.unwrap();
        cloud.client(0).delete("k").await.unwrap();
        reads(&client, "k", &[None]).await.unwrap();
        assert!(switch.await.unwrap());
        assert_eq!(client.all_versions().await.unwrap().len(), 3, "two versions and a marker");
    }));
}
