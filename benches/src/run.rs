//! A run of `kv`: for each value size it starts, loads, measures and stops a fresh server; then it writes the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::beside::{self, BesideRun};
use crate::cells::{self, CONNECTIONS, KvOperation, KvSubject, VALUE_BYTES};
use crate::common_args::CommonArgs;
use crate::endpoint::Endpoint;
use crate::keys::ValuePool;
use crate::kv_location::{KvLocation, KvProtocol};
use crate::load;
use crate::procfs;
use crate::report::{BenchReport, megabytes, size, thousands};
use crate::rows;
use crate::server::{ServerConfig, ServerProcess, log_end, ping};
use crate::targets::{self, BenchTarget};
use crate::turns::{BARE_VALUE_BYTES, Comparison, Rounds, in_turns, kv_turns};

/// The pause after which a server counts as idle.
const SETTLE: Duration = Duration::from_secs(2);

/// The default port of Riak's HTTP interface.
const RIAK_PORT: u16 = 8098;

/// The keys that reads choose from, few enough to stay warm.
const READ_KEYS_MAX: u64 = 10_000;

/// The connections that read the overwritten key and the fresh one.
const ONE_KEY_CONNECTIONS: usize = 16;

/// The amounts of a run.
struct KvPlan {
    length: Duration,
    rounds: Rounds,
    /// The number of keys of 100 B; other sizes get as many bytes, but at least 100 keys.
    keys: u64,
    overwrites: u64,
}

impl KvPlan {
    fn new(options: &CommonArgs) -> Self {
        let quick = options.quick;
        let length = Duration::from_secs(options.seconds.unwrap_or(if quick { 1 } else { 5 }));
        Self {
            length,
            rounds: Rounds { count: if quick { 2 } else { 5 }, length },
            keys: options.keys.unwrap_or(if quick { 20_000 } else { 100_000 }),
            overwrites: options.overwrites.unwrap_or(if quick { 20_000 } else { 100_000 }),
        }
    }

    fn keys(&self, value_bytes: usize) -> u64 {
        (self.keys * VALUE_BYTES[0] as u64 / value_bytes as u64).max(100)
    }
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When the server cannot be started, loaded or reached. A missed target is no error. A wrong answer in
/// a cell fails the run after the report is printed.
pub(crate) async fn run(options: CommonArgs) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(&options.scratch)?;
    let plan = KvPlan::new(&options);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut run = KvRun {
        values: Arc::new(ValuePool::new(VALUE_BYTES[VALUE_BYTES.len() - 1])),
        report: options.report(arguments, scratch.path(), plan.length.as_secs_f64()),
        plan,
        scratch: scratch.path().canonicalize()?,
    };
    match (&options.url, &options.beside) {
        (Some(url), _) => run.elsewhere(url).await?,
        (None, Some(before)) => run.beside(&options, before).await?,
        (None, None) => run.own_servers(&options).await?,
    }
    options.publish(&mut run.report)
}

struct KvRun {
    plan: KvPlan,
    values: Arc<ValuePool>,
    report: BenchReport,
    scratch: PathBuf,
}

impl KvRun {
    /// Measures all sizes against a running server.
    async fn elsewhere(&mut self, url: &str) -> Result<()> {
        let endpoint = Endpoint::from_url(url, RIAK_PORT)?;
        ping(&endpoint)?;
        for value_bytes in VALUE_BYTES {
            let subject = self.subject(&endpoint, None, value_bytes);
            self.load(&subject).await?;
            self.measure(&subject).await?;
        }
        for promise in [targets::IDLE, targets::RESTART] {
            self.report.targets.push(BenchTarget::new(promise, None, "needs the server's own process"));
        }
        Ok(())
    }

    /// Measures all sizes against two builds.
    async fn beside(&mut self, options: &CommonArgs, before: &Path) -> Result<()> {
        let cells = beside::cells(KvProtocol::Http, &KvOperation::HTTP, &VALUE_BYTES, options.cell.as_deref());
        let Self { plan, values, report, scratch } = self;
        let mut run = BesideRun { report, values: values.clone(), length: plan.length, scratch: scratch.clone() };
        run.run(options, before, &cells).await
    }

    /// Measures all sizes, each against a fresh server.
    async fn own_servers(&mut self, options: &CommonArgs) -> Result<()> {
        for value_bytes in VALUE_BYTES {
            let config = ServerConfig::of(options, &self.scratch, &value_bytes.to_string())?;
            let log = config.log.clone();
            self.own_server(config, value_bytes).await.with_context(|| log_end(&log))?;
        }
        Ok(())
    }

