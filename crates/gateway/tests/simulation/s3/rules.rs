//! One schedule per rule: it holds with the rule and fails without it. The number is the row of the list of holes.

use std::collections::BTreeMap;

use larder_gateway::{Rule, Rules};
use larder_model::objects::Versioning;
use larder_store::{Table, shadows};
use tokio::task::JoinHandle;

use super::client::{Client, read};
use super::cloud::{Cloud, Laws};
use super::gate::Step;
use crate::world::run;

type Outcome = Result<(), String>;

/// Runs a schedule with every rule, where it must hold, and under the laws without `rule`, where it must not.
fn proves<F: AsyncFn(Cloud) -> Outcome>(rule: &str, without: Laws, schedule: F) {
    let attempt = |laws| run(local(async { schedule(Cloud::with_bucket(1, laws, 2).await).await }));
    assert_eq!(attempt(Laws::default()), Ok(()), "with every rule");
    assert!(attempt(without).is_err(), "{rule} is not needed by this schedule");
}

fn proves_rule<F: AsyncFn(Cloud) -> Outcome>(rule: Rule, schedule: F) {
    proves(&format!("{rule:?}"), Laws { gateway: Rules::without(rule), shadows: None }, schedule);
}

fn proves_shadows<F: AsyncFn(Cloud) -> Outcome>(rule: shadows::Rule, schedule: F) {
    proves(&format!("{rule:?}"), Laws { gateway: Rules::default(), shadows: Some(rule) }, schedule);
}

/// Runs what spawns tasks of its own.
pub(super) async fn local<T>(work: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(work).await
}

macro_rules! ok {
    ($call:expr) => {
        $call.await.map_err(|error| format!("{}: {error}", stringify!($call)))?
    };
}

/// Lets a client go on while others do.
pub(super) fn spawn<T: 'static>(client: Client, work: impl AsyncFnOnce(Client) -> T + 'static) -> JoinHandle<T> {
    tokio::task::spawn_local(async move { work(client).await })
}

/// What is listed is what can be read, through both gateways.
pub(super) async fn listing_agrees(cloud: &Cloud, key: &str) -> Outcome {
    for at in 0..2 {
        let client = cloud.client(at);
        let read = ok!(client.open(key)).map(|(etag, _)| etag.to_string());
        let listed: BTreeMap<_, _> = ok!(client.list());
        if listed.get(key) != read.as_ref() {
            return Err(format!("{listed:?} is listed, {key} is {read:?}"));
        }
    }
    Ok(())
}

