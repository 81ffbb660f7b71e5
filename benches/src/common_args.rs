//! The arguments that all runs share: the server to start, the amounts, the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::limits::CELL_SECONDS_MAX;
use crate::machine::MachineInfo;
use crate::report::BenchReport;

/// The arguments that all runs share.
#[derive(Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// Measure the server at this URL instead of starting one.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The server to start [default: `larder` beside this program].
    #[arg(long, conflicts_with = "url")]
    larder: Option<PathBuf>,
    /// Measure this build of the server too, cell by cell in turns, and report ratios alone (kv, pb).
    #[arg(long, conflicts_with = "url")]
    pub(crate) beside: Option<PathBuf>,
    /// With --beside: only cells whose name contains this text, such as `put durable, 1 KB`.
    #[arg(long, requires = "beside")]
    pub(crate) cell: Option<String>,
    /// Passed on to the started server.
    #[arg(long, conflicts_with = "url")]
    pub(crate) engine: Option<String>,
    /// The nodes of `--engine cassandra`: HOST:PORT, separated by commas.
    #[arg(long, conflicts_with = "url")]
    pub(crate) cassandra: Option<String>,
    /// Keys of 100 B that `kv` loads, with as many bytes of each other size [default: 100,000]; puts of 1 KB before `pb` measures
    /// memory [default: 900,000]. With --quick fewer. A million shows a restart with many keys.
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..))]
    pub(crate) keys: Option<u64>,
    /// How often a key is overwritten by `kv` [default: 100,000, with --quick fewer].
    #[arg(long)]
    pub(crate) overwrites: Option<u64>,
    /// Passed on to the started server, unless a measurement needs a durability of its own.
    #[arg(long, conflicts_with = "url")]
    pub(crate) durability: Option<String>,
    /// Seconds per cell after the warm-up [default: 5, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=CELL_SECONDS_MAX))]
    pub(crate) seconds: Option<u64>,
    /// Short cells and small loads: shows that the run works, not how fast the server is.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Also write the report to this file.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The commit to name in the report.
    #[arg(long)]
    commit: Option<String>,
    /// The date to name in the report.
    #[arg(long)]
    date: Option<String>,
    /// The folder of temporary data, some 10 GB; durable writes are as fast as its disk.
    #[arg(long, default_value = "target")]
    pub(crate) scratch: PathBuf,
}

impl CommonArgs {
    /// The server to start.
    ///
    /// # Errors
    ///
    /// When it does not exist.
    pub(crate) fn binary(&self) -> Result<PathBuf> {
        let binary = match &self.larder {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("larder"),
        };
        if !binary.is_file() {
            bail!("{}: no such program: pass the server with --larder, or a running one with --url", binary.display());
        }
        Ok(binary.canonicalize()?)
    }

    /// An empty report.
    pub(crate) fn report(&self, arguments: String, scratch: &Path, seconds: f64) -> BenchReport {
        BenchReport {
            subject: self.url.clone().unwrap_or_else(|| "larder, started by the generator".to_owned()),
            commit: self.commit.clone(),
            date: self.date.clone(),
            arguments,
            machine: MachineInfo::read(scratch),
            seconds,
            quick: self.quick,
            ..BenchReport::default()
        }
    }

    /// Prints a report, writes it to the file of `--out`, and returns the exit code of the run.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn publish(&self, report: &mut BenchReport) -> Result<ExitCode> {
        let text = report.markdown();
        println!("{text}");
        if let Some(out) = &self.out {
            std::fs::write(out, &text).with_context(|| format!("writing {}", out.display()))?;
        }
        if report.is_sound() {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("larder-bench: some answers were wrong: see FAILED above");
        Ok(ExitCode::FAILURE)
    }
}
