//! Requests of other clients while hostile scripts run, beside the same requests without them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use larder_testkit::hostile_scripts::HOSTILE;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::run::QueryBenchRun;
use crate::cells::{self, CONNECTIONS, KvOperation, KvSubject};
use crate::endpoint::Endpoint;
use crate::keys::{BenchRandom, ValuePool};
use crate::kv_location::{KvLocation, KvProtocol};
use crate::load;
use crate::numbered_work::ValueServer;
use crate::procfs::{self, Cpu};
use crate::targets::{self, BenchTarget};
use crate::turns::{BARE_VALUE_BYTES, median};
use crate::value_requests::ValueDriver;

/// Connections that put into a bucket whose precommit hook runs the value, and as many that send jobs.
const ATTACKERS: u64 = 4;
/// From the first hostile call to the measurement: scripts that do not end by themselves have the workers then.
const SETTLE: Duration = Duration::from_millis(500);
/// Half seconds that the workers may need until they are quiet.
const QUIET_CHECKS_MAX: u32 = 60;
/// From the last hostile call to the figures of the server after the attack.
const RECOVER: Duration = Duration::from_secs(3);

/// The server's own use of the machine.
#[derive(Debug, Clone, Copy)]
struct ServerUse {
    resident_megabytes: u64,
    descriptors: usize,
    children: usize,
}

impl QueryBenchRun {
    /// Measures GETs and durable PUTs, calm and attacked in turns, and the server before and after.
    ///
    /// # Errors
    ///
    /// When the server refuses the hook, or answers a hostile call in no way that it should.
    pub(super) async fn hostile(&mut self, server: &ValueServer) -> Result<()> {
        prepare(&server.endpoint).await?;
        let (endpoint, value_bytes) = (server.endpoint.clone(), BARE_VALUE_BYTES);
        let subject = KvSubject {
            place: KvLocation { endpoint, protocol: KvProtocol::Http, value_bytes },
            values: Arc::new(ValuePool::new(value_bytes)),
            pid: Some(server.pid),
            read_keys: (load::READ, self.plan.overwritten),
            new_keys: Arc::default(),
        };
        load::fill(&subject, self.plan.overwritten).await?;
        let before = ServerUse::of(server.pid)?;
        let (mut worst, mut details) = (Some(0.0_f64), Vec::new());
        for operation in [KvOperation::Get, KvOperation::PutDurable] {
            for connections in CONNECTIONS {
                eprintln!("measuring {} over {connections} connections, calm and attacked", operation.name());
                let ([calm, attacked], fault) = self.calm_and_attacked(&subject, operation, connections).await?;
                let ratio = attacked / calm;
                worst = worst.map(|worst| worst.max(ratio)).filter(|_| fault.is_none());
                let fault = fault.map(|fault| format!(", FAILED: {fault}")).unwrap_or_default();
                let name = operation.name();
                details.push(format!("{name}, {connections}: {calm:.2} to {attacked:.2} ms, {ratio:.2}{fault}"));
            }
        }
        self.report.targets.push(BenchTarget::new(targets::HOSTILE, worst, details.join("; ")));
        sleep(RECOVER).await;
        let after = ServerUse::of(server.pid)?;
        let shown = |of: ServerUse| {
            format!("{} MB, {} descriptors, {} processes", of.resident_megabytes, of.descriptors, of.children)
        };
        self.report.fact(
            format!("the server before and after {} hostile scripts in turns, with the writes", HOSTILE.len()),
            format!("{}; {}", shown(before), shown(after)),
        );
        Ok(())
    }

    /// The medians of the p99 of each turn, in milliseconds, and a failure.
    async fn calm_and_attacked(
        &self,
        subject: &KvSubject,
        operation: KvOperation,
        connections: usize,
    ) -> Result<([f64; 2], Option<String>)> {
        let (mut latencies, mut fault) = ([Vec::new(), Vec::new()], None);
        for round in 0..self.plan.rounds.count {
            for turn in 0..2 {
                let side = ((round + turn) % 2) as usize;
                let attack = if side == 1 { Some(Attack::start(&subject.place.endpoint, round).await) } else { None };
                let measured = cells::run(subject, operation, connections, self.plan.rounds.length).await?;
                if let Some(attack) = attack {
                    attack.stop().await?;
                    wait_for_quiet(subject.pid).await?;
                }
                latencies[side].push(measured.tally.latencies_us.value_at_quantile(0.99) as f64 / 1e3);
                fault = fault.or_else(|| (!measured.is_sound()).then(|| measured.faults()));
            }
        }
        Ok((latencies.map(|side| median(&side).unwrap_or(f64::NAN)), fault))
    }
}

