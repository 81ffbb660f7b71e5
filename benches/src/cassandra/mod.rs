//! `kv --engine cassandra`: a gateway over a cluster, compared with a bare driver that does the same reads and writes.
//!
//! ```text
//! generator ── HTTP ──> larder ── CQL ──> cluster          generator ── CQL ──> cluster
//! ```
//! Both sides use the same nodes in turns, with rows of the same shape in tables of their own. Their difference is the cost of
//! the gateway: its HTTP and its contexts. The bare driver writes the rows of the views too.

mod bare;
mod overwrite;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cells::{self, CONNECTIONS, KvOperation, KvSubject};
use crate::common_args::CommonArgs;
use crate::endpoint::Endpoint;
use crate::keys::{ValuePool, key};
use crate::kv_location::{KvLocation, KvProtocol};
use crate::load;
use crate::report::{BenchReport, ReportStyle, size, thousands};
use crate::server::{GatewayCluster, ServerConfig, ServerProcess, log_end};
use crate::targets::{self, BenchTarget};
use crate::turns::{BARE_CONNECTIONS, BARE_VALUE_BYTES, Comparison, Rounds};

use bare::BareDriver;

/// The keys that reads choose from.
const READ_KEYS: u64 = 10_000;

/// The length of one turn of the warm-up.
const WARM_UP: Duration = Duration::from_secs(2);

/// The operations that are compared with the bare driver, and their targets.
const COMPARED: [(KvOperation, targets::TargetPromise); 3] = [
    (KvOperation::Get, targets::CLUSTER_GET),
    (KvOperation::PutDurable, targets::CLUSTER_PUT),
    (KvOperation::ReadModifyWrite, targets::CLUSTER_UPDATE),
];

/// The amounts of a run.
struct CassandraPlan {
    /// The turns of the warm-up for each side and operation.
    warm_ups: usize,
    rounds: Rounds,
    overwrites: u64,
}

