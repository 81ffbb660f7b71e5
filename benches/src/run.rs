//! The order of a run: one fresh server per value size, loaded, measured, ended; then the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bare_http::BareHttp;
use crate::cells::{self, CONNECTIONS, Operation, Subject, VALUE_BYTES};
use crate::compare::{self, BARE_VALUE_BYTES, Rounds};
use crate::driver::{Driver, Place};
use crate::endpoint::Endpoint;
use crate::keys::{Values, key};
use crate::load;
use crate::procfs;
use crate::report::{Report, megabytes, size, thousands};
use crate::server::{Recipe, Server, log_end, ping};
use crate::targets::{self, Target};
use crate::told::Told;

/// How long a server is left alone before it counts as idle or settled.
const SETTLE: Duration = Duration::from_secs(2);

/// Where Riak's HTTP interface listens when a URL does not say.
const RIAK_PORT: u16 = 8098;

/// Keys that reads choose from, so that they are warm.
const READ_KEYS_MAX: u64 = 10_000;

/// How much is done.
struct Plan {
    length: Duration,
    rounds: Rounds,
    /// Keys of 100 B; other sizes get as many bytes, or a tenth of the keys where that is less.
    keys: u64,
    overwrites: u64,
}

impl Plan {
    fn new(options: &Told) -> Self {
        let quick = options.quick;
        let length = Duration::from_secs(options.seconds.unwrap_or(if quick { 1 } else { 5 }));
        Self {
            length,
            rounds: Rounds { count: if quick { 4 } else { 8 }, length },
            keys: if quick { 100_000 } else { 1_000_000 },
            overwrites: if quick { 20_000 } else { 1_000_000 },
        }
    }

    fn keys(&self, value_bytes: usize) -> u64 {
        (self.keys * VALUE_BYTES[0] as u64 / value_bytes as u64).max(100)
    }
}

/// Runs it all, prints the report and writes it where asked.
///
/// # Errors
///
/// When the server cannot be started, loaded or reached. Slow is no error; a wrong answer in a cell fails the run after the
/// report is out.
pub(crate) async fn run(options: Told) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(&options.scratch)?;
    let plan = Plan::new(&options);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut run = Run {
        values: Arc::new(Values::new(VALUE_BYTES[VALUE_BYTES.len() - 1])),
        report: options.report(arguments, scratch.path(), plan.length.as_secs_f64()),
        plan,
        scratch: scratch.path().canonicalize()?,
    };
    match &options.url {
        Some(url) => run.elsewhere(url).await?,
        None => run.own_servers(&options).await?,
    }
    options.publish(&mut run.report)
}

struct Run {
    plan: Plan,
    values: Arc<Values>,
    report: Report,
    scratch: PathBuf,
}

impl Run {
    /// All sizes against a server that somebody else runs.
    async fn elsewhere(&mut self, url: &str) -> Result<()> {
        let endpoint = Endpoint::from_url(url, RIAK_PORT)?;
        ping(&endpoint)?;
        for value_bytes in VALUE_BYTES {
            let subject = self.subject(&endpoint, None, value_bytes);
            self.load(&subject).await?;
            self.measure(&subject).await?;
        }
        for promise in [targets::IDLE, targets::RESTART] {
            self.report.targets.push(Target::new(promise, None, "needs the server's own process"));
        }
        Ok(())
    }

    /// All sizes, each against a fresh server.
    async fn own_servers(&mut self, options: &Told) -> Result<()> {
        for value_bytes in VALUE_BYTES {
            let recipe = self.recipe(options, value_bytes)?;
            let log = recipe.log.clone();
            self.own_server(recipe, value_bytes).await.with_context(|| log_end(&log))?;
        }
        Ok(())
    }

