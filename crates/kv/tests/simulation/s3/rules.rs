//! One schedule per rule; it fails under the rule's mutation in `tests/mutants`.

use std::collections::BTreeMap;

use larder_s3_rules::Versioning;
use larder_store::Table;
use tokio::task::JoinHandle;

use super::client::{SimClient, read};
use super::cluster::S3Cluster;
use super::gate::StoreStep;
use crate::simulation::world::run;

/// `Err`: the violation a schedule found.
pub(super) type S3ScheduleResult = Result<(), String>;

/// Runs a schedule through two gateways; it must find no violation.
fn holds(schedule: impl AsyncFn(S3Cluster) -> S3ScheduleResult) {
    assert_eq!(run(local(async { schedule(S3Cluster::with_bucket(1, 2).await).await })), Ok(()));
}

/// Runs a future that spawns local tasks.
pub(super) async fn local<T>(work: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(work).await
}

macro_rules! ok {
    ($call:expr) => {
        $call.await.map_err(|error| format!("{}: {error}", stringify!($call)))?
    };
}

/// Runs a client's work concurrently.
pub(super) fn spawn<T: 'static>(client: SimClient, work: impl AsyncFnOnce(SimClient) -> T + 'static) -> JoinHandle<T> {
    tokio::task::spawn_local(async move { work(client).await })
}

/// Checks that listing and reads agree, through both gateways.
pub(super) async fn listing_agrees(cluster: &S3Cluster, key: &str) -> S3ScheduleResult {
    for at in 0..2 {
        let client = cluster.client(at);
        let read = ok!(client.open(key)).map(|(etag, _)| etag.to_string());
        let listed: BTreeMap<_, _> = ok!(client.list());
        if listed.get(key) != read.as_ref() {
            return Err(format!("{listed:?} is listed, {key} is {read:?}"));
        }
    }
    Ok(())
}

/// Checks that a key reads as one of these.
pub(super) async fn reads(client: &SimClient, key: &str, wanted: &[Option<&str>]) -> S3ScheduleResult {
    let found = ok!(client.get(key)).map(|texts| texts.join(" "));
    if wanted.contains(&found.as_deref()) { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

/// [invariant 52]
#[test]
fn a_late_confirmation_restores_no_old_entry() {
    holds(async |cluster| {
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Heads));
        let first = spawn(cluster.client(0), async |client| client.put("k", "first").await.map(|_| ()));
        let go = stop.reached().await;
        cluster.advance(100).await;
        ok!(cluster.client(1).put("k", "second"));
        cluster.advance(100).await;
        let _ = go.send(());
        let _ = first.await;
        listing_agrees(&cluster, "k").await
    });
}

/// [invariant 53]
#[test]
fn a_listing_that_resolves_an_intent_fences_its_slow_writer() {
    holds(async |cluster| {
        ok!(cluster.client(0).put("k", "before"));
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let slow = spawn(cluster.client(0), async |client| client.put("k", "slow").await.map(|_| ()));
        let go = stop.reached().await;
        cluster.advance(31_000).await;
        ok!(cluster.client(1).list());
        let dies = cluster.stop(0, StoreStep::AfterSwap(Table::Heads));
        let _ = go.send(());
        let _dead = dies.reached().await;
        slow.abort();
        listing_agrees(&cluster, "k").await
    });
}

/// [invariant 54]
#[test]
fn an_object_is_listed_after_its_writer_died() {
    holds(async |cluster| {
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Heads));
        let dies = spawn(cluster.client(0), async |client| client.put("k", "v").await.map(|_| ()));
        let _dead = stop.reached().await;
        dies.abort();
        reads(&cluster.client(1), "k", &[Some("v")]).await?;
        listing_agrees(&cluster, "k").await
    });
}

/// [invariant 56]
#[test]
fn a_put_by_a_slow_clock_after_a_delete_is_listed() {
    holds(async |cluster| {
        cluster.nodes[0].clock.set_skew(400_000);
        cluster.nodes[1].clock.set_skew(-90_000);
        ok!(cluster.client(0).put("k", "first"));
        ok!(cluster.client(0).delete("k"));
        cluster.advance(402).await;
        ok!(cluster.client(1).put("k", "second"));
        listing_agrees(&cluster, "k").await
    });
}

/// [invariant 57]
#[test]
fn a_sweeper_during_a_slow_put_tears_no_object() {
    holds(async |cluster| {
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let slow = spawn(cluster.client(0), async |client| client.put("k", "v").await.is_ok());
        let go = stop.reached().await;
        ok!(cluster.client(1).objects.sweeper.sweep());
        let _ = go.send(());
        let put = slow.await.map_err(|error| error.to_string())?;
        reads(&cluster.client(1), "k", &[if put { Some("v") } else { None }]).await
    });
}

