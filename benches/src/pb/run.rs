//! A run of `pb`: its sections, their servers, its report.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::notes::STYLE;
use super::plan::PbPlan;
use crate::beside::{self, BesideRun};
use crate::cells::{self, KvOperation, KvSubject, VALUE_BYTES};
use crate::common_args::CommonArgs;
use crate::keys::ValuePool;
use crate::kv_location::{KvLocation, KvProtocol};
use crate::load;
use crate::redis::RedisServer;
use crate::report::{BenchReport, thousands};
use crate::s3;
use crate::server::{ServerConfig, ServerProcess, log_end};
use crate::turns::BARE_VALUE_BYTES;

/// The arguments of `pb`.
#[derive(Debug, clap::Args)]
pub(crate) struct PbBenchArgs {
    #[command(flatten)]
    pub(super) args: CommonArgs,
    /// The `redis-server` to compare with; without it those rows are not measured.
    #[arg(long)]
    redis: Option<PathBuf>,
    /// Only these sections.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<PbSection>,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PbSection {
    /// GETs over protocol buffers and HTTP.
    Gets,
    /// Durable PUTs over protocol buffers and HTTP, and in process.
    Puts,
    /// The table of cells over protocol buffers.
    Cells,
    /// GETs over S3.
    S3,
    /// Disk, memory and latency of a loaded server.
    Endurance,
    /// Disk and bytes written while keys are overwritten.
    Churn,
}

