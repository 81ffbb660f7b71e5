//! Seeded random schedules: clients, sweepers and the lifecycle worker on two keys through two faulty gateways.
//!
//! Invariants of every schedule: a read sees one whole write that no other followed (see [`super::history`]); listings
//! agree with reads; with versioning every acknowledged version is there; after all deletes no row and no blob remains.

use std::collections::{BTreeMap, BTreeSet};

use larder_rows::Timestamp;
use larder_s3::Error;
use larder_s3_rules::lifecycle::{Expiration, Lifecycle, LifecycleFilter, LifecycleRule};
use larder_s3_rules::{Bucket, Versioning};
use larder_testkit::faulty::StoreFaults;
use larder_testkit::{SplitMix64, case_seeds};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::acts::{OpenUpload, ScheduleState, draw, run_operation};
use super::cluster::S3Cluster;
use super::history::ReadValue;
use super::rules::S3ScheduleResult;
use crate::simulation::random::SOAK_SCHEDULES;
use crate::simulation::world::run;

/// Keys; the lifecycle worker removes those under `old/` whenever it runs.
pub(super) const KEYS: [&str; 2] = ["x", "old/y"];
const ROUNDS: usize = 8;
const SCHEDULES: u64 = 33;
/// A midnight long before virtual time begins.
const LONG_AGO: u64 = 86_400_000_000 * 10_000;

#[test]
fn random_schedules_tear_lose_and_resurrect_no_object() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in case_seeds(SCHEDULES, SOAK_SCHEDULES) {
        match run(LocalSet::new().run_until(schedule(seed))) {
            Ok(done) => done.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count),
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    for what in ["put", "delete", "copy", "complete"] {
        assert!(counts.get(what).is_some_and(|count| *count > 0), "too few: {counts:?}");
    }
}

async fn schedule(seed: u64) -> Result<BTreeMap<&'static str, usize>, String> {
    let mut dice = SplitMix64::new(seed);
    let start = Instant::now();
    let nodes = if dice.below(4) == 0 { 1 } else { 2 };
    let mut cluster = S3Cluster::with_bucket(seed, nodes).await;
    let versioning = [Versioning::Off, Versioning::Off, Versioning::Enabled, Versioning::Suspended][dice.below(4)];
    let drops = versioning == Versioning::Off && dice.below(3) == 0;
    let shared =
        ScheduleState { single_process: nodes == 1, prunes: dice.below(4) == 0, drops, ..ScheduleState::default() };
    let settings = |bucket: &mut Bucket| {
        bucket.versioning = versioning;
        bucket.lifecycle = Some(rules());
    };
    cluster.client(0).configure(settings).await.map_err(|error| error.to_string())?;
    if versioning == Versioning::Enabled {
        shared.kept_since.set(Some(Instant::now()));
    }
    for at in 0..nodes {
        cluster.set_skew(at, dice.below(480_000) as i64 - 240_000);
    }
    let (pause_ms_max, pause_per_mille) = [(5, 500), (50, 500), (50, 900), (9_000, 60), (40_000, 20)][dice.below(5)];
    let (fail_per_mille, lose_per_mille) = (dice.below(25) as u32, dice.below(25) as u32);
    if dice.below(2) == 0 {
        begin(&cluster, &shared, KEYS[dice.below(2)]).await.map_err(|error| error.to_string())?;
    }
    let late_per_mille = if dice.below(3) == 0 { 20 } else { 0 };
    let faults = StoreFaults { pause_ms_max, pause_per_mille, fail_per_mille, lose_per_mille, ..StoreFaults::none() };
    cluster.set_faults(StoreFaults { late_per_mille, ..faults });
    for round in 0..ROUNDS {
        one_round(&mut cluster, &mut dice, &shared, (round, pause_ms_max)).await?;
        if let Some(wrong) = shared.wrong.borrow().as_ref() {
            return Err(format!("{wrong}\n{}", describe_writes(&shared, start)));
        }
        if dice.below(10) == 0 {
            cluster.leap(2).await;
        }
    }
    cluster.set_faults(StoreFaults::none());
    let checked = check(&mut cluster, &shared).await;
    checked.map_err(|wrong| format!("{versioning:?}: {wrong}\n{}", describe_writes(&shared, start)))?;
    Ok(shared.history.acknowledged())
}

/// Begins an upload with two parts.
async fn begin(cluster: &S3Cluster, shared: &ScheduleState, key: &'static str) -> larder_s3::Result<()> {
    let client = cluster.client(0);
    let id = client.begin(key).await?;
    let mut parts = BTreeMap::new();
    for number in 1..=2 {
        let text = format!("p{number}");
        parts.insert(number, vec![(client.part(key, &id, number, &text).await?, text)]);
    }
    shared.uploads.borrow_mut().push(OpenUpload { key, id, parts });
    Ok(())
}

fn describe_writes(shared: &ScheduleState, start: Instant) -> String {
    KEYS.map(|key| format!("{key}:\n{}", shared.history.describe_writes(key, start))).concat()
}

