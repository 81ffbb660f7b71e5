//! The order of a run: fresh servers, one for each size and one for each promise; then the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::bucket::{Job, Subject, loaded};
use super::cells::{self, Made, Operation, VALUE_BYTES, cell, connections};
use super::driver::Place;
use super::plan::Plan;
use super::{listing, paging, uploads};
use crate::bare_file::BareFile;
use crate::compare::Comparison;
use crate::endpoint::Endpoint;
use crate::keys::{Random, Values};
use crate::limits::{CELL_OPERATIONS_MAX, CELL_SECONDS_MAX};
use crate::machine::Machine;
use crate::report::{Face, Report, megabytes, per_second, thousands};
use crate::server::{Account, Recipe, Server, log_end};
use crate::targets::{self, Target};

/// How long a server is left alone before it counts as settled.
const SETTLE: Duration = Duration::from_secs(2);

/// Where an S3 server listens when a URL does not say.
const HTTP_PORT: u16 = 80;

/// Connections of the comparison with the bare server; the last is the one that was promised.
const BARE_CONNECTIONS: [u64; 2] = [1, 4];

/// What `s3` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure the server at this URL instead of starting one.
    #[arg(long)]
    url: Option<String>,
    /// Access key at that server.
    #[arg(long, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    key: Option<String>,
    /// Its secret.
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret: Option<String>,
    /// The server to start [default: `larder` beside this program].
    #[arg(long, conflicts_with = "url")]
    larder: Option<PathBuf>,
    /// Passed on to the started server.
    #[arg(long, conflicts_with = "url")]
    engine: Option<String>,
    /// Passed on to the started server; the bucket of very many keys is always loaded with `buffered`.
    #[arg(long, conflicts_with = "url")]
    durability: Option<String>,
    /// Seconds per cell, after warming up [default: 5, with --quick 1]; the largest values get 3 at least.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=CELL_SECONDS_MAX))]
    seconds: Option<u64>,
    /// Short cells and small loads: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Also write the report to this file.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The commit to name in the report.
    #[arg(long)]
    commit: Option<String>,
    /// The date to name in the report.
    #[arg(long)]
    date: Option<String>,
    /// Where temporary data goes: some 10 GB.
    #[arg(long, default_value = "target")]
    scratch: PathBuf,
}

const NOTES: &str = "\
- 1 KiB is 1,024 bytes; MB/s are millions of body bytes. Values are random and do not compress; keys have 16 bytes and
  come in no order. Buckets are named in the path. Every request is signed with version 2, which signs no body.
- PUT cells write new keys, as durable as the server's own setting makes them; DELETE cells delete those. GETs choose
  among the loaded keys, all in the page cache. A range is a quarter of the value, at most 1 MiB, from a random place.
- A multipart operation is initiate, 12 parts of 5 MiB and one of 4 MiB one after the other, and complete.
- The rate counts operations that ended in the window with the expected status and length; any other answer fails the cell.
- A cell writes at most 2 GiB and ends early when it has; so does a DELETE cell that has deleted what there was, and it
  has no warming up.
- The bare server is hyper, one blocking reader per answer that is two pieces of 256 KiB ahead. Both sides are measured
  in turns; the ratio is of medians.
- With `--url http://HOST:PORT --key KEY --secret SECRET` the same runs against any server; what needs its process is
  left out. Its buckets are named `larder-bench-…` and are removed at the end.
";

/// The report of `s3`.
const FACE: Face = Face { command: "s3", size, shows_moved: true, notes: NOTES };

/// Runs it all, prints the report and writes it where asked.
///
/// # Errors
///
/// When the server cannot be started, loaded or reached. Slow is no error; a wrong answer in a cell fails the run after the
/// report is out.
pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-s3-").tempdir_in(&options.scratch)?;
    let mut run = Run {
        plan: Plan::new(options.quick, options.seconds),
        values: Arc::new(Values::new(VALUE_BYTES[2])),
        report: report(&options, scratch.path()),
        scratch: scratch.path().canonicalize()?,
    };
    match &options.url {
        Some(url) => run.elsewhere(url, &options).await?,
        None => run.own_servers(&options).await?,
    }
    let text = run.report.markdown();
    println!("{text}");
    if let Some(out) = &options.out {
        std::fs::write(out, &text).with_context(|| format!("writing {}", out.display()))?;
    }
    if run.report.is_sound() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("larder-bench: some answers were not the expected ones; see FAILED above");
    Ok(ExitCode::FAILURE)
}

