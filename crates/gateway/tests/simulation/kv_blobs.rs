//! Large bodies of the key-value side, and the sweepers of several gateways, none of which sees the leases of another.
//!
//! A schedule per rule of `kv/fence.rs`: one gateway is stopped at a step, days pass, another one sweeps. It holds with the rule
//! and fails without it. At the end a short random walk.

use std::sync::Arc;

use bytes::Bytes;
use larder_gateway::body::{Download, Upload};
use larder_gateway::kv::{PutObject, Quorums};
use larder_gateway::{BlobSweep, Error, Gateway, Rule, Rules};
use larder_model::causality::Conditions;
use larder_model::content::Content;
use larder_store::Table;
use larder_store::wrappers::faulty::Faults;
use tokio::task::JoinHandle;

use crate::random::Dice;
use crate::s3::cloud::{Cloud, Laws};
use crate::s3::gate::Step;
use crate::world::{address, get_of, run};

type Outcome = Result<(), String>;

/// How often a body repeats its text: enough for a blob.
const REPEATS: usize = 40;
const SEEDS: u64 = 40;
const STEPS: usize = 30;

/// What a key shows: its texts, and the context.
struct Shown {
    texts: Vec<String>,
    context: Option<Bytes>,
}

/// Runs a schedule over three gateways with every rule, where it must hold, and without `rule`, where it must not.
fn proves<F: AsyncFn(Cloud) -> Outcome>(rule: Rule, schedule: F) {
    let attempt = |gateway| {
        run(tokio::task::LocalSet::new().run_until(async {
            let cloud = Cloud::new(1, Laws { gateway, shadows: None }, 3).await;
            add_types(&cloud).await;
            schedule(cloud).await
        }))
    };
    assert_eq!(attempt(Rules::default()), Ok(()), "with every rule");
    assert!(attempt(Rules::without(rule)).is_err(), "{rule:?} is not needed by this schedule");
}