    /// One size against a fresh server.
    async fn own_server(&mut self, recipe: Recipe, value_bytes: usize) -> Result<()> {
        let (data, keeps_data) = (recipe.data.clone(), recipe.keeps_data());
        let mut server = Server::start(recipe)?;
        let is_first = value_bytes == VALUE_BYTES[0];
        if is_first {
            self.idle(&server).await?;
        }
        let subject = self.subject(&server.endpoint, Some(server.pid()), value_bytes);
        self.load(&subject).await?;
        if keeps_data {
            self.disk(&subject, &data)?;
        }
        if is_first && keeps_data {
            server = self.restart(server).await?;
        }
        let subject = self.subject(&server.endpoint, Some(server.pid()), value_bytes);
        self.measure(&subject).await?;
        server.stop()?;
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    fn recipe(&self, options: &Told, value_bytes: usize) -> Result<Recipe> {
        Ok(Recipe {
            binary: options.binary()?,
            engine: options.engine.clone(),
            durability: options.durability.clone(),
            s3: None,
            cluster: None,
            data: self.scratch.join(format!("data-{value_bytes}")),
            log: self.scratch.join(format!("log-{value_bytes}")),
        })
    }

    fn subject(&self, endpoint: &Endpoint, pid: Option<u32>, value_bytes: usize) -> Subject {
        Subject {
            place: Place { endpoint: endpoint.clone(), value_bytes },
            values: self.values.clone(),
            pid,
            read_keys: (load::READ, self.plan.keys(value_bytes).min(READ_KEYS_MAX)),
            new_keys: AtomicU64::new(0),
        }
    }

    async fn idle(&mut self, server: &Server) -> Result<()> {
        tokio::time::sleep(SETTLE).await;
        let bytes = procfs::resident_bytes(server.pid())?;
        let detail = format!("resident memory {} s after the start, no data", SETTLE.as_secs());
        self.report.targets.push(Target::new(targets::IDLE, Some(megabytes(bytes)), detail));
        Ok(())
    }

    async fn load(&mut self, subject: &Subject) -> Result<()> {
        let value_bytes = subject.place.value_bytes;
        let count = self.plan.keys(value_bytes);
        eprintln!("loading {count} keys of {}", size(value_bytes));
        let elapsed = load::fill(subject, count).await?;
        let rate = thousands(count as f64 / elapsed.as_secs_f64());
        let name = format!("loading {} keys of {}, `dw=0`", thousands(count as f64), size(value_bytes));
        self.report.fact(name, format!("{:.1} s, {rate}/s", elapsed.as_secs_f64()));
        Ok(())
    }

    fn disk(&mut self, subject: &Subject, data: &Path) -> Result<()> {
        let value_bytes = subject.place.value_bytes;
        let stored = self.plan.keys(value_bytes) * value_bytes as u64;
        let bytes = procfs::disk_bytes(data)?;
        let name = format!("bytes on disk per byte stored, values of {}", size(value_bytes));
        let (on_disk, stored_mb) = (megabytes(bytes), megabytes(stored));
        let ratio = bytes as f64 / stored as f64;
        self.report.fact(name, format!("{ratio:.2} ({on_disk:.0} MB for {stored_mb:.0} MB, right after loading)"));
        Ok(())
    }

    async fn restart(&mut self, server: Server) -> Result<Server> {
        let server = server.restart()?;
        let keys = thousands(self.plan.keys as f64);
        let detail = format!("with {keys} keys, after SIGTERM, page cache warm");
        let seconds = server.started_in.as_secs_f64();
        self.report.targets.push(Target::new(targets::RESTART, Some(seconds), detail));
        tokio::time::sleep(SETTLE).await;
        let resident = megabytes(procfs::resident_bytes(server.pid())?);
        self.report.fact(format!("idle memory after a restart with {keys} keys"), format!("{resident:.0} MB"));
        Ok(server)
    }

    /// What is measured of one value size.
    async fn measure(&mut self, subject: &Subject) -> Result<()> {
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

    async fn cells(&mut self, subject: &Subject) -> Result<()> {
        let value_bytes = subject.place.value_bytes;
        for operation in Operation::ALL {
            if operation == Operation::MissingGet && value_bytes != VALUE_BYTES[0] {
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

    async fn compare(&mut self, subject: &Subject) -> Result<()> {
        tokio::time::sleep(SETTLE).await;
        eprintln!("comparing with bare hyper");
        let mut driver = Driver::connect(&subject.place, self.values.clone(), 0).await?;
        let (_, head) = driver.get_head(&key(load::READ, 0)).await?;
        let bare_server = BareHttp::start(&head)?;
        let bare = self.subject(&bare_server.endpoint, Some(bare_server.pid()), subject.place.value_bytes);
        let gets = compare::gets(subject, &bare, self.plan.rounds).await?;
        drop(bare_server);
        let mut detail = gets.detail("bare hyper");
        detail += &format!("; both answered a head of about {} B", head.len());
        self.report.targets.push(Target::new(targets::GET, gets.ratio(), detail));
        eprintln!("comparing with bare fjall");
        let puts = compare::durable_puts(subject, &self.scratch, self.plan.rounds).await?;
        self.report.targets.push(Target::new(targets::PUT, puts.ratio(), puts.detail("bare fjall")));
        Ok(())
    }

    async fn overwritten(&mut self, subject: &Subject) -> Result<()> {
        let count = self.plan.overwrites;
        eprintln!("overwriting one key {count} times");
        let elapsed = load::overwrite(subject, count).await?;
        let of_kind = |kind| Subject {
            read_keys: (kind, 1),
            ..self.subject(&subject.place.endpoint, subject.pid, subject.place.value_bytes)
        };
        let (overwritten, fresh) = (of_kind(load::OVERWRITTEN), of_kind(load::FRESH));
        let gets = compare::one_key(&overwritten, &fresh, self.plan.rounds).await?;
        let times = thousands(count as f64);
        let rate = thousands(count as f64 / elapsed.as_secs_f64());
        let detail = format!("{} after {times} overwrites", gets.detail("fresh key"));
        self.report.targets.push(Target::new(targets::OVERWRITTEN, gets.ratio(), detail));
        self.report.fact(format!("overwriting one key {times} times, `dw=0`"), format!("{rate}/s"));
        Ok(())
    }
}