fn report(options: &Options, scratch: &Path) -> Report {
    Report {
        face: FACE,
        subject: options.url.clone().unwrap_or_else(|| "larder, started by the generator".to_owned()),
        commit: options.commit.clone(),
        date: options.date.clone(),
        arguments: without_keys(std::env::args().skip(1)),
        machine: Machine::look(scratch),
        seconds: Plan::new(options.quick, options.seconds).length(0).as_secs_f64(),
        quick: options.quick,
        ..Report::default()
    }
}

/// The arguments as they may be published.
fn without_keys(arguments: impl Iterator<Item = String>) -> String {
    let mut shown = Vec::new();
    let mut is_key = false;
    for argument in arguments {
        let flag = argument.split('=').next().unwrap_or_default().to_owned();
        let names_key = flag == "--key" || flag == "--secret";
        match (is_key, names_key && argument.contains('=')) {
            (true, _) => shown.push("…".to_owned()),
            (false, true) => shown.push(format!("{flag}=…")),
            (false, false) => shown.push(argument.clone()),
        }
        is_key = !is_key && names_key && !argument.contains('=');
    }
    shown.join(" ")
}

/// A size as S3's limits name it.
fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// The admin of a server that is started here: it listens on loopback and ends with the run.
fn own_account() -> Account {
    let mut random = Random::new(u64::from(std::process::id()));
    let mut word = |letters: usize| -> String {
        let letter = |number: u64| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(number >> 59) as usize]);
        (0..letters).map(|_| letter(random.next())).collect()
    };
    Account { key: word(20), secret: word(40) }
}

struct Run {
    plan: Plan,
    values: Arc<Values>,
    report: Report,
    scratch: PathBuf,
}

/// What is measured of one server.
#[derive(Debug, Clone, Copy)]
enum Section {
    Cells(usize),
    Paging,
    Listing,
    Uploads,
}

impl Section {
    const ALL: [Self; 6] = [
        Self::Cells(VALUE_BYTES[0]),
        Self::Cells(VALUE_BYTES[1]),
        Self::Cells(VALUE_BYTES[2]),
        Self::Paging,
        Self::Listing,
        Self::Uploads,
    ];

    /// The end of its bucket's and its directories' names.
    fn name(self) -> String {
        match self {
            Self::Cells(bytes) => size(bytes).replace(' ', "").to_ascii_lowercase(),
            Self::Paging => "parts".to_owned(),
            Self::Listing => "keys".to_owned(),
            Self::Uploads => "uploads".to_owned(),
        }
    }
}