fn rules() -> Lifecycle {
    let filter = LifecycleFilter { prefix: Some("old/".into()), ..LifecycleFilter::default() };
    let expiration = Some(Expiration::Date(Timestamp(LONG_AGO)));
    let expire = LifecycleRule { id: "old".into(), enabled: true, filter, expiration, ..LifecycleRule::default() };
    let abort_uploads_days = Some(1);
    let abort = LifecycleRule { id: "abort".into(), enabled: true, abort_uploads_days, ..LifecycleRule::default() };
    Lifecycle { rules: vec![expire, abort] }
}

/// Runs some clients at once, and perhaps kills a gateway.
async fn one_round(
    cluster: &mut S3Cluster,
    dice: &mut SplitMix64,
    shared: &ScheduleState,
    (round, pause): (usize, u64),
) -> S3ScheduleResult {
    let mut tasks: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for client in 0..2 + dice.below(5) {
        let node = dice.below(cluster.nodes.len());
        let what = draw(dice, shared, format!("r{round}c{client}"));
        let delay = dice.below(pause as usize * 2) as u64;
        let (client, shared) = (cluster.client(node), shared.clone());
        let work = async move {
            tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
            run_operation(client, shared, what).await;
        };
        tasks.push((node, tokio::task::spawn_local(work)));
    }
    if dice.below(4) == 0 {
        let victim = dice.below(cluster.nodes.len());
        cluster.advance(dice.below(pause as usize * 4) as u64).await;
        for (_, task) in tasks.iter().filter(|(node, _)| *node == victim) {
            task.abort();
        }
        cluster.restart(victim).await;
    }
    for (_, task) in tasks {
        match task.await {
            Err(error) if error.is_panic() => return Err(format!("{error}")),
            _ => {}
        }
    }
    Ok(())
}

/// Checks the invariants at rest.
async fn check(cluster: &mut S3Cluster, shared: &ScheduleState) -> S3ScheduleResult {
    cluster.advance(15_000).await;
    while shared.drops && !matches!(cluster.client(0).create_bucket().await, Ok(()) | Err(Error::BucketExists { .. })) {
        // The deleter died: its deletion counts as abandoned after a minute.
        cluster.advance(20_000).await;
    }
    check_values(cluster, shared).await?;
    for at in 0..cluster.nodes.len() {
        let swept = cluster.client(at).objects.sweeper.sweep().await.map_err(|error| format!("a sweep: {error}"))?;
        if swept.failed > 0 {
            return Err(format!("a sweep at rest: {swept:?}"));
        }
    }
    check_values(cluster, shared).await?;
    if !shared.prunes {
        check_versions(cluster, shared).await?;
    }
    delete_all(cluster).await.map_err(|error| format!("deleting all: {error}"))?;
    for _ in 0..2 {
        cluster.client(0).objects.sweeper.sweep().await.map_err(|error| format!("a sweep: {error}"))?;
        cluster.leap(2).await;
    }
    cluster.client(0).objects.sweeper.sweep().await.map_err(|error| format!("a sweep: {error}"))?;
    let remains = cluster.leftovers().await;
    if remains.is_empty() { Ok(()) } else { Err(format!("{remains:?} remains")) }
}

async fn check_values(cluster: &S3Cluster, shared: &ScheduleState) -> S3ScheduleResult {
    for at in 0..cluster.nodes.len() {
        let client = cluster.client(at);
        let listed = client.list().await.map_err(|error| format!("list: {error}"))?;
        let listed: BTreeSet<_> = listed.into_iter().collect();
        let mut readable = BTreeSet::new();
        for key in KEYS {
            let begun = Instant::now();
            let opened = client.open(key).await.map_err(|error| format!("{key}: {error}"))?;
            readable.extend(opened.map(|(etag, _)| (key.to_owned(), etag.to_string())));
            let found = client.get(key).await.map_err(|error| format!("{key}: {error}"))?;
            let value: ReadValue = found.map(|texts| texts.join(" "));
            if !shared.allows(key, &value, (begun, Instant::now())) {
                return Err(format!("{key} is {value:?} at the end"));
            }
            if value.as_ref().is_some_and(|text| !shared.history.has_value(text)) {
                return Err(format!("{key} is {value:?}, which no client wrote"));
            }
        }
        if listed != readable {
            return Err(format!("{listed:?} are listed, {readable:?} can be read"));
        }
    }
    Ok(())
}

/// Checks that every acknowledged version is there.
async fn check_versions(cluster: &S3Cluster, shared: &ScheduleState) -> S3ScheduleResult {
    for (key, id, text) in shared.versions.take() {
        let found = cluster.client(0).get_version(key, &id).await;
        if found.as_ref().ok().map(|texts| texts.join(" ")).as_ref() != Some(&text) {
            return Err(format!("version {id} of {key} is {found:?}, not {text}"));
        }
    }
    Ok(())
}

async fn delete_all(cluster: &S3Cluster) -> larder_s3::Result<()> {
    let client = cluster.client(0);
    for (key, id) in client.uploads().await? {
        client.abort(&key, &id).await?;
    }
    for (key, id) in client.all_versions().await? {
        client.delete_version(&key, &id).await?;
    }
    Ok(())
}
