//! The order of a run: fresh servers, one for each size and one for each promise; then the report.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, bail};

use super::bucket::Subject;
use super::cells::VALUE_BYTES;
use super::driver::Place;
use super::face::{FACE, without_keys};
use super::plan::Plan;
use super::sections::Section;
use crate::endpoint::Endpoint;
use crate::keys::{Random, Values};
use crate::limits::CELL_OPERATIONS_MAX;
use crate::report::Report;
use crate::server::{Account, Recipe, Server, log_end};
use crate::told::Told;

/// Where an S3 server listens when a URL does not say.
const HTTP_PORT: u16 = 80;

/// What `s3` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    told: Told,
    /// Access key at the server of --url.
    #[arg(long, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    key: Option<String>,
    /// Its secret.
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret: Option<String>,
}

/// Runs it all, prints the report and writes it where asked.
///
/// # Errors
///
/// When the server cannot be started, loaded or reached. Slow is no error; a wrong answer in a cell fails the run after the
/// report is out.
pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.told.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-s3-").tempdir_in(&options.told.scratch)?;
    let plan = Plan::new(options.told.quick, options.told.seconds);
    let report =
        options.told.report(without_keys(std::env::args().skip(1)), scratch.path(), plan.length(0).as_secs_f64());
    let mut run = Run {
        plan,
        values: Arc::new(Values::new(VALUE_BYTES[2])),
        report: Report { face: FACE, ..report },
        scratch: scratch.path().canonicalize()?,
    };
    match &options.told.url {
        Some(url) => run.elsewhere(url, &options).await?,
        None => run.own_servers(&options).await?,
    }
    options.told.publish(&mut run.report)
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

/// A run under way.
pub(super) struct Run {
    /// How much is done.
    pub(super) plan: Plan,
    /// Bytes for the writes.
    pub(super) values: Arc<Values>,
    /// What was found out.
    pub(super) report: Report,
    /// Where files go.
    pub(super) scratch: PathBuf,
}

impl Run {
    /// Everything against a server that somebody else runs.
    async fn elsewhere(&mut self, url: &str, options: &Options) -> Result<()> {
        let (Some(key), Some(secret)) = (options.key.clone(), options.secret.clone()) else {
            bail!(
                "{url}: its access key is needed: --key and --secret, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            );
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
        let durability = match section {
            Section::Listing => Some("buffered".to_owned()),
            _ => options.told.durability.clone(),
        };
        Ok(Recipe {
            binary: options.told.binary()?,
            engine: options.told.engine.clone(),
            durability,
            s3: Some(own_account()),
            cluster: None,
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
}

#[cfg(test)]
mod tests;
