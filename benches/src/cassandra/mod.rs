//! `kv --engine cassandra`: a gateway over a cluster, beside a bare driver that does the same reads and writes.
//!
//! ```text
//! generator ── HTTP ──> larder ── CQL ──> cluster          generator ── CQL ──> cluster
//! ```
//! Both sides ask the same nodes in turns, for rows of the same shape in tables of their own. What is left between them is what
//! the gateway costs: its HTTP, its contexts, its views' rows are the bare driver's too.

mod bare;
mod worn;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cells::{self, CONNECTIONS, Operation, Subject};
use crate::compare::{BARE_CONNECTIONS, BARE_VALUE_BYTES, Comparison, Rounds};
use crate::driver::Place;
use crate::endpoint::Endpoint;
use crate::keys::{Values, key};
use crate::load;
use crate::report::{Face, Report, size, thousands};
use crate::server::{Cluster, Recipe, Server, log_end};
use crate::targets::{self, Target};
use crate::told::Told;

use bare::Bare;

/// Keys that reads choose from.
const READ_KEYS: u64 = 10_000;

/// Length of one turn of warming up.
const WARM_UP: Duration = Duration::from_secs(2);

/// Operations that are compared with the bare driver, and the promise about each.
const COMPARED: [(Operation, (&str, targets::Wanted, &str)); 3] = [
    (Operation::Get, targets::CLUSTER_GET),
    (Operation::PutDurable, targets::CLUSTER_PUT),
    (Operation::ReadModifyWrite, targets::CLUSTER_UPDATE),
];

/// How much is done.
struct Plan {
    /// Times that each side does each operation before anything is measured.
    warm_ups: usize,
    rounds: Rounds,
    overwrites: u64,
}

impl Plan {
    fn new(told: &Told) -> Self {
        let length = Duration::from_secs(told.seconds.unwrap_or(if told.quick { 1 } else { 5 }));
        Self {
            warm_ups: if told.quick { 1 } else { 12 },
            rounds: Rounds { count: if told.quick { 2 } else { 6 }, length },
            overwrites: told.overwrites.unwrap_or(if told.quick { 2_000 } else { 100_000 }),
        }
    }
}

