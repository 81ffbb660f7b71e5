//! Everything a developer or CI runs: `cargo xtask test | unit | soak | bench | cassandra | mutants | metrics | package | tidy`.
//!
//! ```text
//! test       the stages of `stages`, in order, timed, with a table at the end and one last line for CI
//! unit       the tests of one crate, for a change in it
//! soak       the same checks at full length; figures go to .work/soak.md
//! bench      release binaries and the load generator; reports go to docs/benchmarks*.md
//! cassandra  a cluster of Apache Cassandra on this machine, for trying
//! mutants    rules of the design, each taken out of a copy of the sources: its test has to fail
//! metrics    the dashboard, the alerts and the manual's table, from the server's table of metrics
//! package    a package for Debian and an archive, from the release programs
//! tidy       rules of this repository that no other tool knows
//! ```

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a tool for people: it prints, measures real time and asks the environment"
)]

mod background_job;
mod bench;
mod cassandra;
mod chart;
mod clients;
mod deny;
mod linting_compiler;
mod metrics_files;
mod mutants;
mod package;
mod product;
mod report;
mod run;
mod shell;
mod soak;
mod stages;
mod test_order;
mod test_programs;
mod test_runner;
mod test_summary;
mod tidy;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::shell::Shell;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, soaks and measures Larder.")]
struct XtaskArgs {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run everything CI runs.
    Test(run::StageOptions),
    /// Run the tests of one crate, with the lints.
    Unit {
        /// Its name without the prefix, such as `kv`.
        #[arg(value_name = "CRATE")]
        krate: String,
        /// Run the tests whose names contain this.
        #[arg(default_value = "")]
        filter: String,
    },
    /// Run the same checks at full length: hours.
    Soak(run::StageOptions),
    /// Measure.
    Bench {
        #[command(subcommand)]
        what: bench::BenchCommand,
    },
    /// Run nodes of Apache Cassandra on this machine.
    Cassandra {
        #[command(subcommand)]
        what: cassandra::CassandraCommand,
    },
    /// Take rules out of a copy of the sources, and see their tests fail.
    Mutants(mutants::MutantOptions),
    /// Draw the comparison with other servers from its figures.
    Chart,
    /// Write the files that are made from the table of metrics.
    Metrics,
    /// Make a package for Debian and an archive, below target/package.
    Package(package::PackageOptions),
    /// Check the rules of this repository.
    Tidy,
}

fn main() -> ExitCode {
    if let Some(exit) = linting_compiler::run() {
        return exit;
    }
    let shell = Shell::at_root();
    let done = match XtaskArgs::parse().command {
        XtaskCommand::Test(options) => run::test(&shell, &options),
        XtaskCommand::Unit { krate, filter } => stages::unit_of(&shell, &krate, &filter),
        XtaskCommand::Soak(options) => soak::soak(&shell, &options),
        XtaskCommand::Bench { what } => bench::bench(&shell, &what),
        XtaskCommand::Cassandra { what } => cassandra::cassandra(&what),
        XtaskCommand::Mutants(options) => mutants::mutants(&shell, &options),
        XtaskCommand::Chart => chart::chart(&shell),
        XtaskCommand::Metrics => metrics_files::metrics(&shell),
        XtaskCommand::Package(options) => package::package(&shell, &options),
        XtaskCommand::Tidy => tidy::tidy(&shell),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The names of the tasks: `tidy` compares the commands in documents with them.
fn task_names() -> Vec<String> {
    XtaskArgs::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}