/// [invariant 58]
#[test]
fn a_replaced_part_stays_for_a_running_completion() {
    holds(async |cluster| {
        let client = cluster.client(0);
        let upload = ok!(client.begin("k"));
        let part = ok!(client.part("k", &upload, 1, "old"));
        let stop = cluster.stop(1, StoreStep::AfterSwap(Table::Uploads));
        let (id, parts) = (upload.clone(), [part]);
        let completed = spawn(cluster.client(1), async move |client| client.complete("k", &id, &parts).await);
        let go = stop.reached().await;
        let _ = client.part("k", &upload, 1, "new").await;
        ok!(client.objects.sweeper.sweep());
        let _ = go.send(());
        ok!(async { completed.await.map_err(|error| error.to_string()) }).map_err(|error| error.to_string())?;
        reads(&client, "k", &[Some("old")]).await?;
        ok!(client.objects.sweeper.sweep());
        reads(&client, "k", &[Some("old")]).await
    });
}

/// [invariant 59]
#[test]
fn an_upload_taken_back_is_not_completed_later() {
    holds(async |cluster| {
        let client = cluster.client(1);
        let upload = ok!(client.begin("k"));
        let parts = [ok!(client.part("k", &upload, 1, "a")), ok!(client.part("k", &upload, 2, "b"))];
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let id = upload.clone();
        let slow = spawn(cluster.client(0), async move |client| client.complete("k", &id, &parts).await.is_ok());
        let go = stop.reached().await;
        cluster.advance(20_000).await;
        ok!(client.objects.sweeper.sweep());
        ok!(client.abort("k", &upload));
        let _ = go.send(());
        let done = slow.await.map_err(|error| error.to_string())?;
        reads(&client, "k", &[if done { Some("a b") } else { None }]).await
    });
}

/// [invariant 60]
#[test]
fn a_head_never_precedes_its_manifest() {
    holds(async |cluster| {
        let client = cluster.client(1);
        let upload = ok!(client.begin("k"));
        let parts = [ok!(client.part("k", &upload, 1, "a")), ok!(client.part("k", &upload, 2, "b"))];
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Heads));
        let dies = spawn(cluster.client(0), async move |client| client.complete("k", &upload, &parts).await);
        let _dead = stop.reached().await;
        dies.abort();
        reads(&client, "k", &[Some("a b")]).await?;
        cluster.advance(60_000).await;
        ok!(client.objects.sweeper.sweep());
        reads(&client, "k", &[Some("a b")]).await
    });
}

/// [invariant 61]
#[test]
fn a_copy_outlives_its_source() {
    holds(async |cluster| {
        let client = cluster.client(0);
        ok!(client.put("source", "v"));
        ok!(client.copy("source", "copy"));
        ok!(client.delete("source"));
        reads(&client, "copy", &[Some("v")]).await
    });
}

/// [invariant 62]
#[test]
fn the_next_writer_releases_bytes_a_dead_one_replaced() {
    holds(async |cluster| {
        let client = cluster.client(1);
        ok!(client.put("k", "first"));
        let stop = cluster.stop(0, StoreStep::AfterSwap(Table::Heads));
        let dies = spawn(cluster.client(0), async |client| client.put("k", "second").await.map(|_| ()));
        let _dead = stop.reached().await;
        dies.abort();
        ok!(client.put("k", "third"));
        match cluster.leftovers().await.get("blobs") {
            Some(1) => Ok(()),
            found => Err(format!("{found:?} blobs instead of one")),
        }
    });
}

/// [invariant 63]
#[test]
fn bytes_under_a_reader_are_not_removed() {
    holds(async |cluster| {
        let client = cluster.client(0);
        ok!(client.put_in_parts("k", "v"));
        let (_, mut reader) = ok!(client.open("k")).ok_or("it is there")?;
        let mut bytes = ok!(reader.next(10)).to_vec();
        ok!(client.delete("k"));
        cluster.advance(100).await;
        ok!(client.objects.sweeper.sweep());
        bytes.extend(ok!(read(reader)));
        if super::client::texts(&bytes) != Some(vec!["v-1".into(), "v-2".into()]) {
            return Err("torn".into());
        }
        ok!(client.objects.sweeper.sweep());
        let left = cluster.leftovers().await;
        if left.contains_key("blobs") || left.contains_key("manifests") {
            return Err(format!("{left:?} remains without readers"));
        }
        Ok(())
    });
}

/// Runs a put during the deletion of its bucket.
async fn put_beside_delete_bucket(cluster: S3Cluster) -> S3ScheduleResult {
    let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
    let put = spawn(cluster.client(0), async |client| client.put("k", "v").await.is_ok());
    let go = stop.reached().await;
    let deleted = spawn(cluster.client(1), async |client| client.delete_bucket().await.is_ok());
    cluster.advance(5_000).await;
    let _ = go.send(());
    put_or_deletion_fails(&cluster, put, deleted).await
}

