//! Schedules drawn from seeds: clients, sweepers and the lifecycle worker on two keys through two faulty gateways.
//!
//! Promised, whatever happens: who reads sees one write, whole, and none that was followed by another (see [`super::history`]);
//! what is listed is what can be read; where versions are kept every acknowledged one is there; and when all is deleted,
//! nothing remains.

use std::collections::{BTreeMap, BTreeSet};

use larder_gateway::objects::Error;
use larder_gateway::{Rule, Rules};
use larder_model::objects::lifecycle::{Expiration, Filter, Lifecycle, LifecycleRule};
use larder_model::objects::{Bucket, Versioning};
use larder_store::wrappers::faulty::Faults;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::acts::{Begun, Shared, act, draw};
use super::cloud::{Cloud, Laws};
use super::history::Value;
use crate::random::{Dice, first, schedules};
use crate::world::run;

/// Keys; what is under `old/` is removed by the lifecycle worker whenever it comes.
pub(super) const KEYS: [&str; 2] = ["x", "old/y"];
const ROUNDS: usize = 8;
const SCHEDULES: u64 = 100;
/// A midnight long before virtual time begins.
const LONG_AGO: u64 = 86_400_000_000 * 10_000;

type Outcome = Result<(), String>;

#[test]
fn random_schedules_tear_lose_and_resurrect_nothing() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let first = first();
    for seed in first..first + schedules(SCHEDULES) {
        match run(LocalSet::new().run_until(schedule(seed, Laws::default()))) {
            Ok(done) => done.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count),
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    for what in ["put", "delete", "copy", "complete"] {
        assert!(counts.get(what).is_some_and(|count| *count > 0), "too few: {counts:?}");
    }
}

async fn schedule(seed: u64, laws: Laws) -> Result<BTreeMap<&'static str, usize>, String> {
    let mut dice = Dice(seed);
    let start = Instant::now();
    let nodes = if dice.below(4) == 0 { 1 } else { 2 };
    let mut cloud = Cloud::with_bucket(seed, laws, nodes).await;
    let versioning = [Versioning::Off, Versioning::Off, Versioning::Enabled, Versioning::Suspended][dice.below(4)];
    let drops = versioning == Versioning::Off && dice.below(3) == 0;
    let shared = Shared { alone: nodes == 1, prunes: dice.below(4) == 0, drops, ..Shared::default() };
    let settings = |bucket: &mut Bucket| {
        bucket.versioning = versioning;
        bucket.lifecycle = Some(rules());
    };
    cloud.client(0).configure(settings).await.map_err(|error| error.to_string())?;
    if versioning == Versioning::Enabled {
        shared.kept_since.set(Some(Instant::now()));
    }
    for at in 0..nodes {
        cloud.set_skew(at, dice.below(480_000) as i64 - 240_000);
    }
    let (pause_ms_max, pause_per_mille) = [(5, 500), (50, 500), (50, 900), (9_000, 60), (40_000, 20)][dice.below(5)];
    let (fail_per_mille, lose_per_mille) = (dice.below(25) as u32, dice.below(25) as u32);
    if dice.below(2) == 0 {
        begin(&cloud, &shared, KEYS[dice.below(2)]).await.map_err(|error| error.to_string())?;
    }
    let late_per_mille = if dice.below(3) == 0 { 20 } else { 0 };
    let faults = Faults { pause_ms_max, pause_per_mille, fail_per_mille, lose_per_mille, ..Faults::none() };
    cloud.set_faults(Faults { late_per_mille, ..faults });
    for round in 0..ROUNDS {
        one_round(&mut cloud, &mut dice, &shared, (round, pause_ms_max)).await?;
        if let Some(wrong) = shared.wrong.borrow().as_ref() {
            return Err(format!("{wrong}\n{}", told(&shared, start)));
        }
        if dice.below(10) == 0 {
            cloud.leap(2).await;
        }
    }
    cloud.set_faults(Faults::none());
    let checked = check(&mut cloud, &shared).await;
    checked.map_err(|wrong| format!("{versioning:?}: {wrong}\n{}", told(&shared, start)))?;
    Ok(shared.history.acknowledged())
}

/// An upload with two parts.
async fn begin(cloud: &Cloud, shared: &Shared, key: &'static str) -> larder_gateway::objects::Result<()> {
    let client = cloud.client(0);
    let id = client.begin(key).await?;
    let mut parts = BTreeMap::new();
    for number in 1..=2 {
        let text = format!("p{number}");
        parts.insert(number, vec![(client.part(key, &id, number, &text).await?, text)]);
    }
    shared.uploads.borrow_mut().push(Begun { key, id, parts });
    Ok(())
}

fn told(shared: &Shared, start: Instant) -> String {
    KEYS.map(|key| format!("{key}:\n{}", shared.history.told(key, start))).concat()
}

fn rules() -> Lifecycle {
    let filter = Filter { prefix: Some("old/".into()), ..Filter::default() };
    let expiration = Some(Expiration::Date(LONG_AGO));
    let expire = LifecycleRule { id: "old".into(), enabled: true, filter, expiration, ..LifecycleRule::default() };
    let abort_uploads_days = Some(1);
    let abort = LifecycleRule { id: "abort".into(), enabled: true, abort_uploads_days, ..LifecycleRule::default() };
    Lifecycle { rules: vec![expire, abort] }
}

