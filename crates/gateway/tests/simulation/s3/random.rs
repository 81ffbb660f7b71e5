//! Schedules drawn from seeds: clients, sweepers and the lifecycle worker on two keys through two faulty gateways.
//!
//! Promised, whatever happens: who reads sees one write, whole, and none that was followed by another (see [`super::history`]);
//! what is listed is what can be read; where versions are kept every acknowledged one is there; and when all is deleted,
//! nothing remains.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use larder_gateway::objects::complete::ListedPart;
use larder_gateway::objects::Error;
use larder_model::objects::{Bucket, Versioning};
use larder_model::objects::lifecycle::{Expiration, Filter, Lifecycle, LifecycleRule};
use larder_gateway::{Rule, Rules};
use larder_store::shadows;
use larder_store::wrappers::faulty::Faults;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::client::Client;
use super::cloud::{Cloud, Laws};
use super::history::{Deed, History, Value};
use crate::random::{Dice, schedules};
use crate::world::run;

/// Keys; what is under `old/` is removed by the lifecycle worker whenever it comes.
const KEYS: [&str; 2] = ["x", "old/y"];
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
        assert!(counts.get(what).is_some_and(|count| *count > 10), "too few: {counts:?}");
    }
}

/// The first seed.
fn first() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "which schedule is looked at is said from outside")]
    std::env::var("LARDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

/// An upload somebody began: its key, its id, the parts that were acknowledged with their texts.
#[derive(Debug, Clone)]
struct Begun {
    key: &'static str,
    id: String,
    parts: BTreeMap<u16, Vec<(ListedPart, String)>>,
}

/// What all clients of a schedule share.
#[derive(Clone, Default)]
struct Shared {
    history: History,
    uploads: Rc<RefCell<Vec<Begun>>>,
    /// Versions that were acknowledged: key, id, text.
    versions: Rc<RefCell<Vec<(&'static str, String, String)>>>,
    /// Since when every version is kept: that was answered then.
    kept_since: Rc<Cell<Option<Instant>>>,
    wrong: Rc<RefCell<Option<String>>>,
    /// Whether there is but one gateway: then nothing goes away under a reader.
    alone: bool,
    /// Whether versions are removed one by one: then older ones become current again.
    prunes: bool,
}

impl Shared {
    fn finds(&self, wrong: String) {
        self.wrong.borrow_mut().get_or_insert(wrong);
    }

    /// Notes a version whose write began at this moment and was acknowledged, if it has to stay.
    fn stored(&self, key: &'static str, id: Option<String>, text: &str, begun: Instant) {
        let kept = self.kept_since.get().is_some_and(|since| since <= begun);
        let id = id.filter(|id| kept && id != "null");
        self.versions.borrow_mut().extend(id.map(|id| (key, id, text.to_owned())));
    }

    /// Whether who read a key in this time may have seen this.
    fn allows(&self, key: &str, value: &Value, (begun, ended): (Instant, Instant)) -> bool {
        if !self.prunes {
            return self.history.allows(key, value, (begun, ended));
        }
        value.as_ref().is_none_or(|text| self.history.knows(text))
    }
}

/// What one client does.
#[derive(Debug, Clone)]
enum Act {
    Put(&'static str, String),
    Delete(&'static str),
    Get(&'static str),
    List,
    Copy(&'static str, &'static str),
    Begin(&'static str),
    Part(Begun, u16, String),
    Complete(Begun, Vec<(ListedPart, String)>),
    Abort(Begun),
    /// The newest version of a key, or the oldest.
    Prune(&'static str, bool),
    Switch,
    Sweep,
    Age,
}

fn draw(dice: &mut Dice, shared: &Shared, text: String) -> Act {
    let key = KEYS[dice.below(2)];
    let uploads = shared.uploads.borrow();
    let upload = if uploads.is_empty() { None } else { Some(uploads[dice.below(uploads.len())].clone()) };
    match (dice.below(100), upload) {
        (0..18, _) => Act::Put(key, text),
        (18..26, _) => Act::Delete(key),
        (26..40, _) => Act::Get(key),
        (40..46, _) => Act::List,
        (46..52, _) => Act::Copy(key, key),
        (52..58, _) => Act::Copy(KEYS[0], KEYS[1]),
        (58..63, _) => Act::Sweep,
        (63..65, _) => Act::Age,
        (65..66, _) => Act::Switch,
        (66..69, _) if shared.prunes => Act::Prune(key, dice.below(2) == 0),
        (66..79, Some(upload)) => Act::Part(upload, 1 + dice.below(2) as u16, text),
        (79..94, Some(upload)) => {
            let pick = |found: &Vec<(ListedPart, String)>, dice: &mut Dice| found[dice.below(found.len())].clone();
            let parts = upload.parts.values().map(|found| pick(found, dice)).collect::<Vec<_>>();
            if parts.is_empty() { Act::Part(upload, 1, text) } else { Act::Complete(upload, parts) }
        }
        (94..96, Some(upload)) => Act::Abort(upload),
        _ => Act::Begin(key),
    }
}

async fn act(client: Client, shared: Shared, act: Act) {
    let (history, begun) = (&shared.history, Instant::now());
    match act {
        Act::Put(key, text) => {
            let write = history.begin(key, Deed::Put(text.clone()));
            if let Ok(stored) = client.put(key, &text).await {
                write.acknowledge();
                shared.stored(key, stored.version_id, &text, begun);
            }
        }
        Act::Delete(key) => {
            let write = history.begin(key, Deed::Delete);
            if client.delete(key).await.is_ok() {
                write.acknowledge();
            }
        }
        Act::Copy(from, to) => {
            let write = history.begin(to, Deed::Copy(from.into()));
            if client.copy(from, to).await.is_ok() {
                write.acknowledge();
            }
        }
        Act::Get(key) => {
            match client.get(key).await {
                Ok(found) => {
                    let value = found.map(|texts| texts.join(" "));
                    if !shared.allows(key, &value, (begun, Instant::now())) {
                        shared.finds(format!("a read of {key} saw {value:?}"));
                    }
                }
                // Another gateway may take bytes away under a reader: then it is told so, and sees none that are wrong.
                Err(Error::Gateway(larder_gateway::Error::Damaged(why))) if shared.alone => {
                    shared.finds(format!("a read of {key}: {why}"));
                }
                Err(_) => {}
            }
        }
        Act::List => {
            if let Ok(listed) = client.list().await {
                let gone = KEYS.iter().filter(|key| !listed.contains_key(**key));
                for key in gone {
                    if !shared.allows(key, &None, (begun, Instant::now())) {
                        shared.finds(format!("{key} is not listed: {listed:?}"));
                    }
                }
            }
        }
        Act::Begin(key) => {
            if let Ok(id) = client.begin(key).await {
                shared.uploads.borrow_mut().push(Begun { key, id, parts: BTreeMap::new() });
            }
        }
        Act::Part(upload, number, text) => {
            if let Ok(part) = client.part(upload.key, &upload.id, number, &text).await {
                let mut uploads = shared.uploads.borrow_mut();
                let found = uploads.iter_mut().find(|found| found.id == upload.id);
                found.expect("no upload is forgotten").parts.entry(number).or_default().push((part, text));
            }
        }
        Act::Complete(upload, parts) => complete(&client, &shared, &upload, parts).await,
        Act::Abort(upload) => {
            let _ = client.abort(upload.key, &upload.id).await;
        }
        Act::Prune(key, newest) => {
            let _write = history.begin(key, Deed::Delete);
            if let Ok(versions) = client.all_versions().await {
                let mut own = versions.into_iter().filter(|(found, _)| found == key);
                let id = if newest { own.next() } else { own.last() };
                if let Some((_, id)) = id {
                    let _ = client.delete_version(key, &id).await;
                }
            }
        }
        Act::Switch => {
            if client.configure(|bucket| bucket.versioning = Versioning::Enabled).await.is_ok() {
                shared.kept_since.set(shared.kept_since.get().or_else(|| Some(Instant::now())));
            }
        }
        Act::Sweep => {
            let _ = client.objects.sweep().await;
        }
        Act::Age => {
            let _write = history.begin(KEYS[1], Deed::Delete);
            let _ = client.objects.run_lifecycle().await;
        }
    }
}

async fn complete(client: &Client, shared: &Shared, upload: &Begun, parts: Vec<(ListedPart, String)>) {
    let (listed, texts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let text = texts.join(" ");
    let begun = Instant::now();
    let write = shared.history.begin_again(upload.key, Deed::Put(text.clone()));
    if let Ok(completed) = client.complete(upload.key, &upload.id, &listed).await {
        write.acknowledge();
        shared.stored(upload.key, completed.version_id, &text, begun);
    }
}

async fn schedule(seed: u64, laws: Laws) -> Result<BTreeMap<&'static str, usize>, String> {
    let mut dice = Dice(seed);
    let start = Instant::now();
    let nodes = if dice.below(4) == 0 { 1 } else { 2 };
    let mut cloud = Cloud::with_bucket(seed, laws, nodes).await;
    let versioning = [Versioning::Off, Versioning::Off, Versioning::Enabled, Versioning::Suspended][dice.below(4)];
    let shared = Shared { alone: nodes == 1, prunes: dice.below(4) == 0, ..Shared::default() };
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
    let (pause_ms_max, pause_per_mille) = [(5, 500), (50, 500), (50, 900), (9_000, 60)][dice.below(4)];
    let (fail_per_mille, lose_per_mille) = (dice.below(25) as u32, dice.below(25) as u32);
    if dice.below(2) == 0 {
        begin(&cloud, &shared, KEYS[dice.below(2)]).await.map_err(|error| error.to_string())?;
    }
    cloud.set_faults(Faults { pause_ms_max, pause_per_mille, fail_per_mille, lose_per_mille, stale_per_mille: 0 });
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
    for (key, id, text) in shared.versions.borrow().iter() {
        let found = cloud.client(0).get_version(key, id).await;
        if found.as_ref().ok().map(|texts| texts.join(" ")).as_ref() != Some(text) {
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

/// How many of some schedules fail without a rule: `LARDER_OFF` names it. For who wants to know what the walk finds.
#[test]
#[ignore = "an experiment"]
fn schedules_without_a_rule() {
    let off = |rule| Laws { gateway: Rules::without(rule), shadows: None };
    for rule in [Rule::HoldSections, Rule::KeepDeletedHeads, Rule::FenceSweeper, Rule::KeepPartsUntilEnd, Rule::FenceCompleting,
        Rule::ManifestFirst, Rule::CopyBytes, Rule::DrainReleases, Rule::PinReaders] {
        let failed = (0..schedules(SCHEDULES)).filter(|seed| run(LocalSet::new().run_until(schedule(*seed, off(rule)))).is_err());
        println!("{rule:?}: {}", failed.count());
    }
    for rule in [shadows::Rule::AnnounceFirst, shadows::Rule::ConfirmAtHeadStamp, shadows::Rule::TouchBeforeDiscard] {
        let laws = Laws { shadows: Some(rule), ..Laws::default() };
        let failed = (0..schedules(SCHEDULES)).filter(|seed| run(LocalSet::new().run_until(schedule(*seed, laws))).is_err());
        println!("{rule:?}: {}", failed.count());
    }
}