/// Sets the hook and stores the object of the jobs.
async fn prepare(endpoint: &Endpoint) -> Result<()> {
    let mut driver = ValueDriver::connect(endpoint).await?;
    driver.request.put(format_args!("/buckets/hostile/props"));
    driver.request.add(&[br#"{"props":{"precommit":["Bench.run"]}}"#]);
    driver.send_checked(204).await?;
    driver.request.put(format_args!("/buckets/hostile-input/keys/one"));
    driver.request.add(&[b"1"]);
    driver.send_checked(204).await
}

/// Hostile calls under way.
struct Attack(JoinSet<Result<()>>);

impl Attack {
    async fn start(endpoint: &Endpoint, round: u64) -> Self {
        let mut tasks = JoinSet::new();
        for attacker in 0..ATTACKERS {
            let seed = round * ATTACKERS + attacker;
            tasks.spawn(attack(endpoint.clone(), seed, Target::Hook));
            tasks.spawn(attack(endpoint.clone(), seed, Target::Job));
        }
        sleep(SETTLE).await;
        Self(tasks)
    }

    /// Ends the connections, and the calls with them.
    async fn stop(mut self) -> Result<()> {
        // A call that failed has ended its task.
        if let Some(ended) = self.0.try_join_next() {
            ended??;
            bail!("an attacker stopped");
        }
        self.0.shutdown().await;
        Ok(())
    }
}

/// Where a hostile script runs.
#[derive(Debug, Clone, Copy)]
enum Target {
    Hook,
    Job,
}

/// Sends hostile scripts in no order, for ever.
async fn attack(endpoint: Endpoint, seed: u64, target: Target) -> Result<()> {
    let mut random = BenchRandom::new(seed);
    let mut driver = ValueDriver::connect(&endpoint).await?;
    loop {
        let (name, source, _) = HOSTILE[random.below(HOSTILE.len() as u64) as usize];
        match target {
            Target::Hook => {
                driver.request.put(format_args!("/buckets/hostile/keys/{seed}"));
                driver.request.add(&[source.as_bytes()]);
            }
            Target::Job => {
                driver.request.post(format_args!("/mapred"));
                let source = serde_json::to_vec(source)?;
                let start =
                    br#"{"inputs":[["hostile-input","one"]],"query":[{"map":{"language":"javascript","source":"#;
                driver.request.add(&[start, &source, b"}}]}"]);
            }
        }
        let status = driver.send().await?.status;
        ensure!([200, 204, 403, 500, 503].contains(&status), "{target:?} with `{name}`: status {status}");
    }
}

/// Waits until no worker of the server computes: calls that have begun end at their own deadline.
async fn wait_for_quiet(server: Option<u32>) -> Result<()> {
    let Some(server) = server else { return Ok(()) };
    let used = || -> Result<Vec<(u32, Cpu)>> {
        // One that ended since the list was read is quiet.
        Ok(children(server)?.into_iter().filter_map(|child| Some((child, procfs::cpu(child).ok()?))).collect())
    };
    let mut seen = used()?;
    for _ in 0..QUIET_CHECKS_MAX {
        sleep(SETTLE).await;
        let now = used()?;
        if now == seen {
            return Ok(());
        }
        seen = now;
    }
    bail!("workers of the server compute {} s after the attack", QUIET_CHECKS_MAX / 2)
}

fn children(server: u32) -> Result<Vec<u32>> {
    let tasks = std::fs::read_dir(format!("/proc/{server}/task"))?.flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    Ok(lists.flat_map(|ids| ids.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect())
}

impl ServerUse {
    fn of(pid: u32) -> Result<Self> {
        Ok(Self {
            resident_megabytes: procfs::resident_bytes(pid)? >> 20,
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            children: children(pid)?.len(),
        })
    }
}
