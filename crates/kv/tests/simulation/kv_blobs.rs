//! Large bodies of the key-value side and the sweepers of several gateways, which do not see each other's leases.
//!
//! One schedule per rule of `kv/fence.rs`: a gateway is stopped at a step, days pass, another one sweeps. It fails under the
//! rule's mutation in `tests/mutants`. At the end is a short random walk.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::body::{GetBody, PutBody};
use larder_core::{BlobSweep, Error};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvPut, Quorums};
use larder_rows::content::KvContent;
use larder_store::Table;
use larder_testkit::SplitMix64;
use larder_testkit::faulty::StoreFaults;
use tokio::task::JoinHandle;

use crate::simulation::s3::cluster::S3Cluster;
use crate::simulation::s3::gate::StoreStep;
use crate::simulation::world::{ScheduleResult, address, get_of, run};

/// Repetitions of the text in a body: enough for a blob.
const REPEATS: usize = 40;
const SEEDS: u64 = 40;
const STEPS: usize = 30;

/// A key as a client reads it.
struct ShownBodies {
    texts: Vec<String>,
    context: Option<Bytes>,
}

/// Runs a schedule over so many gateways; it must hold.
#[track_caller]
fn holds<F: AsyncFn(S3Cluster) -> ScheduleResult>(count: usize, schedule: F) {
    let outcome = run(tokio::task::LocalSet::new().run_until(async {
        let cloud = S3Cluster::new(1, count).await;
        add_types(&cloud).await;
        schedule(cloud).await
    }));
    assert_eq!(outcome, Ok(()));
}