/// Runs it all, prints the report and writes it where asked.
///
/// # Errors
///
/// When the cluster or a gateway cannot be reached. Slow is no error; a wrong answer fails the run after the report is out.
pub(crate) async fn run(told: Told) -> Result<ExitCode> {
    let nodes = told.cassandra.clone().context("--engine cassandra needs --cassandra HOST:PORT,...")?;
    std::fs::create_dir_all(&told.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(&told.scratch)?;
    let plan = Plan::new(&told);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let seconds = plan.rounds.length.as_secs_f64();
    let report = Report { face: FACE, ..told.report(arguments, scratch.path(), seconds) };
    let keyspace = format!("bench_{}", std::process::id());
    let bare = Arc::new(Bare::connect(&nodes, &format!("{keyspace}_bare")).await?);
    let values = Arc::new(Values::new(2 * BARE_VALUE_BYTES));
    let mut run = Run { values, bare, report, plan, keyspace: format!("{keyspace}_n3") };
    let cluster = Cluster { nodes, keyspace: keyspace.clone() };
    let servers = [1, 2].map(|which| recipe(&told, &cluster, scratch.path(), which));
    let logs: Vec<_> = servers.iter().flatten().map(|recipe| recipe.log.clone()).collect();
    let [one, other] = servers;
    let done = run.measure(Server::start(one?)?, Server::start(other?)?).await;
    let dropped = run.bare.drop_keyspaces(&keyspace).await;
    done.with_context(|| logs.iter().map(|log| log_end(log)).collect::<Vec<_>>().join("\n"))?;
    dropped?;
    told.publish(&mut run.report)
}

fn recipe(told: &Told, cluster: &Cluster, scratch: &Path, which: u8) -> Result<Recipe> {
    Ok(Recipe {
        binary: told.binary()?,
        engine: told.engine.clone(),
        durability: None,
        s3: None,
        cluster: Some((cluster.clone(), which)),
        data: scratch.canonicalize()?.join(format!("gateway-{which}")),
        log: scratch.canonicalize()?.join(format!("log-{which}")),
    })
}

/// The report of this command.
const FACE: Face = Face { command: "kv --engine cassandra", size, shows_moved: false, notes: NOTES };

const NOTES: &str = "\
- A node that was started for the run has one half of the cores (`taskset`), gateways, bare driver and generator the other: those
  are the ones counted above. Decision 13 says why, and what the ratios are on shared cores.
- The bare driver runs inside the generator: 64 tasks, each waiting for its own answer, over one session. A get is one read
  of a partition at QUORUM; a put, in a bucket without `allow_mult` and without a context, is such a read and then the
  object's row and its entry in the listing, two updates at once; read-modify-write is a get and those two updates.
- Both sides are measured in turns; the ratio is of medians.
- An overwritten key is read and written with its context through two gateways in turn, so each finds the other's row. Held
  against it: a fresh key; and a key that a bare driver overwrote as often with a fresh row each time.
";

struct Run {
    values: Arc<Values>,
    bare: Arc<Bare>,
    report: Report,
    plan: Plan,
    /// The gateways' keyspace.
    keyspace: String,
}

impl Run {
    async fn measure(&mut self, one: Server, other: Server) -> Result<()> {
        let subject = self.subject(&one);
        eprintln!("loading {READ_KEYS} keys on both sides");
        load::fill(&subject, READ_KEYS).await?;
        self.bare.fill(&self.values, READ_KEYS).await?;
        self.warm_up(&subject).await?;
        for (operation, promise) in COMPARED {
            eprintln!("comparing {} with the bare driver", operation.name());
            let compared = self.compare(&subject, operation).await?;
            self.report.targets.push(Target::new(promise, compared.ratio(), compared.detail("bare driver")));
        }
        for operation in Operation::ALL {
            for connections in CONNECTIONS {
                let measured = cells::run(&subject, operation, connections, self.plan.rounds.length).await?;
                let rate = thousands(measured.rate());
                eprintln!("{}, {connections} connections: {rate}/s {}", operation.name(), measured.faults());
                self.report.cells.push(measured);
            }
        }
        self.worn([&one, &other]).await?;
        one.stop()?;
        other.stop()
    }

    /// A node's own program gets several times as fast in its first minutes: neither side is to pay for that.
    async fn warm_up(&self, subject: &Subject) -> Result<()> {
        eprintln!("warming up the node from both sides");
        for _ in 0..self.plan.warm_ups {
            for (operation, _) in COMPARED {
                cells::run(subject, operation, BARE_CONNECTIONS, WARM_UP).await?;
                self.bare.run(subject, operation, BARE_CONNECTIONS, WARM_UP).await?;
            }
        }
        Ok(())
    }

    fn subject(&self, server: &Server) -> Subject {
        Subject {
            place: self.place(&server.endpoint),
            values: self.values.clone(),
            pid: Some(server.pid()),
            read_keys: (load::READ, READ_KEYS),
            new_keys: AtomicU64::new(0),
        }
    }

    fn place(&self, endpoint: &Endpoint) -> Place {
        Place { endpoint: endpoint.clone(), value_bytes: BARE_VALUE_BYTES }
    }

    async fn compare(&self, subject: &Subject, operation: Operation) -> Result<Comparison> {
        let mut comparison = Comparison::default();
        let length = self.plan.rounds.length;
        for round in 0..self.plan.rounds.count {
            // Whoever comes second finds a machine that is warmer or more tired: each side does so in turn.
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

    /// A key that was overwritten again and again, against fresh ones.
    async fn worn(&mut self, servers: [&Server; 2]) -> Result<()> {
        let count = self.plan.overwrites;
        eprintln!("overwriting one key {count} times through two gateways in turn");
        let places = servers.map(|server| self.place(&server.endpoint));
        let spent = worn::overwrite(&places, &self.values, count).await?;
        let worn = worn::read(&places[0], &self.values, load::OVERWRITTEN).await?;
        let fresh = worn::read(&places[0], &self.values, load::FRESH).await?;
        let tombstones = self.bare.tombstones_of(&self.keyspace, &key(load::OVERWRITTEN, 0)).await?;
        let bare_count = count.min(50_000);
        let bare = self.bare.fresh_rows(&self.values, bare_count).await?;
        let times = thousands(count as f64);
        let detail = format!(
            "median of {} reads: {worn:?} after {times} overwrites, {fresh:?} of a fresh key; {}",
            worn::READS,
            tombstones
        );
        let ratio = worn.as_secs_f64() / fresh.as_secs_f64();
        self.report.targets.push(Target::new(targets::CLUSTER_WORN, Some(ratio), detail));
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
