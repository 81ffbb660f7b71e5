//! A run of `query`: its sections, their servers, its report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::index;
use super::notes::STYLE;
use super::objects;
use super::plan::QueryBenchPlan;
use crate::bucket_types;
use crate::common_args::CommonArgs;
use crate::numbered_work::ValueServer;
use crate::report::{BenchReport, thousands};
use crate::server::{ServerConfig, ServerProcess, log_end};

/// The file of the server's module in JavaScript, and its text.
const MODULE: (&str, &str) = ("bench.js", include_str!("bench.js"));

/// The arguments of `query`.
#[derive(Debug, clap::Args)]
pub(crate) struct QueryBenchArgs {
    #[command(flatten)]
    args: CommonArgs,
    /// Only these sections.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<QueryBenchSection>,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum QueryBenchSection {
    /// Ranges of an index by size.
    Index,
    /// Puts with terms beside puts without.
    Puts,
    /// Puts with a precommit hook beside puts without.
    Hooks,
    /// MapReduce, native and JavaScript.
    Jobs,
    /// Other requests while hostile scripts run.
    Hostile,
}

impl QueryBenchSection {
    /// All sections, in the order of the run.
    const ALL: [Self; 5] = [Self::Index, Self::Puts, Self::Hooks, Self::Jobs, Self::Hostile];
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When a server cannot be started, loaded or reached, and for arguments that the run cannot follow. A missed target is no
/// error. A wrong answer fails the run after the report is printed.
pub(crate) async fn run(options: QueryBenchArgs) -> Result<ExitCode> {
    check(&options.args)?;
    std::fs::create_dir_all(&options.args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-q-").tempdir_in(&options.args.scratch)?;
    let plan = QueryBenchPlan::new(&options.args);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let report = options.args.report(arguments, scratch.path(), plan.rounds.length.as_secs_f64());
    let report = BenchReport { style: STYLE, ..report };
    let mut run = QueryBenchRun { plan, report, scratch: scratch.path().canonicalize()? };
    run.sections(&options).await?;
    options.args.publish(&mut run.report)
}

/// Refuses the arguments of other commands.
fn check(args: &CommonArgs) -> Result<()> {
    if let Some(engine @ ("cassandra" | "memory")) = args.engine.as_deref() {
        bail!("query measures the embedded engine on disk: it takes no --engine {engine}");
    }
    if args.url.is_some() || args.beside.is_some() {
        bail!(
            "query gives modules and bucket types to a server that it starts itself: it takes no --url and no --beside"
        );
    }
    Ok(())
}

/// The state of a run.
pub(super) struct QueryBenchRun {
    /// The amounts of a run.
    pub(super) plan: QueryBenchPlan,
    /// The results.
    pub(super) report: BenchReport,
    /// The folder of its files.
    scratch: PathBuf,
}

impl QueryBenchRun {
    async fn sections(&mut self, options: &QueryBenchArgs) -> Result<()> {
        let js_dir = self.scratch.join("js");
        std::fs::create_dir(&js_dir)?;
        std::fs::write(js_dir.join(MODULE.0), MODULE.1)?;
        for section in QueryBenchSection::ALL {
            if !options.only.is_empty() && !options.only.contains(&section) {
                continue;
            }
            let config = self.config(options, &js_dir, &format!("{section:?}").to_lowercase())?;
            let (log, data) = (config.log.clone(), config.data.clone());
            self.section(section, config).await.with_context(|| log_end(&log))?;
            std::fs::remove_dir_all(data)?;
        }
        Ok(())
    }

    /// Measures a section on a fresh server.
    async fn section(&mut self, section: QueryBenchSection, config: ServerConfig) -> Result<()> {
        let socket = config.data.join("admin.sock");
        let server = ServerProcess::start(config)?;
        bucket_types::make(&socket, &[index::TYPE])?;
        let target = ValueServer { endpoint: server.endpoint.clone(), pid: server.pid() };
        match section {
            QueryBenchSection::Index => self.index(&target).await?,
            QueryBenchSection::Puts => self.puts(&target).await?,
            QueryBenchSection::Hooks => self.hooks(&target).await?,
            QueryBenchSection::Jobs => self.jobs(&target).await?,
            QueryBenchSection::Hostile => self.hostile(&target).await?,
        }
        server.stop()
    }

    /// Loads the objects of a section into a bucket.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load.
    pub(super) async fn load(
        &mut self,
        server: &ValueServer,
        bucket: &'static str,
        name: &str,
        has_terms: bool,
    ) -> Result<()> {
        let count = thousands(self.plan.objects as f64);
        eprintln!("loading {count} objects into {bucket}");
        let elapsed = objects::load(&server.endpoint, bucket, has_terms, self.plan.objects).await?.as_secs_f64();
        let rate = thousands(self.plan.objects as f64 / elapsed);
        let name = format!("loading {count} objects into a bucket {name}, `dw=0`");
        self.report.fact(name, format!("{elapsed:.1} s, {rate}/s"));
        Ok(())
    }

    fn config(&self, options: &QueryBenchArgs, js_dir: &Path, name: &str) -> Result<ServerConfig> {
        Ok(ServerConfig { js_dir: Some(js_dir.to_owned()), ..ServerConfig::of(&options.args, &self.scratch, name)? })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct QueryBenchLine {
        #[command(flatten)]
        options: QueryBenchArgs,
    }

    #[test]
    fn arguments_of_other_commands_are_refused_by_name() {
        let refusal = |words: &[&str]| {
            let line = QueryBenchLine::try_parse_from([&["x"], words].concat()).unwrap();
            check(&line.options.args).err().map(|error| error.to_string())
        };
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&["--engine", "local"]), None);
        assert!(refusal(&["--engine", "cassandra"]).unwrap().contains("no --engine cassandra"));
        assert!(refusal(&["--engine", "memory"]).unwrap().contains("no --engine memory"));
        assert!(refusal(&["--url", "http://127.0.0.1:1"]).unwrap().contains("--url"));
    }
}
