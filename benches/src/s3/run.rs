//! A run of `s3`: a fresh server for each size and each target; then the report.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, bail};

use super::bucket::S3Subject;
use super::cells::VALUE_BYTES;
use super::driver::BucketLocation;
use super::limits;
use super::plan::S3Plan;
use super::report_style::{STYLE, size, without_keys};
use crate::common_args::CommonArgs;
use crate::endpoint::Endpoint;
use crate::keys::{BenchRandom, ValuePool};
use crate::limits::CELL_OPERATIONS_MAX;
use crate::report::BenchReport;
use crate::server::{S3Account, ServerConfig, ServerProcess, log_end};

/// The default port of an S3 server.
const HTTP_PORT: u16 = 80;

/// The arguments of `s3`.
#[derive(Debug, clap::Args)]
pub(crate) struct S3BenchArgs {
    #[command(flatten)]
    args: CommonArgs,
    /// Access key at the server of --url.
    #[arg(long, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    key: Option<String>,
    /// Its secret.
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret: Option<String>,
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When the server cannot be started, loaded or reached. A missed target is no error. A wrong answer in
/// a cell fails the run after the report is printed.
pub(crate) async fn run(options: S3BenchArgs) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-s3-").tempdir_in(&options.args.scratch)?;
    let plan = S3Plan::new(options.args.quick, options.args.seconds);
    let report =
        options.args.report(without_keys(std::env::args().skip(1)), scratch.path(), plan.length(0).as_secs_f64());
    let mut run = S3Run {
        plan,
        values: Arc::new(ValuePool::new(VALUE_BYTES[2])),
        report: BenchReport { style: STYLE, ..report },
        scratch: scratch.path().canonicalize()?,
    };
    match &options.args.url {
        Some(url) => run.elsewhere(url, &options).await?,
        None => run.own_servers(&options).await?,
    }
    options.args.publish(&mut run.report)
}

/// The admin of a server that is started here: it listens on loopback and ends with the run.
pub(crate) fn own_account() -> S3Account {
    let mut random = BenchRandom::new(u64::from(std::process::id()));
    let mut word = |letters: usize| -> String {
        let letter = |number: u64| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(number >> 59) as usize]);
        (0..letters).map(|_| letter(random.next())).collect()
    };
    S3Account { key: word(20), secret: word(40) }
}

/// The name of a size in buckets and directories.
fn section_name(value_bytes: usize) -> String {
    size(value_bytes).replace(' ', "").to_ascii_lowercase()
}

/// The state of a run.
pub(super) struct S3Run {
    /// The amounts of a run.
    pub(super) plan: S3Plan,
    /// The bytes of the writes.
    pub(super) values: Arc<ValuePool>,
    /// The results.
    pub(super) report: BenchReport,
    /// The folder of its files.
    pub(super) scratch: PathBuf,
}

impl S3Run {
    /// Measures everything against a running server.
    async fn elsewhere(&mut self, url: &str, options: &S3BenchArgs) -> Result<()> {
        let (Some(key), Some(secret)) = (options.key.clone(), options.secret.clone()) else {
            bail!(
                "{url}: its access key is needed: --key and --secret, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            );
        };
        let subject = self.subject(Endpoint::from_url(url, HTTP_PORT)?, S3Account { key, secret }, None);
        for value_bytes in VALUE_BYTES {
            // The process id in the name keeps two runs against one server apart.
            let bucket = format!("larder-bench-{}-{}", std::process::id(), section_name(value_bytes));
            let subject = subject.with_bucket(bucket);
            subject.make().await?;
            let measured = self.measure(&subject, value_bytes).await;
            let removed = subject.remove().await;
            measured?;
            removed?;
        }
        Ok(())
    }

    /// Measures each section against a fresh server.
    async fn own_servers(&mut self, options: &S3BenchArgs) -> Result<()> {
        for value_bytes in VALUE_BYTES {
            let config = self.config(options, value_bytes)?;
            let log = config.log.clone();
            self.own_server(config, value_bytes).await.with_context(|| log_end(&log))?;
        }
        Ok(())
    }

    async fn own_server(&mut self, config: ServerConfig, value_bytes: usize) -> Result<()> {
        let account = config.s3.clone().context("a server without S3")?;
        let data = config.data.clone();
        let server = ServerProcess::start(config)?;
        let subject = limits::subject(&server, account, self.values.clone());
        let subject = subject.with_bucket(format!("larder-bench-{}", section_name(value_bytes)));
        subject.make().await?;
        self.measure(&subject, value_bytes).await?;
        server.stop()?;
        std::fs::remove_dir_all(&data)?;
        Ok(())
    }

    fn config(&self, options: &S3BenchArgs, value_bytes: usize) -> Result<ServerConfig> {
        let config = ServerConfig::of(&options.args, &self.scratch, &section_name(value_bytes))?;
        Ok(ServerConfig { s3: Some(own_account()), ..config })
    }

    fn subject(&self, endpoint: Endpoint, account: S3Account, pid: Option<u32>) -> S3Subject {
        S3Subject {
            place: BucketLocation { endpoint, account, bucket: String::new() },
            kv: None,
            values: self.values.clone(),
            pid,
            // Numbers below are for keys that are made outside of cells.
            new_keys: Arc::new(AtomicU64::new(CELL_OPERATIONS_MAX)),
        }
    }
}