impl CassandraPlan {
    fn new(args: &CommonArgs) -> Self {
        let length = Duration::from_secs(args.seconds.unwrap_or(if args.quick { 1 } else { 5 }));
        Self {
            warm_ups: if args.quick { 1 } else { 12 },
            rounds: Rounds { count: if args.quick { 2 } else { 6 }, length },
            overwrites: args.overwrites.unwrap_or(if args.quick { 2_000 } else { 100_000 }),
        }
    }
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When the cluster or a gateway cannot be reached. A missed target is no error. A wrong answer fails the
/// run after the report is printed.
pub(crate) async fn run(args: CommonArgs) -> Result<ExitCode> {
    let nodes = args.cassandra.clone().context("--engine cassandra needs --cassandra HOST:PORT,...")?;
    std::fs::create_dir_all(&args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(&args.scratch)?;
    let plan = CassandraPlan::new(&args);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let seconds = plan.rounds.length.as_secs_f64();
    let report = BenchReport { style: STYLE, ..args.report(arguments, scratch.path(), seconds) };
    let keyspace = format!("bench_{}", std::process::id());
    let bare = Arc::new(BareDriver::connect(&nodes, &format!("{keyspace}_bare")).await?);
    let values = Arc::new(ValuePool::new(2 * BARE_VALUE_BYTES));
    let mut run = CassandraRun { values, bare, report, plan, keyspace: format!("{keyspace}_n3") };
    let cluster = GatewayCluster { nodes, keyspace: keyspace.clone() };
    let servers = [1, 2].map(|which| config(&args, &cluster, scratch.path(), which));
    let logs: Vec<_> = servers.iter().flatten().map(|config| config.log.clone()).collect();
    let [one, other] = servers;
    let done = run.measure(ServerProcess::start(one?)?, ServerProcess::start(other?)?).await;
    let dropped = run.bare.drop_keyspaces(&keyspace).await;
    done.with_context(|| logs.iter().map(|log| log_end(log)).collect::<Vec<_>>().join("\n"))?;
    dropped?;
    args.publish(&mut run.report)
}

fn config(args: &CommonArgs, cluster: &GatewayCluster, scratch: &Path, which: u8) -> Result<ServerConfig> {
    Ok(ServerConfig {
        durability: None,
        cluster: Some((cluster.clone(), which)),
        ..ServerConfig::of(args, &scratch.canonicalize()?, &format!("gateway-{which}"))?
    })
}

/// The report of this command.
const STYLE: ReportStyle = ReportStyle { command: "kv --engine cassandra", size, shows_moved: false, notes: NOTES };

const NOTES: &str = "\
- A node that was started for the run has one half of the cores (`taskset`), gateways, bare driver and generator the other: those
  are the ones counted above. Decision 13 says why, and what the ratios are on shared cores.
- The bare driver runs inside the generator: 64 tasks, each waiting for its own answer, over one session. A get is one read
  of a partition at QUORUM; a put, in a bucket without `allow_mult` and without a context, is such a read and then the
  object's row and its entry in the listing, two updates at once; read-modify-write is a get and those two updates.
- Both sides are measured in turns; the ratio is of medians.
- An overwritten key is read and written with its context through two gateways in turn, so each finds the other's row. Measured
  against it: a fresh key; and a key that a bare driver overwrote as often with a fresh row each time.
";

struct CassandraRun {
    values: Arc<ValuePool>,
    bare: Arc<BareDriver>,
    report: BenchReport,
    plan: CassandraPlan,
    /// The gateways' keyspace.
    keyspace: String,
}

impl CassandraRun {
    async fn measure(&mut self, one: ServerProcess, other: ServerProcess) -> Result<()> {
        let subject = self.subject(&one);
        eprintln!("loading {READ_KEYS} keys on both sides");
        load::fill(&subject, READ_KEYS).await?;
        self.bare.fill(&self.values, READ_KEYS).await?;
        self.warm_up(&subject).await?;
        for (operation, promise) in COMPARED {
            eprintln!("comparing {} with the bare driver", operation.name());
            let compared = self.compare(&subject, operation).await?;
            self.report.targets.push(BenchTarget::new(promise, compared.ratio(), compared.detail("bare driver")));
        }
        for operation in KvOperation::HTTP {
            for connections in CONNECTIONS {
                let measured = cells::run(&subject, operation, connections, self.plan.rounds.length).await?;
                let rate = thousands(measured.rate());
                eprintln!("{}, {connections} connections: {rate}/s {}", operation.name(), measured.faults());
                self.report.cells.push(measured);
            }
        }
        self.measure_overwritten([&one, &other]).await?;
        one.stop()?;
        other.stop()
    }

    /// Warms the node up: its JVM gets several times as fast in the first minutes, which would favour the second side.
    async fn warm_up(&self, subject: &KvSubject) -> Result<()> {
        eprintln!("warming up the node from both sides");
        for _ in 0..self.plan.warm_ups {
            for (operation, _) in COMPARED {
                cells::run(subject, operation, BARE_CONNECTIONS, WARM_UP).await?;
                self.bare.run(subject, operation, BARE_CONNECTIONS, WARM_UP).await?;
            }
        }
        Ok(())
    }

    fn subject(&self, server: &ServerProcess) -> KvSubject {
        KvSubject {
            place: self.place(&server.endpoint),
            values: self.values.clone(),
            pid: Some(server.pid()),
            read_keys: (load::READ, READ_KEYS),
            new_keys: Arc::default(),
        }
    }

    fn place(&self, endpoint: &Endpoint) -> KvLocation {
        KvLocation { endpoint: endpoint.clone(), protocol: KvProtocol::Http, value_bytes: BARE_VALUE_BYTES }
    }

    async fn compare(&self, subject: &KvSubject, operation: KvOperation) -> Result<Comparison> {
        let mut comparison = Comparison::default();
        let length = self.plan.rounds.length;
        for round in 0..self.plan.rounds.count {
            // The order alternates: the second side finds a warmer machine.
            for is_ours in [round % 2 == 0, round % 2 == 1] {
                if is_ours {
                    comparison.ours.add(&cells::run(subject, operation, BARE_CONNECTIONS, length).await?);
                } else {
                    comparison.base.add(&self.bare.run(subject, operation, BARE_CONNECTIONS, length).await?);
                }
            }
        }
        Ok(comparison)
    }

    /// Measures reads of an overwritten key against those of fresh ones.
    async fn measure_overwritten(&mut self, servers: [&ServerProcess; 2]) -> Result<()> {
        let count = self.plan.overwrites;
        eprintln!("overwriting one key {count} times through two gateways in turn");
        let places = servers.map(|server| self.place(&server.endpoint));
        let spent = overwrite::overwrite(&places, &self.values, count).await?;
        let overwritten = overwrite::read(&places[0], &self.values, load::OVERWRITTEN).await?;
        let fresh = overwrite::read(&places[0], &self.values, load::FRESH).await?;
        let tombstones = self.bare.tombstones_of(&self.keyspace, &key(load::OVERWRITTEN, 0)).await?;
        let bare_count = count.min(50_000);
        let bare = self.bare.fresh_rows(&self.values, bare_count).await?;
        let times = thousands(count as f64);
        let detail = format!(
            "median of {} reads: {overwritten:?} after {times} overwrites, {fresh:?} of a fresh key; {}",
            overwrite::READS,
            tombstones
        );
        let ratio = overwritten.as_secs_f64() / fresh.as_secs_f64();
        self.report.targets.push(BenchTarget::new(targets::CLUSTER_OVERWRITTEN, Some(ratio), detail));
        let rate = thousands(count as f64 / spent.as_secs_f64());
        self.report.fact(format!("overwriting one key {times} times, one after the other"), format!("{rate}/s"));
        let bare_times = thousands(bare_count as f64);
        self.report.fact(
            format!("reading a key overwritten {bare_times} times with a fresh row each time, bare driver"),
            format!("{bare:?}"),
        );
        Ok(())
    }
}