impl Run {
    /// Everything against a server that somebody else runs.
    async fn elsewhere(&mut self, url: &str, options: &Options) -> Result<()> {
        let (Some(key), Some(secret)) = (options.key.clone(), options.secret.clone()) else {
            bail!("{url}: its access key is needed: --key and --secret, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
        };
        let subject = self.subject(Endpoint::from_url(url, HTTP_PORT)?, Account { key, secret }, None);
        for section in Section::ALL {
            // Two runs against one server do not meet.
            let bucket = format!("larder-bench-{}-{}", std::process::id(), section.name());
            let subject = subject.with_bucket(bucket);
            subject.make().await?;
            let measured = self.section(&subject, section).await;
            let removed = subject.remove().await;
            measured?;
            removed?;
        }
        Ok(())
    }

    /// Everything, each section against a fresh server.
    async fn own_servers(&mut self, options: &Options) -> Result<()> {
        for section in Section::ALL {
            let recipe = self.recipe(options, section)?;
            let log = recipe.log.clone();
            self.own_server(recipe, section).await.with_context(|| log_end(&log))?;
        }
        Ok(())
    }

    async fn own_server(&mut self, recipe: Recipe, section: Section) -> Result<()> {
        let account = recipe.s3.clone().context("a recipe without S3")?;
        let data = recipe.data.clone();
        let server = Server::start(recipe)?;
        let subject = self.subject(server.s3.clone(), account, Some(server.pid()));
        let subject = subject.with_bucket(format!("larder-bench-{}", section.name()));
        subject.make().await?;
        self.section(&subject, section).await?;
        server.stop()?;
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    fn recipe(&self, options: &Options, section: Section) -> Result<Recipe> {
        let binary = match &options.larder {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("larder"),
        };
        if !binary.is_file() {
            bail!("{}: no such server; name one with --larder, or a running one with --url", binary.display());
        }
        let durability = match section {
            Section::Listing => Some("buffered".to_owned()),
            _ => options.durability.clone(),
        };
        Ok(Recipe {
            binary: binary.canonicalize()?,
            engine: options.engine.clone(),
            durability,
            s3: Some(own_account()),
            data: self.scratch.join(format!("data-{}", section.name())),
            log: self.scratch.join(format!("log-{}", section.name())),
        })
    }

    fn subject(&self, endpoint: Endpoint, account: Account, pid: Option<u32>) -> Subject {
        Subject {
            place: Place { endpoint, account, bucket: String::new() },
            values: self.values.clone(),
            pid,
            // What is made outside of a cell has the numbers below.
            new_keys: Arc::new(AtomicU64::new(CELL_OPERATIONS_MAX)),
        }
    }

    async fn section(&mut self, subject: &Subject, section: Section) -> Result<()> {
        match section {
            Section::Cells(value_bytes) => self.measure(subject, value_bytes).await,
            Section::Paging => self.paging(subject).await,
            Section::Listing => self.listing(subject).await,
            Section::Uploads => self.uploads(subject).await,
        }
    }

    /// What is measured of one size.
    async fn measure(&mut self, subject: &Subject, value_bytes: usize) -> Result<()> {
        let count = self.plan.loaded(value_bytes);
        eprintln!("loading {count} keys of {}", size(value_bytes));
        let seconds = subject.work(Job::Load(value_bytes), count).await?.as_secs_f64();
        let name = format!("loading {} keys of {}, 64 connections", thousands(count as f64), size(value_bytes));
        self.report.fact(name, format!("{seconds:.1} s, {}/s", per_second(count as f64 / seconds)));
        if value_bytes == VALUE_BYTES[2] {
            self.compare(subject, count).await?;
        }
        let made = Made::default();
        for operation in Operation::IN_TURN.into_iter().filter(|operation| operation.is_run_with(value_bytes)) {
            if operation == Operation::Delete {
                made.fill_up(subject, value_bytes, self.plan.deleted_min(value_bytes)).await?;
            }
            for connections in connections(value_bytes) {
                self.cell(subject, operation, value_bytes, connections, &made).await?;
            }
            // What is left is of no more use, and takes room.
            if matches!(operation, Operation::Delete | Operation::Multipart) {
                made.delete(subject).await?;
            }
        }
        Ok(())
    }

    async fn cell(
        &mut self,
        subject: &Subject,
        operation: Operation,
        value_bytes: usize,
        connections: u64,
        made: &Made,
    ) -> Result<()> {
        let (loaded, length) = (self.plan.loaded(value_bytes), self.plan.length(value_bytes));
        let cell = cell(operation, value_bytes, connections);
        let measured = cells::run(subject, cell, operation, loaded, made, length).await?;
        let (name, rate) = (operation.label().name, per_second(measured.rate()));
        eprintln!("{name}, {}, {connections} connections: {rate}/s {}", size(value_bytes), measured.faults());
        self.report.cells.push(measured);
        Ok(())
    }

    /// GETs of the largest values beside a bare server that streams one of them from a file.
    async fn compare(&mut self, subject: &Subject, loaded_keys: u64) -> Result<()> {
        let value_bytes = VALUE_BYTES[2];
        let file = self.scratch.join("bare-file");
        std::fs::write(&file, self.values.cut(&mut Random::new(1), value_bytes))?;
        let bare_server = BareFile::start(&file)?;
        let bare_place = Place { endpoint: bare_server.endpoint.clone(), ..subject.place.clone() };
        let bare = Subject { place: bare_place, pid: Some(bare_server.pid()), ..subject.clone() };
        // Each is read once before it counts: the page cache is warm on both sides.
        let mut driver = subject.connect(0).await?;
        for number in 0..loaded_keys {
            driver.get(&loaded(number)).await?;
        }
        tokio::time::sleep(SETTLE).await;
        for connections in BARE_CONNECTIONS {
            eprintln!("comparing with bare hyper, {connections} connections");
            let comparison = self.in_turns(subject, &bare, connections, loaded_keys).await?;
            if connections == BARE_CONNECTIONS[1] {
                let detail = comparison.detail("bare hyper");
                self.report.targets.push(Target::new(targets::S3_GET, comparison.ratio(), detail));
            } else {
                let ratio = comparison.ratio().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
                let text = format!("{ratio}: {}", comparison.detail("bare hyper"));
                self.report.fact("GET 64 MiB, 1 connection, to bare hyper", text);
            }
        }
        drop(bare_server);
        std::fs::remove_file(&file)?;
        Ok(())
    }

    async fn in_turns(&self, ours: &Subject, bare: &Subject, connections: u64, loaded: u64) -> Result<Comparison> {
        let mut comparison = Comparison::default();
        let cell = cell(Operation::Get, VALUE_BYTES[2], connections);
        let made = Made::default();
        for round in 0..self.plan.rounds.count {
            // Whoever comes second finds another machine: each side does so in turn.
            for is_ours in [round % 2 == 0, round % 2 == 1] {
                let subject = if is_ours { ours } else { bare };
                let side = if is_ours { &mut comparison.ours } else { &mut comparison.base };
                let length = self.plan.rounds.length;
                side.add(&cells::run(subject, cell, Operation::Get, loaded, &made, length).await?);
            }
        }
        Ok(comparison)
    }

    async fn paging(&mut self, subject: &Subject) -> Result<()> {
        let (parts, pages) = (self.plan.parts, self.plan.pages);
        eprintln!("listing parts of uploads of {parts:?} parts");
        let paged = paging::run(subject, &parts, pages).await?;
        let (small, large) = (paged[0].median_us(), paged[parts.len() - 1].median_us());
        let ratio = large.zip(small).map(|(large, small)| large / small);
        let medians: Vec<String> = paged.iter().map(paging::Paged::describe).collect();
        let each = thousands(pages as f64);
        let detail = format!("medians of {each} pages each from random places, in turns: {}", medians.join(", "));
        self.report.targets.push(Target::new(targets::S3_PARTS, ratio, detail));
        let most = &paged[parts.len() - 1];
        let name = format!("sending {} parts of 16 B, 64 connections", thousands(most.parts as f64));
        self.report.fact(name, most.loading());
        Ok(())
    }

    async fn listing(&mut self, subject: &Subject) -> Result<()> {
        let keys = self.plan.keys;
        eprintln!("loading {keys} empty keys, and listing them");
        let listed = listing::run(subject, keys).await?;
        let seconds = listed.listed_in.as_secs_f64();
        let (count, rate) = (thousands(keys as f64), thousands(keys as f64 / seconds));
        let mut detail = format!("{count} keys in {} pages, one connection, {rate} keys/s", listed.pages);
        if let Some(pid) = subject.pid {
            let resident = megabytes(crate::procfs::resident_bytes(pid)?);
            detail += &format!("; resident memory then {resident:.0} MB");
        }
        self.report.targets.push(Target::new(targets::S3_LIST, Some(seconds), detail));
        let loading = listed.loaded_in.as_secs_f64();
        let rate = thousands(keys as f64 / loading);
        self.report.fact(format!("loading {count} empty keys, 64 connections"), format!("{loading:.1} s, {rate}/s"));
        Ok(())
    }

    async fn uploads(&mut self, subject: &Subject) -> Result<()> {
        let Some(pid) = subject.pid else {
            self.report.targets.push(Target::new(targets::S3_MEMORY, None, "needs the server's own process"));
            return Ok(());
        };
        let (count, value_bytes) = (self.plan.uploads, VALUE_BYTES[2]);
        eprintln!("{count} uploads at once");
        let held = uploads::run(subject, pid, count, value_bytes).await?;
        let (before, seen) = (megabytes(held.before), megabytes(held.seen));
        let seconds = held.elapsed.as_secs_f64();
        let moved = megabytes(count * value_bytes as u64) / seconds;
        let detail = format!(
            "peak resident memory of a fresh server, {count} PUTs of {} at once in {seconds:.1} s ({moved:.0} MB/s); \
             {before:.0} MB before, {seen:.0} MB the most seen every 20 ms",
            size(value_bytes)
        );
        self.report.targets.push(Target::new(targets::S3_MEMORY, Some(megabytes(held.peak)), detail));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