async fn add_types(cloud: &S3Cluster) {
    let types = [
        ("sib", "{}"),
        ("lww", r#"{"last_write_wins":true,"dvv_enabled":false,"allow_mult":false}"#),
        ("once", r#"{"write_once":true}"#),
        ("cas", r#"{"consistent":true}"#),
    ];
    for (name, props) in types {
        let (name, props) =
            (Bytes::from_static(name.as_bytes()), serde_json::from_str::<serde_json::Value>(props).unwrap());
        gateway(cloud, 0).types().create(&name, props.as_object().unwrap()).await.unwrap();
        while gateway(cloud, 0).types().activate(&name).await.is_err() {
            cloud.advance(100).await;
        }
    }
}

fn gateway(cloud: &S3Cluster, at: usize) -> Arc<Gateway> {
    Arc::clone(&cloud.nodes[at].gateway)
}

async fn put(gateway: Arc<Gateway>, kind: &'static str, text: String, context: Option<Bytes>) -> Result<(), Error> {
    let request = KvPut {
        address: address(kind, "k"),
        context,
        conditions: Conditions::default(),
        if_not_modified: None,
        content: KvContent::default(),
        upload: PutBody::Bytes(format!("{text}.").repeat(REPEATS).into()),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    gateway.kv.put(request).await.map(|_| ())
}

/// Spawns a put; whether it was acknowledged.
fn spawn(cloud: &S3Cluster, at: usize, kind: &'static str, text: &str, context: Option<Bytes>) -> JoinHandle<bool> {
    let put = put(gateway(cloud, at), kind, text.to_owned(), context);
    tokio::task::spawn_local(async move { put.await.is_ok() })
}

async fn read(cloud: &S3Cluster, at: usize, kind: &'static str) -> Result<ShownBodies, String> {
    let request = get_of(kind, "k");
    let found = gateway(cloud, at).kv.get(request).await.map_err(|error| format!("a read: {error}"))?;
    let mut texts = Vec::new();
    for mut body in found.bodies {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < body.length() {
            let piece = GetBody::piece(&mut body, bytes.len() as u64, 1 << 16).await;
            bytes.extend_from_slice(&piece.map_err(|error| format!("a body: {error}"))?);
        }
        let text = String::from_utf8_lossy(&bytes).split('.').next().unwrap().to_owned();
        assert_eq!(bytes, format!("{text}.").repeat(REPEATS).as_bytes(), "a torn body");
        texts.push(text);
    }
    texts.sort_unstable();
    Ok(ShownBodies { texts, context: found.context })
}

async fn shows(cloud: &S3Cluster, kind: &'static str, wanted: &[&str]) -> ScheduleResult {
    for at in 0..cloud.nodes.len() {
        let texts = read(cloud, at, kind).await?.texts;
        if texts != wanted {
            return Err(format!("{kind}: {texts:?} instead of {wanted:?}"));
        }
    }
    Ok(())
}

async fn sweep(cloud: &S3Cluster, at: usize) -> Result<u64, String> {
    let swept = gateway(cloud, at).kv.sweep_blobs().await.map_err(|error| error.to_string())?;
    if swept.failed == 0 { Ok(swept.removed) } else { Err(format!("{swept:?}")) }
}

async fn blobs(cloud: &S3Cluster) -> usize {
    cloud.leftovers().await.get("blobs").copied().unwrap_or(0)
}

/// Stops a writer for two days right before its row while another gateway sweeps; `before`: an earlier value.
async fn sleeps_before_its_row(
    mut cloud: S3Cluster,
    kind: &'static str,
    step: StoreStep,
    before: Option<&str>,
) -> ScheduleResult {
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
        let step = StoreStep::BeforeApply(Table::Objects);
        holds(3, async move |cloud| sleeps_before_its_row(cloud, kind, step, None).await);
    }
}

#[test]
fn a_sweeper_does_not_take_the_blob_of_a_shared_row_that_is_about_to_be_written() {
    for kind in ["lww", "once"] {
        let step = StoreStep::BeforeApply(Table::Objects);
        holds(3, async move |cloud| sleeps_before_its_row(cloud, kind, step, None).await);
    }
}

#[test]
fn a_sweeper_fences_the_head_that_a_slow_writer_read() {
    for before in [None, Some("before")] {
        let step = StoreStep::BeforeSwap(Table::Consistent);
        holds(3, async move |cloud| sleeps_before_its_row(cloud, "cas", step, before).await);
    }
}

#[test]
fn a_body_that_took_days_to_arrive_replaces_nothing() {
    for kind in ["sib", "default", "lww"] {
        let step = StoreStep::AfterBlobFinished;
        holds(3, async move |cloud| sleeps_before_its_row(cloud, kind, step, Some("before")).await);
    }
}

#[test]
fn a_sweeper_leaves_blobs_younger_than_a_day() {
    for kind in ["sib", "default", "lww"] {
        holds(3, async move |cloud| {
            assert!(spawn(&cloud, 0, kind, "before", None).await.unwrap());
            let context = read(&cloud, 0, kind).await?.context;
            let stop = cloud.stop(0, StoreStep::BeforeApply(Table::Objects));
            let slow = spawn(&cloud, 0, kind, "after", context);
            let go = stop.reached().await;
            cloud.advance(30_000).await;
            sweep(&cloud, 1).await?;
            let _ = go.send(());
            let shown = if slow.await.unwrap() { "after" } else { "before" };
            shows(&cloud, kind, &[shown]).await
        });
    }
}

#[test]
fn a_sweeper_that_finds_a_blob_named_does_not_remove_the_mark_of_another() {
    holds(3, async |mut cloud| {
        let writes = cloud.stop(0, StoreStep::BeforeApply(Table::Objects));
        let slow = spawn(&cloud, 0, "sib", "slow", None);
        let go_on_writing = writes.reached().await;
        cloud.leap(2).await;
        let removes = cloud.stop(1, StoreStep::BeforeBlobRemoved);
        let first = gateway(&cloud, 1);
        let first = tokio::task::spawn_local(async move { first.kv.sweep_blobs().await.is_ok() });
        let go_on_removing = removes.reached().await;
        let misses = cloud.stop(2, StoreStep::AfterRead(Table::Objects));
        let second = gateway(&cloud, 2);
        let second = tokio::task::spawn_local(async move { second.kv.sweep_blobs().await });
        let go_on_sweeping = misses.reached().await;
        let looks = cloud.stop(0, StoreStep::BeforeRead(Table::GcMarks));
        let _ = go_on_writing.send(());
        let go_on_looking = looks.reached().await;
        let _ = go_on_sweeping.send(());
        assert!(
            matches!(second.await.unwrap(), Ok(swept) if swept == BlobSweep::default()),
            "the second check finds the row"
        );
        let _ = go_on_looking.send(());
        let acknowledged = slow.await.unwrap();
        let _ = go_on_removing.send(());
        assert!(first.await.unwrap());
        shows(&cloud, "sib", if acknowledged { &["slow"] } else { &[] }).await
    });
}

/// A blind overwrite does not know which blob it replaces, so the sweeper removes that [invariant 34].
#[test]
fn blobs_of_overwritten_rows_are_removed() {
    holds(2, async |mut cloud| {
        for kind in ["sib", "lww", "once", "cas"] {
            assert!(spawn(&cloud, 0, kind, "first", None).await.unwrap());
            let context = read(&cloud, 1, kind).await?.context;
            assert!(spawn(&cloud, 1, kind, "second", context).await.unwrap());
        }
        // A context names blobs to remove at once; blind overwrites leave theirs to the sweep; write_once shows the smaller
        // SHA-1.
        assert_eq!(blobs(&cloud).await, 6, "sib and cas have one each");
        assert_eq!(sweep(&cloud, 0).await, Ok(0), "the blob is younger than a day");
        cloud.leap(2).await;
        assert_eq!(sweep(&cloud, 1).await, Ok(1), "the blob of last_write_wins");
        assert_eq!(sweep(&cloud, 0).await, Ok(0));
        shows(&cloud, "sib", &["second"]).await?;
        shows(&cloud, "lww", &["second"]).await?;
        shows(&cloud, "cas", &["second"]).await
    });
}

#[test]
fn random_pauses_lose_no_acknowledged_body() {
    for seed in 0..SEEDS {
        let outcome = run(tokio::task::LocalSet::new().run_until(walk(seed)));
        assert_eq!(outcome, Ok(()), "seed {seed}");
    }
}

/// Blind writers and sweepers, over several days.
async fn walk(seed: u64) -> ScheduleResult {
    let mut dice = SplitMix64::new(seed);
    let mut cloud = S3Cluster::new(seed, 3).await;
    add_types(&cloud).await;
    cloud.set_faults(StoreFaults { pause_ms_max: 6_000, pause_per_mille: 250, ..StoreFaults::none() });
    let (mut puts, mut sweeps) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        match dice.below(10) {
            0..=5 => {
                puts.push((format!("v{step:02}"), spawn(&cloud, dice.below(3), "sib", &format!("v{step:02}"), None)))
            }
            6..=7 => {
                let gateway = gateway(&cloud, dice.below(3));
                sweeps.push(tokio::task::spawn_local(async move {
                    let _ = gateway.kv.sweep_blobs().await;
                }));
            }
            8 => cloud.advance(dice.below(1_000) as u64).await,
            _ => cloud.leap(1).await,
        }
        cloud.advance(dice.below(150) as u64).await;
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
    cloud.set_faults(StoreFaults::none());
    cloud.leap(2).await;
    sweep(&cloud, 0).await?;
    let shown = read(&cloud, 1, "sib").await?.texts;
    match acknowledged.iter().find(|text| !shown.contains(text)) {
        Some(lost) => Err(format!("{lost} was acknowledged and is not in {shown:?}")),
        None if blobs(&cloud).await != shown.len() => Err(format!("{} blobs for {shown:?}", blobs(&cloud).await)),
        None => Ok(()),
    }
}
