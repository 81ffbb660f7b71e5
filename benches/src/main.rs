//! The load generator of `cargo xtask bench kv` and `cargo xtask bench s3`.
//!
//! One binary in several roles: it drives a server that speaks Riak's HTTP protocol or S3, and it *is* the bare programs that
//! the server is compared with. So all have the same compiler and flags, and are measured in one run.
//!
//! ```text
//! kv      run      the order of a run                 bare-http   hyper alone, the same bytes
//!         cells    operation x value x connections    bare-fjall  fjall alone, one committer
//!         compare  Larder, bare, Larder, bare
//!         report   the results, as Markdown
//! s3      see its module                              bare-file   hyper alone, streaming a file
//! kv --engine cassandra   see its module `cassandra`
//! ```
//!
//! The generator shares the machine with the server. So it is one thread, its client knows just enough HTTP, and it allocates
//! no memory per request.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a load generator measures real time, and its report goes to stdout"
)]

mod bare_file;
mod bare_fjall;
mod bare_http;
mod cassandra;
mod cells;
mod child;
mod client;
mod common_args;
mod compare;
mod driver;
mod endpoint;
mod keys;
mod limits;
mod load;
mod machine;
mod procfs;
mod report;
mod response;
mod run;
mod s3;
mod server;
mod targets;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(name = "larder-bench", about = "Measures a server that speaks Riak's HTTP protocol or S3.")]
struct GeneratorArgs {
    #[command(subcommand)]
    command: GeneratorCommand,
}

#[derive(Subcommand)]
enum GeneratorCommand {
    /// Measure the key-value operations and print the report.
    Kv(common_args::CommonArgs),
    /// Measure the operations of S3 and print the report.
    S3(s3::S3BenchArgs),
    /// Answer with a file over bare hyper, until stdin ends.
    #[command(hide = true)]
    BareFile(bare_file::BareFileArgs),
    /// Answer with fixed bytes over bare hyper, until stdin ends.
    #[command(hide = true)]
    BareHttp(bare_http::BareHttpArgs),
    /// Commit groups of writes over bare fjall, and print how many.
    #[command(hide = true)]
    BareFjall(bare_fjall::BareFjallArgs),
}

fn main() -> ExitCode {
    match dispatch(GeneratorArgs::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("larder-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: GeneratorCommand) -> anyhow::Result<ExitCode> {
    match command {
        GeneratorCommand::Kv(options) if options.engine.as_deref() == Some("cassandra") => {
            generator()?.block_on(until_signal(cassandra::run(options)))
        }
        GeneratorCommand::Kv(options) => generator()?.block_on(until_signal(run::run(options))),
        GeneratorCommand::S3(options) => generator()?.block_on(until_signal(s3::run(options))),
        GeneratorCommand::BareFile(options) => bare_file::serve(&options).map(|()| ExitCode::SUCCESS),
        GeneratorCommand::BareHttp(options) => bare_http::serve(&options).map(|()| ExitCode::SUCCESS),
        GeneratorCommand::BareFjall(options) => bare_fjall::commit(&options).map(|()| ExitCode::SUCCESS),
    }
}

/// One thread: the cores belong to the server.
fn generator() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs `work` unless a signal comes first; dropping the work ends the children.
async fn until_signal(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    }
}
