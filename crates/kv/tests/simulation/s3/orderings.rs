//! Invariants without a mutation, or another aspect than the one in `rules`.

use std::collections::BTreeMap;

use larder_rows::keyspace::entry_shard;
use larder_s3_rules::Versioning;
use larder_store::{Partition, Table};

use super::cluster::{BUCKET, S3Cluster};
use super::gate::StoreStep;
use super::rules::{listing_agrees, local, reads, spawn};
use crate::simulation::world::run;

/// [invariant 55]
#[test]
fn a_key_has_one_entry_after_many_writes() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let client = cluster.client(0);
        client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.unwrap();
        for at in 0..20 {
            cluster.client(at % 2).put("k", &format!("v{at}")).await.unwrap();
        }
        let id = client.objects.buckets.find(BUCKET).await.unwrap().id;
        assert_eq!(cluster.rows(&Partition::entries(id, entry_shard(b"k"))).await, 1);
        assert_eq!(client.all_versions().await.unwrap().len(), 20);
        listing_agrees(&cluster, "k").await.unwrap();
    }));
}

/// [invariant 57]
#[test]
fn a_sweeper_that_meets_a_commit_removes_nothing() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let slow = spawn(cluster.client(0), async |client| client.put("k", "v").await.is_ok());
        let go = stop.reached().await;
        // The sweeper has scanned and marked, and is about to fence the head.
        let stop = cluster.stop(1, StoreStep::BeforeSwap(Table::Heads));
        let sweeper = spawn(cluster.client(1), async |client| client.objects.sweeper.sweep().await);
        let fence = stop.reached().await;
        let _ = go.send(());
        assert!(slow.await.unwrap());
        let _ = fence.send(());
        assert_eq!(sweeper.await.unwrap().unwrap().blobs, 0);
        reads(&cluster.client(1), "k", &[Some("v")]).await.unwrap();
        assert!(cluster.leftovers().await.contains_key("doomed"), "the gc mark stays: another sweeper may rely on it");
    }));
}

/// [invariant 59]
#[test]
fn an_abandoned_completion_does_not_replace_a_newer_put() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let client = cluster.client(1);
        let upload = client.begin("k").await.unwrap();
        let parts = [client.part("k", &upload, 1, "a").await.unwrap()];
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let (id, listed) = (upload.clone(), parts.clone());
        let dies = spawn(cluster.client(0), async move |client| client.complete("k", &id, &listed).await);
        let _dead = stop.reached().await;
        dies.abort();
        client.put("k", "newer").await.unwrap();
        cluster.advance(3_600_000).await;
        assert_eq!(client.objects.sweeper.sweep().await.unwrap().uploads, 1);
        reads(&client, "k", &[Some("newer")]).await.unwrap();
        assert_eq!(client.uploads().await.unwrap(), [("k".to_owned(), upload.clone())]);
        client.complete("k", &upload, &parts).await.unwrap();
        reads(&client, "k", &[Some("a")]).await.unwrap();
    }));
}

/// [invariant 61]
#[test]
fn a_copy_onto_itself_shares_bytes_until_the_last_reference_goes() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 1).await;
        let client = cluster.client(0);
        client.put_in_parts("k", "v").await.unwrap();
        client.copy("k", "k").await.unwrap();
        client.objects.sweeper.sweep().await.unwrap();
        reads(&client, "k", &[Some("v-1 v-2")]).await.unwrap();
        assert_eq!(cluster.leftovers().await.get("blobs"), Some(&2));
        client.delete("k").await.unwrap();
        cluster.advance(100).await;
        assert_eq!(cluster.leftovers().await.get("blobs"), None);
    }));
}

/// [invariant 64]
#[test]
fn a_recreated_bucket_inherits_no_uploads() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let client = cluster.client(0);
        let upload = client.begin("k").await.unwrap();
        client.part("k", &upload, 1, "a").await.unwrap();
        client.delete_bucket().await.unwrap();
        client.create_bucket().await.unwrap();
        assert_eq!(client.uploads().await.unwrap(), []);
        assert!(client.part("k", &upload, 2, "b").await.is_err());
        assert_eq!(client.objects.sweeper.sweep().await.unwrap().uploads, 1);
        cluster.advance(2 * 24 * 3_600_000).await;
        client.objects.sweeper.sweep().await.unwrap();
        assert_eq!(cluster.leftovers().await, BTreeMap::new());
    }));
}

/// [invariant 66]
#[test]
fn uploads_are_listed_in_order_of_start_while_they_live() {
    run(local(async {
        let cluster = S3Cluster::with_bucket(1, 2).await;
        let mut begun = Vec::new();
        for at in 0..4 {
            begun.push(("k".to_owned(), cluster.client(at % 2).begin("k").await.unwrap()));
            cluster.advance(10).await;
        }
        assert_eq!(cluster.client(0).uploads().await.unwrap(), begun);
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Uploads));
        let id = begun[1].1.clone();
        let dies = spawn(cluster.client(0), async move |client| client.abort("k", &id).await);
        let _dead = stop.reached().await;
        dies.abort();
        begun.remove(1);
        assert_eq!(cluster.client(1).uploads().await.unwrap(), begun);
    }));
}