async fn add_types(cloud: &Cloud) {
    let types = [
        ("sib", "{}"),
        ("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#),
        ("once", r#"{"write_once":true}"#),
        ("cas", r#"{"consistent":true}"#),
    ];
    for (name, props) in types {
        let (name, props) =
            (Bytes::from_static(name.as_bytes()), serde_json::from_str::<serde_json::Value>(props).unwrap());
        gateway(cloud, 0).create_type(&name, props.as_object().unwrap()).await.unwrap();
        while gateway(cloud, 0).activate_type(&name).await.is_err() {
            cloud.pass(100).await;
        }
    }
}

fn gateway(cloud: &Cloud, at: usize) -> Arc<Gateway> {
    Arc::clone(cloud.nodes[at].objects.gateway())
}

async fn put(gateway: Arc<Gateway>, kind: &'static str, text: String, context: Option<Bytes>) -> Result<(), Error> {
    let request = PutObject {
        address: address(kind, "k"),
        context,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: Content::default(),
        upload: Upload::Bytes(format!("{text}.").repeat(REPEATS).into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    gateway.put(request).await.map(|_| ())
}

/// A put that goes on while others do; whether it was acknowledged.
fn spawn(cloud: &Cloud, at: usize, kind: &'static str, text: &str, context: Option<Bytes>) -> JoinHandle<bool> {
    let put = put(gateway(cloud, at), kind, text.to_owned(), context);
    tokio::task::spawn_local(async move { put.await.is_ok() })
}

async fn read(cloud: &Cloud, at: usize, kind: &'static str) -> Result<Shown, String> {
    let request = get_of(kind, "k");
    let found = gateway(cloud, at).get(request).await.map_err(|error| format!("a read: {error}"))?;
    let mut texts = Vec::new();
    for mut body in found.bodies {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.length() {
            let piece = Download::piece(&mut body, bytes.len() as u64, 1 << 16).await;
            bytes.extend_from_slice(&piece.map_err(|error| format!("a body: {error}"))?);
        }
        let text = String::from_utf8_lossy(&bytes).split('.').next().unwrap().to_owned();
        assert_eq!(bytes, format!("{text}.").repeat(REPEATS).as_bytes(), "a torn body");
        texts.push(text);
    }
    texts.sort_unstable();
    Ok(Shown { texts, context: found.context })
}

async fn shows(cloud: &Cloud, kind: &'static str, wanted: &[&str]) -> Outcome {
    for at in 0..cloud.nodes.len() {
        let texts = read(cloud, at, kind).await?.texts;
        if texts != wanted {
            return Err(format!("{kind}: {texts:?} instead of {wanted:?}"));
        }
    }
    Ok(())
}

async fn sweep(cloud: &Cloud, at: usize) -> Result<u64, String> {
    let swept = gateway(cloud, at).sweep_blobs().await.map_err(|error| error.to_string())?;
    if swept.failed == 0 { Ok(swept.removed) } else { Err(format!("{swept:?}")) }
}

async fn blobs(cloud: &Cloud) -> usize {
    cloud.remains().await.get("blobs").copied().unwrap_or(0)
}

/// A writer is stopped for two days right before its row, while another gateway sweeps; what was there before, if anything.
async fn sleeps_before_its_row(mut cloud: Cloud, kind: &'static str, step: Step, before: Option<&str>) -> Outcome {
    if let Some(before) = before {
        assert!(spawn(&cloud, 0, kind, before, None).await.unwrap());
    }
    let context = read(&cloud, 0, kind).await.ok().and_then(|shown| shown.context);
    let stop = cloud.stop(0, step);
    let slow = spawn(&cloud, 0, kind, "slow", context);
    let go = stop.reached().await;
    cloud.leap(2).await;
    sweep(&cloud, 1).await?;
    let _ = go.send(());
    match (slow.await.unwrap(), before) {
        (true, _) => shows(&cloud, kind, &["slow"]).await,
        (false, Some(before)) => shows(&cloud, kind, &[before]).await,
        (false, None) => shows(&cloud, kind, &[]).await,
    }
}

#[test]
fn a_sweeper_does_not_take_the_blob_of_a_slot_that_is_about_to_be_written() {
    for kind in ["sib", "default"] {
        let step = Step::BeforeApply(Table::Objects);
        proves(Rule::FenceKvSweeper, async move |cloud| sleeps_before_its_row(cloud, kind, step, None).await);
    }
}

#[test]
fn a_sweeper_does_not_take_the_blob_of_a_shared_row_that_is_about_to_be_written() {
    for kind in ["lww", "once"] {
        let step = Step::BeforeApply(Table::Objects);
        proves(Rule::FenceKvSweeper, async move |cloud| sleeps_before_its_row(cloud, kind, step, None).await);
    }
}

#[test]
fn a_sweeper_touches_the_head_that_a_slow_writer_read() {
    for before in [None, Some("before")] {
        let step = Step::BeforeSwap(Table::Consistent);
        proves(Rule::FenceKvSweeper, async move |cloud| sleeps_before_its_row(cloud, "cas", step, before).await);
    }
}

#[test]
fn a_body_under_way_for_days_replaces_nothing() {
    for kind in ["sib", "default", "lww"] {
        proves(Rule::RefuseOldBlobs, async move |cloud| {
            sleeps_before_its_row(cloud, kind, Step::AfterBlobFinished, Some("before")).await
        });
    }
}

#[test]
fn a_sweeper_leaves_the_writers_of_today_alone() {
    for kind in ["sib", "default", "lww"] {
        proves(Rule::SweepOldBlobs, async move |cloud| {
            assert!(spawn(&cloud, 0, kind, "before", None).await.unwrap());
            let context = read(&cloud, 0, kind).await?.context;
            let stop = cloud.stop(0, Step::BeforeApply(Table::Objects));
            let slow = spawn(&cloud, 0, kind, "after", context);
            let go = stop.reached().await;
            cloud.pass(30_000).await;
            sweep(&cloud, 1).await?;
            let _ = go.send(());
            let shown = if slow.await.unwrap() { "after" } else { "before" };
            shows(&cloud, kind, &[shown]).await
        });
    }
}

#[test]
fn a_sweeper_that_finds_a_name_leaves_the_mark_to_the_others() {
    let outcome = run(tokio::task::LocalSet::new().run_until(async {
        let mut cloud = Cloud::new(1, Laws::default(), 3).await;
        add_types(&cloud).await;
        let writes = cloud.stop(0, Step::BeforeApply(Table::Objects));
        let slow = spawn(&cloud, 0, "sib", "slow", None);
        let go_on_writing = writes.reached().await;
        cloud.leap(2).await;
        let removes = cloud.stop(1, Step::BeforeBlobRemoved);
        let first = gateway(&cloud, 1);
        let first = tokio::task::spawn_local(async move { first.sweep_blobs().await.is_ok() });
        let go_on_removing = removes.reached().await;
        let misses = cloud.stop(2, Step::AfterRead(Table::Objects));
        let second = gateway(&cloud, 2);
        let second = tokio::task::spawn_local(async move { second.sweep_blobs().await });
        let go_on_sweeping = misses.reached().await;
        let looks = cloud.stop(0, Step::BeforeRead(Table::Doomed));
        let _ = go_on_writing.send(());
        let go_on_looking = looks.reached().await;
        let _ = go_on_sweeping.send(());
        assert!(
            matches!(second.await.unwrap(), Ok(swept) if swept == BlobSweep::default()),
            "the row is there when it looks again"
        );
        let _ = go_on_looking.send(());
        let acknowledged = slow.await.unwrap();
        let _ = go_on_removing.send(());
        assert!(first.await.unwrap());
        shows(&cloud, "sib", if acknowledged { &["slow"] } else { &[] }).await
    }));
    assert_eq!(outcome, Ok(()));
}

#[test]
fn row_34_blobs_of_overwritten_rows_do_not_stay() {
    let outcome = run(tokio::task::LocalSet::new().run_until(async {
        let mut cloud = Cloud::new(1, Laws::default(), 2).await;
        add_types(&cloud).await;
        for kind in ["sib", "lww", "once", "cas"] {
            assert!(spawn(&cloud, 0, kind, "first", None).await.unwrap());
            let context = read(&cloud, 1, kind).await?.context;
            assert!(spawn(&cloud, 1, kind, "second", context).await.unwrap());
        }
        // What a context names goes at once, what is overwritten blindly with the sweep; write_once shows the smaller SHA-1.
        assert_eq!(blobs(&cloud).await, 6, "sib and cas have one each");
        assert_eq!(sweep(&cloud, 0).await, Ok(0), "it is today's");
        cloud.leap(2).await;
        assert_eq!(sweep(&cloud, 1).await, Ok(1), "that of last_write_wins");
        assert_eq!(sweep(&cloud, 0).await, Ok(0));
        shows(&cloud, "sib", &["second"]).await?;
        shows(&cloud, "lww", &["second"]).await?;
        shows(&cloud, "cas", &["second"]).await
    }));
    assert_eq!(outcome, Ok(()));
}

#[test]
fn whatever_the_pauses_no_acknowledged_body_is_lost() {
    for seed in 0..SEEDS {
        let outcome = run(tokio::task::LocalSet::new().run_until(walk(seed)));
        assert_eq!(outcome, Ok(()), "seed {seed}");
    }
}

/// Writers who see nothing, sweepers, and days that pass under them.
async fn walk(seed: u64) -> Outcome {
    let mut dice = Dice(seed);
    let mut cloud = Cloud::new(seed, Laws::default(), 3).await;
    add_types(&cloud).await;
    cloud.set_faults(Faults { pause_ms_max: 6_000, pause_per_mille: 250, ..Faults::none() });
    let (mut puts, mut sweeps) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        match dice.below(10) {
            0..=5 => {
                puts.push((format!("v{step:02}"), spawn(&cloud, dice.below(3), "sib", &format!("v{step:02}"), None)))
            }
            6..=7 => {
                let gateway = gateway(&cloud, dice.below(3));
                sweeps.push(tokio::task::spawn_local(async move {
                    let _ = gateway.sweep_blobs().await;
                }));
            }
            8 => cloud.pass(dice.below(1_000) as u64).await,
            _ => cloud.leap(1).await,
        }
        cloud.pass(dice.below(150) as u64).await;
    }
    for sweep in sweeps {
        sweep.await.unwrap();
    }
    let mut acknowledged = Vec::new();
    for (text, put) in puts {
        if put.await.unwrap() {
            acknowledged.push(text);
        }
    }
    cloud.set_faults(Faults::none());
    cloud.leap(2).await;
    sweep(&cloud, 0).await?;
    let shown = read(&cloud, 1, "sib").await?.texts;
    match acknowledged.iter().find(|text| !shown.contains(text)) {
        Some(lost) => Err(format!("{lost} was acknowledged and is not in {shown:?}")),
        None if blobs(&cloud).await != shown.len() => Err(format!("{} blobs for {shown:?}", blobs(&cloud).await)),
        None => Ok(()),
    }
}