/// Some clients at once, and perhaps a gateway that dies meanwhile.
async fn one_round(cloud: &mut Cloud, dice: &mut Dice, shared: &Shared, (round, pause): (usize, u64)) -> Outcome {
    let mut tasks: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for client in 0..2 + dice.below(5) {
        let node = dice.below(cloud.nodes.len());
        let what = draw(dice, shared, format!("r{round}c{client}"));
        let delay = dice.below(pause as usize * 2) as u64;
        let (client, shared) = (cloud.client(node), shared.clone());
        let work = async move {
            tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
            act(client, shared, what).await;
        };
        tasks.push((node, tokio::task::spawn_local(work)));
    }
    if dice.below(4) == 0 {
        let victim = dice.below(cloud.nodes.len());
        cloud.pass(dice.below(pause as usize * 4) as u64).await;
        for (_, task) in tasks.iter().filter(|(node, _)| *node == victim) {
            task.abort();
        }
        cloud.restart(victim).await;
    }
    for (_, task) in tasks {
        match task.await {
            Err(error) if error.is_panic() => return Err(format!("{error}")),
            _ => {}
        }
    }
    Ok(())
}

/// Everything at rest.
async fn check(cloud: &mut Cloud, shared: &Shared) -> Outcome {
    cloud.pass(15_000).await;
    while shared.drops && !matches!(cloud.client(0).create_bucket().await, Ok(()) | Err(Error::BucketExists { .. })) {
        // Its deleter died: it takes a minute until that is believed.
        cloud.pass(20_000).await;
    }
    check_values(cloud, shared).await?;
    for at in 0..cloud.nodes.len() {
        let swept = cloud.client(at).objects.sweep().await.map_err(|error| format!("a sweep: {error}"))?;
        if swept.failed > 0 {
            return Err(format!("a sweep at rest: {swept:?}"));
        }
    }
    check_values(cloud, shared).await?;
    if !shared.prunes {
        check_versions(cloud, shared).await?;
    }
    delete_all(cloud).await.map_err(|error| format!("deleting all: {error}"))?;
    for _ in 0..2 {
        cloud.client(0).objects.sweep().await.map_err(|error| format!("a sweep: {error}"))?;
        cloud.leap(2).await;
    }
    cloud.client(0).objects.sweep().await.map_err(|error| format!("a sweep: {error}"))?;
    let remains = cloud.remains().await;
    if remains.is_empty() { Ok(()) } else { Err(format!("{remains:?} remains")) }
}

async fn check_values(cloud: &Cloud, shared: &Shared) -> Outcome {
    for at in 0..cloud.nodes.len() {
        let client = cloud.client(at);
        let listed = client.list().await.map_err(|error| format!("list: {error}"))?;
        let listed: BTreeSet<_> = listed.into_iter().collect();
        let mut readable = BTreeSet::new();
        for key in KEYS {
            let begun = Instant::now();
            let opened = client.open(key).await.map_err(|error| format!("{key}: {error}"))?;
            readable.extend(opened.map(|(etag, _)| (key.to_owned(), etag.to_string())));
            let found = client.get(key).await.map_err(|error| format!("{key}: {error}"))?;
            let value: Value = found.map(|texts| texts.join(" "));
            if !shared.allows(key, &value, (begun, Instant::now())) {
                return Err(format!("{key} is {value:?} in the end"));
            }
            if value.as_ref().is_some_and(|text| !shared.history.knows(text)) {
                return Err(format!("{key} is {value:?}, which nobody wrote"));
            }
        }
        if listed != readable {
            return Err(format!("{listed:?} are listed, {readable:?} can be read"));
        }
    }
    Ok(())
}

/// Every version that was acknowledged is there.
async fn check_versions(cloud: &Cloud, shared: &Shared) -> Outcome {
    for (key, id, text) in shared.versions.take() {
        let found = cloud.client(0).get_version(key, &id).await;
        if found.as_ref().ok().map(|texts| texts.join(" ")).as_ref() != Some(&text) {
            return Err(format!("version {id} of {key} is {found:?}, not {text}"));
        }
    }
    Ok(())
}

async fn delete_all(cloud: &Cloud) -> larder_gateway::objects::Result<()> {
    let client = cloud.client(0);
    for (key, id) in client.uploads().await? {
        client.abort(&key, &id).await?;
    }
    for (key, id) in client.all_versions().await? {
        client.delete_version(&key, &id).await?;
    }
    Ok(())
}

/// The walk is worth something: it finds what is broken without a rule.
#[test]
fn the_walk_finds_what_a_missing_rule_breaks() {
    for rule in [Rule::CopyBytes, Rule::KeepPartsUntilEnd, Rule::FenceSweeper, Rule::CloseBuckets] {
        let laws = Laws { gateway: Rules::without(rule), shadows: None };
        let finds = (0..1000).any(|seed| run(LocalSet::new().run_until(schedule(seed, laws))).is_err());
        assert!(finds, "{rule:?} is not missed");
    }
}
