//! A run of `datatypes`: its sections, their servers, its report.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::notes::STYLE;
use super::plan::DatatypesPlan;
use crate::bucket_types;
use crate::common_args::CommonArgs;
use crate::numbered_work::ValueServer;
use crate::report::BenchReport;
use crate::server::{ServerConfig, ServerProcess, log_end};

/// The bucket types of a run, and their properties.
pub(super) const TYPES: [(&str, &str); 4] = [
    ("sets", r#"{"datatype":"set"}"#),
    ("counters", r#"{"datatype":"counter"}"#),
    ("maps", r#"{"datatype":"map"}"#),
    ("hlls", r#"{"datatype":"hll"}"#),
];

/// The arguments of `datatypes`.
#[derive(Debug, clap::Args)]
pub(crate) struct DatatypesBenchArgs {
    #[command(flatten)]
    args: CommonArgs,
    /// Only these sections.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<DatatypesSection>,
}

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DatatypesSection {
    /// Operations on sets by size.
    Sets,
    /// Increments beside plain puts.
    Counters,
    /// Updates of maps by size.
    Maps,
    /// Adds to HyperLogLogs, and their errors.
    Hlls,
    /// One large set: disk, memory, fetch.
    Whole,
}

impl DatatypesSection {
    /// All sections, in the order of the run.
    const ALL: [Self; 5] = [Self::Sets, Self::Counters, Self::Maps, Self::Hlls, Self::Whole];
}

/// Runs all measurements, prints the report and writes it to the file of `--out`.
///
/// # Errors
///
/// When a server cannot be started, loaded or reached, and for arguments that the run cannot follow. A missed target is no
/// error. A wrong answer fails the run after the report is printed.
pub(crate) async fn run(options: DatatypesBenchArgs) -> Result<ExitCode> {
    check(&options.args)?;
    std::fs::create_dir_all(&options.args.scratch)?;
    let scratch = tempfile::Builder::new().prefix("bench-dt-").tempdir_in(&options.args.scratch)?;
    let plan = DatatypesPlan::new(&options.args);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let report = options.args.report(arguments, scratch.path(), plan.rounds.length.as_secs_f64());
    let mut run =
        DatatypesRun { plan, report: BenchReport { style: STYLE, ..report }, scratch: scratch.path().canonicalize()? };
    run.sections(&options).await?;
    options.args.publish(&mut run.report)
}

/// Refuses the arguments of other commands.
fn check(args: &CommonArgs) -> Result<()> {
    match args.engine.as_deref() {
        Some("cassandra") => bail!("data types are not built over Cassandra yet: measure them with the engine local"),
        Some("memory") => bail!("datatypes measures the disk: it takes no --engine memory"),
        _ => {}
    }
    if args.url.is_some() || args.beside.is_some() {
        bail!("datatypes makes bucket types on one server that it starts itself: it takes no --url and no --beside");
    }
    Ok(())
}

/// The state of a run.
pub(super) struct DatatypesRun {
    /// The amounts of a run.
    pub(super) plan: DatatypesPlan,
    /// The results.
    pub(super) report: BenchReport,
    /// The folder of its files.
    scratch: PathBuf,
}

impl DatatypesRun {
    async fn sections(&mut self, options: &DatatypesBenchArgs) -> Result<()> {
        for section in DatatypesSection::ALL {
            if !options.only.is_empty() && !options.only.contains(&section) {
                continue;
            }
            let config = ServerConfig::of(&options.args, &self.scratch, &format!("{section:?}").to_lowercase())?;
            let (log, data) = (config.log.clone(), config.data.clone());
            let done = match section {
                DatatypesSection::Whole => self.whole(config).await,
                _ => self.section(section, config).await,
            };
            done.with_context(|| log_end(&log))?;
            std::fs::remove_dir_all(data)?;
        }
        Ok(())
    }

    /// Measures a section on a fresh server.
    async fn section(&mut self, section: DatatypesSection, config: ServerConfig) -> Result<()> {
        let data = config.data.clone();
        let server = ServerProcess::start(config)?;
        bucket_types::make(&data.join("admin.sock"), &TYPES)?;
        let target = ValueServer { endpoint: server.endpoint.clone(), pid: server.pid() };
        match section {
            DatatypesSection::Sets => self.sets(&target, &data).await?,
            DatatypesSection::Counters => self.counters(&target).await?,
            DatatypesSection::Maps => self.maps(&target).await?,
            _ => self.hlls(&target).await?,
        }
        server.stop()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: DatatypesBenchArgs,
    }

    #[test]
    fn cassandra_is_refused_by_name() {
        let refusal = |words: &[&str]| {
            let line = Line::try_parse_from([&["x"], words].concat()).unwrap();
            check(&line.options.args).err().map(|error| error.to_string())
        };
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&["--engine", "local"]), None);
        assert!(refusal(&["--engine", "cassandra"]).unwrap().contains("not built over Cassandra"));
        assert!(refusal(&["--url", "http://127.0.0.1:1"]).unwrap().contains("--url"));
    }
}