    /// Measures one size against a fresh server.
    async fn own_server(&mut self, config: ServerConfig, value_bytes: usize) -> Result<()> {
        let (data, is_persistent) = (config.data.clone(), config.is_persistent());
        let mut server = ServerProcess::start(config)?;
        let is_first = value_bytes == VALUE_BYTES[0];
        if is_first {
            self.idle(&server).await?;
        }
        let subject = self.subject(&server.endpoint, Some(server.pid()), value_bytes);
        self.load(&subject).await?;
        if is_persistent {
            self.disk(&subject, &data)?;
        }
        if is_first && is_persistent {
            server = self.restart(server).await?;
        }
        let subject = self.subject(&server.endpoint, Some(server.pid()), value_bytes);
        self.measure(&subject).await?;
        server.stop()?;
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    fn subject(&self, endpoint: &Endpoint, pid: Option<u32>, value_bytes: usize) -> KvSubject {
        KvSubject {
            place: KvLocation { endpoint: endpoint.clone(), protocol: KvProtocol::Http, value_bytes },
            values: self.values.clone(),
            pid,
            read_keys: (load::READ, self.plan.keys(value_bytes).min(READ_KEYS_MAX)),
            new_keys: Arc::default(),
        }
    }

    async fn idle(&mut self, server: &ServerProcess) -> Result<()> {
        tokio::time::sleep(SETTLE).await;
        let bytes = procfs::resident_bytes(server.pid())?;
        let detail = format!("resident memory {} s after the start, no data", SETTLE.as_secs());
        self.report.targets.push(BenchTarget::new(targets::IDLE, Some(megabytes(bytes)), detail));
        Ok(())
    }

    async fn load(&mut self, subject: &KvSubject) -> Result<()> {
        let value_bytes = subject.place.value_bytes;
        let count = self.plan.keys(value_bytes);
        eprintln!("loading {count} keys of {}", size(value_bytes));
        let elapsed = load::fill(subject, count).await?;
        let rate = thousands(count as f64 / elapsed.as_secs_f64());
        let name = format!("loading {} keys of {}, `dw=0`", thousands(count as f64), size(value_bytes));
        self.report.fact(name, format!("{:.1} s, {rate}/s", elapsed.as_secs_f64()));
        Ok(())
    }

    fn disk(&mut self, subject: &KvSubject, data: &Path) -> Result<()> {
        let value_bytes = subject.place.value_bytes;
        let stored = self.plan.keys(value_bytes) * value_bytes as u64;
        let bytes = procfs::disk_bytes(data)?;
        let name = format!("bytes on disk per byte stored, values of {}", size(value_bytes));
        let (on_disk, stored_mb) = (megabytes(bytes), megabytes(stored));
        let ratio = bytes as f64 / stored as f64;
        self.report.fact(name, format!("{ratio:.2} ({on_disk:.0} MB for {stored_mb:.0} MB, right after loading)"));
        Ok(())
    }

    async fn restart(&mut self, server: ServerProcess) -> Result<ServerProcess> {
        let server = server.restart()?;
        let keys = thousands(self.plan.keys as f64);
        let detail = format!("with {keys} keys, after SIGTERM, page cache warm");
        let seconds = server.started_in.as_secs_f64();
        self.report.targets.push(BenchTarget::new(targets::RESTART, Some(seconds), detail));
        tokio::time::sleep(SETTLE).await;
        let resident = megabytes(procfs::resident_bytes(server.pid())?);
        self.report.fact(format!("idle memory after a restart with {keys} keys"), format!("{resident:.0} MB"));
        Ok(server)
    }

    /// Measures one value size.
    async fn measure(&mut self, subject: &KvSubject) -> Result<()> {
        let compares = subject.place.value_bytes == BARE_VALUE_BYTES;
        if compares {
            self.compare(subject).await?;
        }
        self.cells(subject).await?;
        if compares {
            self.overwritten(subject).await?;
        }
        Ok(())
    }

    async fn cells(&mut self, subject: &KvSubject) -> Result<()> {
        let value_bytes = subject.place.value_bytes;
        for operation in KvOperation::HTTP {
            if operation == KvOperation::MissingGet && value_bytes != VALUE_BYTES[0] {
                continue;
            }
            for connections in CONNECTIONS {
                let measured = cells::run(subject, operation, connections, self.plan.length).await?;
                let (name, rate) = (operation.name(), thousands(measured.rate()));
                eprintln!("{name}, {}, {connections} connections: {rate}/s {}", size(value_bytes), measured.faults());
                self.report.cells.push(measured);
            }
        }
        Ok(())
    }

    async fn compare(&mut self, subject: &KvSubject) -> Result<()> {
        tokio::time::sleep(SETTLE).await;
        rows::http_gets(&mut self.report, subject, self.plan.rounds).await?;
        rows::http_puts(&mut self.report, subject, &self.scratch, self.plan.rounds).await
    }

    async fn overwritten(&mut self, subject: &KvSubject) -> Result<()> {
        let count = self.plan.overwrites;
        eprintln!("overwriting one key {count} times");
        let elapsed = load::overwrite(subject, count).await?;
        let of_kind = |kind| KvSubject {
            read_keys: (kind, 1),
            ..self.subject(&subject.place.endpoint, subject.pid, subject.place.value_bytes)
        };
        let (overwritten, fresh) = (of_kind(load::OVERWRITTEN), of_kind(load::FRESH));
        let get = |subject| kv_turns(subject, KvOperation::Get, ONE_KEY_CONNECTIONS);
        let [overwritten, fresh] = in_turns([get(&overwritten), get(&fresh)], self.plan.rounds).await?;
        let gets = Comparison::of(&overwritten, &fresh);
        let times = thousands(count as f64);
        let rate = thousands(count as f64 / elapsed.as_secs_f64());
        let detail = format!("{} after {times} overwrites", gets.detail("fresh key"));
        self.report.targets.push(BenchTarget::new(targets::OVERWRITTEN, gets.ratio(), detail));
        self.report.fact(format!("overwriting one key {times} times, `dw=0`"), format!("{rate}/s"));
        Ok(())
    }
}