impl PbSection {
    /// All sections, in the order of the run.
    const ALL: [Self; 6] = [Self::Gets, Self::Puts, Self::Cells, Self::S3, Self::Endurance, Self::Churn];
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When a server cannot be started, loaded or reached. A missed target is no error. A wrong answer fails the run after the
/// report is printed.
pub(crate) async fn run(options: PbBenchArgs) -> Result<ExitCode> {
    if options.args.url.is_some() {
        bail!("pb measures the CPU of servers that it starts itself: it takes no --url");
    }
    std::fs::create_dir_all(&options.args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-pb-").tempdir_in(&options.args.scratch)?;
    let plan = PbPlan::new(&options);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let report = options.args.report(arguments, scratch.path(), plan.rounds.length.as_secs_f64());
    let mut run = PbRun {
        plan,
        values: Arc::new(ValuePool::new(VALUE_BYTES[2])),
        report: BenchReport { style: STYLE, ..report },
        scratch: scratch.path().canonicalize()?,
    };
    match &options.args.beside {
        Some(before) => {
            let operations = KvOperation::PB;
            let cells = beside::cells(KvProtocol::PB, &operations, &[BARE_VALUE_BYTES], options.args.cell.as_deref());
            let PbRun { plan, values, report, scratch } = &mut run;
            let (values, length, scratch) = (values.clone(), plan.rounds.length, scratch.clone());
            BesideRun { report, values, length, scratch }.run(&options.args, before, &cells).await?;
        }
        None => run.sections(&options).await?,
    }
    options.args.publish(&mut run.report)
}

/// The state of a run.
pub(super) struct PbRun {
    /// The amounts of a run.
    pub(super) plan: PbPlan,
    /// The bytes of the writes.
    pub(super) values: Arc<ValuePool>,
    /// The results.
    pub(super) report: BenchReport,
    /// The folder of its files.
    pub(super) scratch: PathBuf,
}

/// The servers of the comparisons, with the same keys.
pub(super) struct PbSubjects {
    /// Larder over protocol buffers.
    pub(super) pb: KvSubject,
    /// The same server over HTTP.
    pub(super) http: KvSubject,
    /// Redis, if there is one.
    pub(super) redis: Option<KvSubject>,
}

impl PbRun {
    async fn sections(&mut self, options: &PbBenchArgs) -> Result<()> {
        for section in PbSection::ALL {
            if !options.only.is_empty() && !options.only.contains(&section) {
                continue;
            }
            let config = self.config(options, &format!("{section:?}").to_lowercase())?;
            if section == PbSection::Churn && !config.is_persistent() {
                continue;
            }
            let (log, data) = (config.log.clone(), config.data.clone());
            let done = match section {
                PbSection::Gets | PbSection::Puts | PbSection::Cells => self.compared(section, config, options).await,
                PbSection::S3 => self.s3(config).await,
                PbSection::Endurance => self.endurance(config).await,
                PbSection::Churn => self.churn(config).await,
            };
            done.with_context(|| log_end(&log))?;
            std::fs::remove_dir_all(data)?;
        }
        Ok(())
    }

    fn config(&self, options: &PbBenchArgs, name: &str) -> Result<ServerConfig> {
        let s3 = (name == "s3").then(s3::own_account);
        Ok(ServerConfig { s3, ..ServerConfig::of(&options.args, &self.scratch, name)? })
    }

    /// Measures a section on a fresh server, beside a fresh Redis.
    async fn compared(&mut self, section: PbSection, config: ServerConfig, options: &PbBenchArgs) -> Result<()> {
        let server = ServerProcess::start(config)?;
        let needs_redis = section != PbSection::Cells;
        let redis = options.redis.as_deref().filter(|_| needs_redis);
        let redis = redis.map(|binary| RedisServer::start(binary, &self.scratch.join("redis"))).transpose()?;
        let subjects = self.subjects(&server, redis.as_ref());
        for subject in [Some(&subjects.pb), subjects.redis.as_ref()].into_iter().flatten() {
            load::fill(subject, self.plan.keys).await?;
        }
        if let Some(redis) = &redis {
            self.report.versions.push(format!("redis-server {}", redis.version));
        }
        match section {
            PbSection::Gets => self.gets(&subjects).await?,
            PbSection::Puts => self.puts(&subjects).await?,
            _ => self.cells(&subjects.pb).await?,
        }
        server.stop()?;
        if redis.is_some() {
            // The process ends before its folder goes.
            drop(redis);
            std::fs::remove_dir_all(self.scratch.join("redis"))?;
        }
        Ok(())
    }

    fn subjects(&self, server: &ServerProcess, redis: Option<&RedisServer>) -> PbSubjects {
        let pb = self.subject(server, BARE_VALUE_BYTES, self.plan.keys);
        PbSubjects {
            http: pb.at(&server.endpoint, KvProtocol::Http, Some(server.pid())),
            redis: redis.map(|redis| pb.at(&redis.endpoint, KvProtocol::REDIS, Some(redis.pid()))),
            pb,
        }
    }

    /// A server over protocol buffers, with this many keys that reads choose from.
    pub(super) fn subject(&self, server: &ServerProcess, value_bytes: usize, keys: u64) -> KvSubject {
        KvSubject {
            place: KvLocation { endpoint: server.pb.clone(), protocol: KvProtocol::PB, value_bytes },
            values: self.values.clone(),
            pid: Some(server.pid()),
            read_keys: (load::READ, keys),
            new_keys: Arc::default(),
        }
    }

    async fn cells(&mut self, subject: &KvSubject) -> Result<()> {
        for operation in KvOperation::PB {
            for connections in self.plan.connections.clone() {
                let measured = cells::run(subject, operation, connections, self.plan.rounds.length).await?;
                let (name, rate) = (operation.name(), thousands(measured.rate()));
                eprintln!("{name}, 1 KB, {connections} connections: {rate}/s {}", measured.faults());
                self.report.cells.push(measured);
            }
        }
        Ok(())
    }

    async fn s3(&mut self, config: ServerConfig) -> Result<()> {
        let account = config.s3.clone().context("a server without S3")?;
        let server = ServerProcess::start(config)?;
        let subject = s3::subject(&server, account, Arc::new(ValuePool::new(s3::LARGE_BYTES)));
        let keys = self.plan.keys;
        s3::load_small(&subject, keys).await?;
        s3::small_gets(&mut self.report, &subject, keys, self.plan.rounds).await?;
        let large = subject.with_bucket("larder-bench-large".to_owned());
        s3::load_large(&large, self.plan.large_keys).await?;
        let (keys, rounds) = (self.plan.large_keys, self.plan.large_rounds);
        s3::large_gets(&mut self.report, &large, keys, &self.scratch, rounds, &[s3::LARGE_CONNECTIONS]).await?;
        server.stop()
    }
}
