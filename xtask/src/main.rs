//! Everything a developer or CI runs: `cargo xtask test | soak | bench | cassandra | tidy`.
//!
//! ```text
//! test       the stages of `stages`, in order, timed, with a table at the end and one last line for CI
//! soak       the same checks at full length; figures go to .work/soak.md
//! bench      release binaries and the load generator; reports go to docs/benchmarks*.md
//! cassandra  a cluster of Apache Cassandra on this machine, for trying
//! tidy       rules of this repository that no other tool knows
//! ```

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a tool for people: it prints, measures real time and asks the environment"
)]

mod bench;
mod cassandra;
mod clients;
mod python;
mod report;
mod run;
mod shell;
mod soak;
mod stages;
mod tidy;
mod venv;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::shell::Shell;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, soaks and measures Larder.")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything CI runs.
    Test(run::Options),
    /// Run the same checks at full length: hours.
    Soak(run::Options),
    /// Measure.
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Run nodes of Apache Cassandra on this machine.
    Cassandra {
        #[command(subcommand)]
        what: cassandra::What,
    },
    /// Check the rules of this repository.
    Tidy,
}

fn main() -> ExitCode {
    let shell = Shell::at_root();
    let done = match Cli::parse().command {
        Task::Test(options) => run::test(&shell, &options),
        Task::Soak(options) => soak::soak(&shell, &options),
        Task::Bench { what } => bench::bench(&shell, &what),
        Task::Cassandra { what } => cassandra::cassandra(&what),
        Task::Tidy => tidy::tidy(&shell),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The names of the tasks, for whoever checks that a document names real ones.
fn task_names() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}