/// Whether a key reads as one of these.
pub(super) async fn reads(client: &Client, key: &str, wanted: &[Option<&str>]) -> Outcome {
    let found = ok!(client.get(key)).map(|texts| texts.join(" "));
    if wanted.contains(&found.as_deref()) { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

#[test]
fn row_52_a_late_confirmation_does_not_bring_an_old_entry_back() {
    proves_shadows(shadows::Rule::ConfirmAtHeadStamp, async |cloud| {
        let stop = cloud.stop(0, Step::AfterSwap(Table::Heads));
        let first = spawn(cloud.client(0), async |client| client.put("k", "first").await.map(|_| ()));
        let go = stop.reached().await;
        cloud.pass(100).await;
        ok!(cloud.client(1).put("k", "second"));
        cloud.pass(100).await;
        let _ = go.send(());
        let _ = first.await;
        listing_agrees(&cloud, "k").await
    });
}

#[test]
fn row_53_a_reader_who_settles_an_entry_fences_its_slow_writer() {
    proves_shadows(shadows::Rule::TouchBeforeDiscard, async |cloud| {
        ok!(cloud.client(0).put("k", "before"));
        let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
        let slow = spawn(cloud.client(0), async |client| client.put("k", "slow").await.map(|_| ()));
        let go = stop.reached().await;
        cloud.pass(31_000).await;
        ok!(cloud.client(1).list());
        let dies = cloud.stop(0, Step::AfterSwap(Table::Heads));
        let _ = go.send(());
        let _dead = dies.reached().await;
        slow.abort();
        listing_agrees(&cloud, "k").await
    });
}

#[test]
fn row_54_what_a_head_says_is_listed_whatever_becomes_of_its_writer() {
    proves_shadows(shadows::Rule::AnnounceFirst, async |cloud| {
        let stop = cloud.stop(0, Step::AfterSwap(Table::Heads));
        let dies = spawn(cloud.client(0), async |client| client.put("k", "v").await.map(|_| ()));
        let _dead = stop.reached().await;
        dies.abort();
        reads(&cloud.client(1), "k", &[Some("v")]).await?;
        listing_agrees(&cloud, "k").await
    });
}

#[test]
fn row_56_a_put_through_a_slow_clock_after_a_delete_is_listed() {
    proves_rule(Rule::KeepDeletedHeads, async |cloud| {
        cloud.nodes[0].clock.set_skew(400_000);
        cloud.nodes[1].clock.set_skew(-90_000);
        ok!(cloud.client(0).put("k", "first"));
        ok!(cloud.client(0).delete("k"));
        cloud.pass(402).await;
        ok!(cloud.client(1).put("k", "second"));
        listing_agrees(&cloud, "k").await
    });
}

#[test]
fn row_57_a_sweeper_and_a_slow_upload_never_leave_a_torn_object() {
    proves_rule(Rule::FenceSweeper, async |cloud| {
        let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
        let slow = spawn(cloud.client(0), async |client| client.put("k", "v").await.is_ok());
        let go = stop.reached().await;
        ok!(cloud.client(1).objects.sweep());
        let _ = go.send(());
        let put = slow.await.map_err(|error| error.to_string())?;
        reads(&cloud.client(1), "k", &[if put { Some("v") } else { None }]).await
    });
}

#[test]
fn row_58_a_part_that_is_put_again_leaves_the_one_being_completed() {
    proves_rule(Rule::KeepPartsUntilEnd, async |cloud| {
        let client = cloud.client(0);
        let upload = ok!(client.begin("k"));
        let part = ok!(client.part("k", &upload, 1, "old"));
        let stop = cloud.stop(1, Step::AfterSwap(Table::Uploads));
        let (id, parts) = (upload.clone(), [part]);
        let completed = spawn(cloud.client(1), async move |client| client.complete("k", &id, &parts).await);
        let go = stop.reached().await;
        let _ = client.part("k", &upload, 1, "new").await;
        ok!(client.objects.sweep());
        let _ = go.send(());
        ok!(async { completed.await.map_err(|error| error.to_string()) }).map_err(|error| error.to_string())?;
        reads(&client, "k", &[Some("old")]).await?;
        ok!(client.objects.sweep());
        reads(&client, "k", &[Some("old")]).await
    });
}

#[test]
fn row_59_an_upload_taken_back_is_not_completed_afterwards() {
    proves_rule(Rule::FenceCompleting, async |cloud| {
        let client = cloud.client(1);
        let upload = ok!(client.begin("k"));
        let parts = [ok!(client.part("k", &upload, 1, "a")), ok!(client.part("k", &upload, 2, "b"))];
        let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
        let id = upload.clone();
        let slow = spawn(cloud.client(0), async move |client| client.complete("k", &id, &parts).await.is_ok());
        let go = stop.reached().await;
        cloud.pass(20_000).await;
        ok!(client.objects.sweep());
        ok!(client.abort("k", &upload));
        let _ = go.send(());
        let done = slow.await.map_err(|error| error.to_string())?;
        reads(&client, "k", &[if done { Some("a b") } else { None }]).await
    });
}

#[test]
fn row_60_the_manifest_is_there_when_the_head_names_it() {
    proves_rule(Rule::ManifestFirst, async |cloud| {
        let client = cloud.client(1);
        let upload = ok!(client.begin("k"));
        let parts = [ok!(client.part("k", &upload, 1, "a")), ok!(client.part("k", &upload, 2, "b"))];
        let stop = cloud.stop(0, Step::AfterSwap(Table::Heads));
        let dies = spawn(cloud.client(0), async move |client| client.complete("k", &upload, &parts).await);
        let _dead = stop.reached().await;
        dies.abort();
        reads(&client, "k", &[Some("a b")]).await?;
        cloud.pass(60_000).await;
        ok!(client.objects.sweep());
        reads(&client, "k", &[Some("a b")]).await
    });
}

#[test]
fn row_61_a_copy_outlives_its_source() {
    proves_rule(Rule::CopyBytes, async |cloud| {
        let client = cloud.client(0);
        ok!(client.put("source", "v"));
        ok!(client.copy("source", "copy"));
        ok!(client.delete("source"));
        reads(&client, "copy", &[Some("v")]).await
    });
}

#[test]
fn row_62_what_a_dead_writer_replaced_is_released_by_the_next() {
    proves_rule(Rule::DrainReleases, async |cloud| {
        let client = cloud.client(1);
        ok!(client.put("k", "first"));
        let stop = cloud.stop(0, Step::AfterSwap(Table::Heads));
        let dies = spawn(cloud.client(0), async |client| client.put("k", "second").await.map(|_| ()));
        let _dead = stop.reached().await;
        dies.abort();
        ok!(client.put("k", "third"));
        match cloud.remains().await.get("blobs") {
            Some(1) => Ok(()),
            found => Err(format!("{found:?} blobs instead of one")),
        }
    });
}

#[test]
fn row_63_what_is_being_read_is_not_removed() {
    proves_rule(Rule::PinReaders, async |cloud| {
        let client = cloud.client(0);
        ok!(client.put_in_parts("k", "v"));
        let (_, mut reader) = ok!(client.open("k")).ok_or("it is there")?;
        let mut bytes = ok!(reader.next(10)).to_vec();
        ok!(client.delete("k"));
        cloud.pass(100).await;
        ok!(client.objects.sweep());
        bytes.extend(ok!(read(reader)));
        if super::client::texts(&bytes) != Some(vec!["v-1".into(), "v-2".into()]) {
            return Err("torn".into());
        }
        ok!(client.objects.sweep());
        let left = cloud.remains().await;
        if left.contains_key("blobs") || left.contains_key("manifests") {
            return Err(format!("{left:?} remains when nobody reads"));
        }
        Ok(())
    });
}

/// A put that is under way while its bucket is deleted: one of the two fails.
async fn put_beside_delete_bucket(cloud: Cloud) -> Outcome {
    let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
    let put = spawn(cloud.client(0), async |client| client.put("k", "v").await.is_ok());
    let go = stop.reached().await;
    let deleted = spawn(cloud.client(1), async |client| client.delete_bucket().await.is_ok());
    cloud.pass(5_000).await;
    let _ = go.send(());
    let put = put.await.map_err(|error| error.to_string())?;
    let deleted = deleted.await.map_err(|error| error.to_string())?;
    match (put, deleted) {
        (true, true) => Err("an object was put into a bucket that is gone".into()),
        (true, false) => reads(&cloud.client(1), "k", &[Some("v")]).await,
        (false, _) => Ok(()),
    }
}

#[test]
fn row_64_a_bucket_goes_only_when_every_gateway_has_closed_it() {
    proves_rule(Rule::CloseBuckets, put_beside_delete_bucket);
}

#[test]
fn row_64_no_heartbeat_shows_a_bucket_closed_that_a_write_relies_on() {
    proves_rule(Rule::HoldSections, put_beside_delete_bucket);
}

#[test]
fn row_65_versioning_holds_for_every_write_that_ends_after_it_was_switched_on() {
    proves_rule(Rule::HoldSections, async |cloud| {
        ok!(cloud.client(1).put("k", "first"));
        let stop = cloud.stop(0, Step::BeforeSwap(Table::Heads));
        let put = spawn(cloud.client(0), async |client| client.put("k", "second").await.is_ok());
        let go = stop.reached().await;
        let client = cloud.client(1);
        let switched = spawn(client.clone(), async |client| {
            client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok()
        });
        cloud.pass(5_000).await;
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
