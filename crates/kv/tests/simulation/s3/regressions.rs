//! Schedules that once broke an invariant, found by random schedules.

use larder_s3_rules::Versioning;
use larder_store::Table;

use super::cluster::S3Cluster;
use super::gate::StoreStep;
use super::rules::{local, reads, spawn};
use crate::simulation::world::run;

/// Race: two clocks may show the same time; the blobs of two parts must not share a name.
#[test]
fn simultaneous_parts_of_two_gateways_have_separate_blobs() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let (one, other) = (cluster.client(0), cluster.client(1));
        let upload = one.begin("k").await.unwrap();
        cluster.advance(100).await;
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

/// Race: the recovery of a completion misses the version, since a copy onto itself replaced it. The copy references its
/// manifest.
#[test]
fn taking_an_upload_back_keeps_the_manifest_of_a_copy() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let client = cluster.client(1);
        let upload = client.begin("k").await.unwrap();
        let parts =
            [client.part("k", &upload, 1, "a").await.unwrap(), client.part("k", &upload, 2, "b").await.unwrap()];
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Heads));
        let dies =
            spawn(cluster.client(0), async move |client| client.complete("k", &upload, &parts).await.map(|_| ()));
        let _dead = stop.reached().await;
        dies.abort();
        cluster.advance(20_000).await;
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Uploads));
        let sweeper = spawn(cluster.client(0), async |client| client.objects.sweeper.sweep().await);
        let go = stop.reached().await;
        client.copy("k", "k").await.unwrap();
        let _ = go.send(());
        sweeper.await.unwrap().unwrap();
        reads(&client, "k", &[Some("a b")]).await.unwrap();
    }));
}

/// Race: one gateway has versioning enabled, the other has not heard of it. Its delete must not restore an older version.
#[test]
fn a_delete_while_versioning_is_enabled_restores_no_old_version() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let client = cluster.client(1);
        let switch = spawn(client.clone(), async |client| {
            client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok()
        });
        cluster.advance(1).await;
        client.put("k", "first").await.unwrap();
        client.put("k", "second").await.unwrap();
        cluster.client(0).delete("k").await.unwrap();
        reads(&client, "k", &[None]).await.unwrap();
        assert!(switch.await.unwrap());
        assert_eq!(client.all_versions().await.unwrap().len(), 3, "two versions and a marker");
    }));
}

/// Race: a put without an answer may still be finished where a read shows nothing. A delete of nothing ends it by a swap of its own
/// [invariant 164]; here another put comes before that swap.
#[test]
fn a_delete_of_nothing_once_let_a_put_without_an_answer_come_back() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let client = cluster.client(1);
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let delete = spawn(cluster.client(0), async |client| client.delete("k").await);
        let go = stop.reached().await;
        client.put("k", "late").await.unwrap();
        let _ = go.send(());
        delete.await.unwrap().unwrap();
        reads(&client, "k", &[None]).await.unwrap();
    }));
}
