//! The load generator of `cargo xtask bench`.
//!
//! One binary in several roles: it drives a server that speaks Riak's HTTP protocol or S3, and it *is* the bare programs that
//! the server is compared with. So all have the same compiler and flags, and are measured in one run.
//!
//! ```text
//! kv      run      the order of a run                 bare-http    hyper alone, the same bytes
//!         cells    operation x value x connections    bare-pb      frames alone, the same bytes
//!         turns    Larder, bare, bare, Larder         bare-file    sendfile alone
//!         rows     rows that several commands share   in-process   the gateway, or a bare group commit
//!         beside   two builds of the server
//!         report   the results, as Markdown           redis        Debian's redis-server
//! pb, s3, tenants  see their modules
//! kv --engine cassandra   see its module `cassandra`
//! ```
//!
//! The generator shares the machine with the server. So it is one thread, its clients know just enough of each protocol, and it allocates
//! no memory per request.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a load generator measures real time, and its report goes to stdout"
)]

mod bare_file;
mod bare_http;
mod bare_pb;
mod beside;
mod cassandra;
mod cells;
mod child;
mod client;
mod commit_queue;
mod common_args;
mod connection;
mod driver;
mod endpoint;
mod framed_driver;
mod http_driver;
mod in_process;
mod keys;
mod kv_location;
mod limits;
mod load;
mod machine;
mod metrics;
mod pb;
mod procfs;
mod redis;
mod report;
mod response;
mod rows;
mod run;
mod s3;
mod server;
mod targets;
mod tenants;
mod turns;
mod wire;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// The allocator of the server: every side of a comparison has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "larder-bench", about = "Measures a server that speaks Riak's protocols or S3.")]
struct GeneratorArgs {
    #[command(subcommand)]
    command: GeneratorCommand,
}

#[derive(Subcommand)]
enum GeneratorCommand {
    /// Measure the key-value operations and print the report.
    Kv(common_args::CommonArgs),
    /// Measure each face beside its limits and print the report.
    Pb(pb::PbBenchArgs),
    /// Measure the operations of S3 and print the report.
    S3(s3::S3BenchArgs),
    /// Measure one tenant's requests while another one attacks, and print the report.
    Tenants(tenants::TenantsBenchArgs),
    /// Answer with a file by sendfile, until stdin ends.
    #[command(hide = true)]
    BareFile(bare_file::BareFileArgs),
    /// Answer with fixed bytes over bare hyper, until stdin ends.
    #[command(hide = true)]
    BareHttp(bare_http::BareHttpArgs),
    /// Answer with a fixed frame, until stdin ends.
    #[command(hide = true)]
    BarePb(bare_pb::BarePbArgs),
    /// Store puts in this process, and print how many.
    #[command(hide = true)]
    InProcess(in_process::InProcessArgs),
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
        GeneratorCommand::Pb(options) => generator()?.block_on(until_signal(pb::run(options))),
        GeneratorCommand::S3(options) => generator()?.block_on(until_signal(s3::run(options))),
        GeneratorCommand::Tenants(options) => generator()?.block_on(until_signal(tenants::run(options))),
        GeneratorCommand::BareFile(options) => bare_file::serve(&options).map(|()| ExitCode::SUCCESS),
        GeneratorCommand::BareHttp(options) => bare_http::serve(&options).map(|()| ExitCode::SUCCESS),
        GeneratorCommand::BarePb(options) => bare_pb::serve(&options).map(|()| ExitCode::SUCCESS),
        GeneratorCommand::InProcess(options) => in_process::serve(&options).map(|()| ExitCode::SUCCESS),
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