/// Checks that one of a put and the deletion of its bucket failed.
async fn put_or_deletion_fails(
    cluster: &S3Cluster,
    put: JoinHandle<bool>,
    deleted: JoinHandle<bool>,
) -> S3ScheduleResult {
    let put = put.await.map_err(|error| error.to_string())?;
    let deleted = deleted.await.map_err(|error| error.to_string())?;
    match (put, deleted) {
        (true, true) => Err("a put into a deleted bucket was acknowledged".into()),
        (true, false) => reads(&cluster.client(1), "k", &[Some("v")]).await,
        (false, _) => Ok(()),
    }
}

/// [invariant 64]
#[test]
fn a_bucket_deletion_waits_until_every_gateway_closed_it() {
    holds(put_beside_delete_bucket);
}

/// [invariant 64]
#[test]
fn no_heartbeat_advertises_a_closed_bucket_during_a_write() {
    holds(put_beside_delete_bucket);
}

/// [invariant 81]
#[test]
fn a_gateway_whose_heartbeat_expired_puts_no_object_into_a_deleted_bucket() {
    holds(async |cluster| {
        cluster.nodes[0].gate.refuse(Table::Members);
        cluster.advance(12_000).await;
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let put = spawn(cluster.client(0), async |client| client.put("k", "v").await.is_ok());
        // The put is refused by then, or waits at its swap.
        cluster.advance(6_000).await;
        let deleted = spawn(cluster.client(1), async |client| client.delete_bucket().await.is_ok());
        cluster.advance(5_000).await;
        drop(stop);
        put_or_deletion_fails(&cluster, put, deleted).await
    });
}

/// [invariant 65]
#[test]
fn enabled_versioning_holds_for_every_write_that_ends_later() {
    holds(async |cluster| {
        ok!(cluster.client(1).put("k", "first"));
        let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
        let put = spawn(cluster.client(0), async |client| client.put("k", "second").await.is_ok());
        let go = stop.reached().await;
        let client = cluster.client(1);
        let switched = spawn(client.clone(), async |client| {
            client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok()
        });
        cluster.advance(5_000).await;
        let answered = switched.is_finished();
        let _ = go.send(());
        let put = put.await.map_err(|error| error.to_string())?;
        let switched = switched.await.map_err(|error| error.to_string())?;
        let versions = ok!(client.all_versions()).len();
        if answered && switched && put && versions != 2 {
            return Err(format!("{versions} versions after a put that ended after versioning was switched on"));
        }
        Ok(())
    });
}

/// A version in a bucket with object lock, older than the current one if `is_covered`.
async fn locked_bucket(cluster: &S3Cluster, is_covered: bool) -> Result<String, String> {
    ok!(cluster.client(1).lock_bucket());
    let id = ok!(cluster.client(0).put("k", "v")).version_id.ok_or("no version id")?;
    if is_covered {
        ok!(cluster.client(0).put("k", "newer"));
    }
    Ok(id)
}

/// [invariant 166]
#[test]
fn a_legal_hold_that_was_answered_wins_over_a_delete_that_is_under_way() {
    for is_covered in [false, true] {
        holds(async |cluster| {
            let id = locked_bucket(&cluster, is_covered).await?;
            let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
            let version = id.clone();
            let delete =
                spawn(cluster.client(0), async move |client| client.delete_version("k", &version).await.is_ok());
            let go = stop.reached().await;
            ok!(cluster.client(1).hold("k", &id));
            let _ = go.send(());
            if delete.await.map_err(|error| error.to_string())? {
                return Err("a version under legal hold was deleted".into());
            }
            let texts = ok!(cluster.client(1).get_version("k", &id));
            if texts == ["v"] { Ok(()) } else { Err(format!("{texts:?}")) }
        });
    }
}

/// [invariant 166]
#[test]
fn of_two_retentions_at_once_the_later_end_stays() {
    for is_covered in [false, true] {
        holds(async |cluster| {
            let id = locked_bucket(&cluster, is_covered).await?;
            let now = cluster.nodes[0].objects.gateway.context().now();
            let (sooner, later) = (now + 3_600_000_000, now + 7_200_000_000);
            let stop = cluster.stop(0, StoreStep::BeforeSwap(Table::Heads));
            let version = id.clone();
            let first =
                spawn(cluster.client(0), async move |client| client.retain("k", &version, sooner).await.is_ok());
            let go = stop.reached().await;
            ok!(cluster.client(1).retain("k", &id, later));
            let _ = go.send(());
            let shortened = first.await.map_err(|error| error.to_string())?;
            let until = ok!(cluster.client(0).retained_until("k", &id));
            if shortened || until < later { Err(format!("{until:?}, answered: {shortened}")) } else { Ok(()) }
        });
    }
}
