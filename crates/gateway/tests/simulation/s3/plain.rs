//! Rows of the list of holes whose rules have no switch, or another side than `rules` shows.

use std::collections::BTreeMap;

use larder_model::keyspace::entry_shard;
use larder_model::objects::Versioning;
use larder_store::{Partition, Table};

use super::cloud::{BUCKET, Cloud, Laws};
use super::gate::Step;
use super::rules::{listing_agrees, local, reads, spawn};
use crate::world::run;

#[test]
fn row_55_a_key_has_one_entry_however_often_it_is_written() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let client = cloud.client(0);
        client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.unwrap();
        for at in 0..20 {
            cloud.client(at % 2).put("k", &format!("v{at}")).await.unwrap();
        }
        let id = client.objects.bucket(BUCKET).await.unwrap().id;
        assert_eq!(cloud.rows(&Partition::entries(id, entry_shard(b"k"))).await, 1);
        assert_eq!(client.all_versions().await.unwrap().len(), 20);
        listing_agrees(&cloud, "k").await.unwrap();
    }));
}

#[test]
fn row_57_a_sweeper_that_meets_the_commit_gives_way() {
    run(local(async {
        let mut cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
        let slow = spawn(cloud.client(0), async |client| client.put("k", "v").await.is_ok());
        let go = stop.reached().await;
        // The sweeper has looked and marked, and is about to touch the head.
        let stop = cloud.stop(1, Step::BeforeSwap(Table::Heads));
        let sweeper = spawn(cloud.client(1), async |client| client.objects.sweep().await);
        let touch = stop.reached().await;
        let _ = go.send(());
        assert!(slow.await.unwrap());
        let _ = touch.send(());
        assert_eq!(sweeper.await.unwrap().unwrap().blobs, 0);
        reads(&cloud.client(1), "k", &[Some("v")]).await.unwrap();
        assert!(cloud.remains().await.contains_key("doomed"), "another sweeper may rely on its mark");
        cloud.leap(2).await;
        assert!(!cloud.remains().await.contains_key("doomed"), "it goes by itself");
        reads(&cloud.client(1), "k", &[Some("v")]).await.unwrap();
    }));
}

#[test]
fn row_59_a_completion_left_behind_is_not_carried_on_over_a_newer_put() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let client = cloud.client(1);
        let upload = client.begin("k").await.unwrap();
        let parts = [client.part("k", &upload, 1, "a").await.unwrap()];
        let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
        let (id, listed) = (upload.clone(), parts.clone());
        let dies = spawn(cloud.client(0), async move |client| client.complete("k", &id, &listed).await);
        let _dead = stop.reached().await;
        dies.abort();
        client.put("k", "newer").await.unwrap();
        cloud.pass(3_600_000).await;
        assert_eq!(client.objects.sweep().await.unwrap().uploads, 1);
        reads(&client, "k", &[Some("newer")]).await.unwrap();
        assert_eq!(client.uploads().await.unwrap(), [("k".to_owned(), upload.clone())]);
        client.complete("k", &upload, &parts).await.unwrap();
        reads(&client, "k", &[Some("a")]).await.unwrap();
    }));
}

#[test]
fn row_61_copies_of_a_key_onto_itself_share_bytes_until_the_last_is_gone() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 1).await;
        let client = cloud.client(0);
        client.put_in_parts("k", "v").await.unwrap();
        client.copy("k", "k").await.unwrap();
        client.objects.sweep().await.unwrap();
        reads(&client, "k", &[Some("v-1 v-2")]).await.unwrap();
        assert_eq!(cloud.remains().await.get("blobs"), Some(&2));
        client.delete("k").await.unwrap();
        cloud.pass(100).await;
        assert_eq!(cloud.remains().await.get("blobs"), None);
    }));
}

#[test]
fn row_64_a_new_bucket_of_an_old_name_has_nothing_of_the_old_one() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let client = cloud.client(0);
        let upload = client.begin("k").await.unwrap();
        client.part("k", &upload, 1, "a").await.unwrap();
        client.delete_bucket().await.unwrap();
        client.create_bucket().await.unwrap();
        assert_eq!(client.uploads().await.unwrap(), []);
        assert!(client.part("k", &upload, 2, "b").await.is_err());
        assert_eq!(client.objects.sweep().await.unwrap().uploads, 1);
        cloud.pass(2 * 24 * 3_600_000).await;
        client.objects.sweep().await.unwrap();
        assert_eq!(cloud.remains().await, BTreeMap::new());
    }));
}

#[test]
fn row_66_uploads_are_listed_as_they_were_begun_and_only_while_they_live() {
    run(local(async {
        let cloud = Cloud::with_bucket(1, Laws::default(), 2).await;
        let mut begun = Vec::new();
        for at in 0..4 {
            begun.push(("k".to_owned(), cloud.client(at % 2).begin("k").await.unwrap()));
            cloud.pass(10).await;
        }
        assert_eq!(cloud.client(0).uploads().await.unwrap(), begun);
        let stop = cloud.stop(0, Step::AfterSwap(Table::Uploads));
        let id = begun[1].1.clone();
        let dies = spawn(cloud.client(0), async move |client| client.abort("k", &id).await);
        let _dead = stop.reached().await;
        dies.abort();
        begun.remove(1);
        assert_eq!(cloud.client(1).uploads().await.unwrap(), begun);
    }));
}
