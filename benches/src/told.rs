//! What every kind of run is told, and what it does with that.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::limits::CELL_SECONDS_MAX;
use crate::machine::Machine;
use crate::report::Report;

/// What every kind of run is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Told {
    /// Measure the server at this URL instead of starting one.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The server to start [default: `larder` beside this program].
    #[arg(long, conflicts_with = "url")]
    larder: Option<PathBuf>,
    /// Passed on to the started server.
    #[arg(long, conflicts_with = "url")]
    pub(crate) engine: Option<String>,
    /// The nodes of `--engine cassandra`, HOST:PORT with commas between.
    #[arg(long, conflicts_with = "url")]
    pub(crate) cassandra: Option<String>,
    /// How often a key is overwritten with `--engine cassandra` [default: 100,000, with --quick 2,000].
    #[arg(long)]
    pub(crate) overwrites: Option<u64>,
    /// Passed on to the started server, but where a measure needs one of its own.
    #[arg(long, conflicts_with = "url")]
    pub(crate) durability: Option<String>,
    /// Seconds per cell, after warming up [default: 5, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=CELL_SECONDS_MAX))]
    pub(crate) seconds: Option<u64>,
    /// Short cells and small loads: shows that it works, not how fast.
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
    /// Where temporary data goes: some 10 GB; durable writes are as fast as the disk under it.
    #[arg(long, default_value = "target")]
    pub(crate) scratch: PathBuf,
}

impl Told {
    /// The server to start.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn binary(&self) -> Result<PathBuf> {
        let binary = match &self.larder {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("larder"),
        };
        if !binary.is_file() {
            bail!("{}: no such server; name one with --larder, or a running one with --url", binary.display());
        }
        Ok(binary.canonicalize()?)
    }

    /// A report of nothing yet.
    pub(crate) fn report(&self, arguments: String, scratch: &Path, seconds: f64) -> Report {
        Report {
            subject: self.url.clone().unwrap_or_else(|| "larder, started by the generator".to_owned()),
            commit: self.commit.clone(),
            date: self.date.clone(),
            arguments,
            machine: Machine::look(scratch),
            seconds,
            quick: self.quick,
            ..Report::default()
        }
    }

    /// Prints a report and writes it where asked; how the run ends.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub(crate) fn publish(&self, report: &mut Report) -> Result<ExitCode> {
        let text = report.markdown();
        println!("{text}");
        if let Some(out) = &self.out {
            std::fs::write(out, &text).with_context(|| format!("writing {}", out.display()))?;
        }
        if report.is_sound() {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("larder-bench: some answers were not the expected ones; see FAILED above");
        Ok(ExitCode::FAILURE)
    }
}
