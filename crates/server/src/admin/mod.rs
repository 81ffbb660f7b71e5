//! The commands of `kv-admin` and their answers.
//!
//! ```text
//! kv-admin ──args───▶ socket ──▶ run ──▶ COMMANDS ──▶ gateway
//!          ◀─answer── (frame)         (one table: words, usage, help, handler)
//! ```
//! The server owns every text: `kv-admin` prints the answer and exits with its code. Answers go to standard output; usage and
//! failures to standard error.

mod answer;
mod bucket_type;
mod cluster;
mod erlang;
pub mod frame;
mod help;
pub mod progress;
mod s3_user;
mod self_test;
pub mod socket;
mod stats;
mod table;
mod transfer;
mod unsupported;

pub use answer::AdminAnswer;
pub use help::help;
pub use table::{AdminCommand, COMMANDS};
pub(crate) use transfer::is_running as is_transferring;

use larder_gateway::objects::Objects;

use progress::ProgressReporter;
use table::CommandLookup;

/// Runs one command: the arguments after `kv-admin`, such as `["bucket-type", "list"]`.
///
/// The argument `--json`, at any position, asks for JSON.
pub async fn run(objects: &Objects, args: &[String]) -> AdminAnswer {
    run_reporting(objects, args, &ProgressReporter::new().0).await
}

/// As [`run`], with progress reports to `reporter`.
pub async fn run_reporting(objects: &Objects, args: &[String], reporter: &ProgressReporter) -> AdminAnswer {
    let json = args.iter().any(|word| word == "--json");
    let options = ["--json", progress::FLAG];
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|word| !options.contains(word)).collect();
    match table::find(&words) {
        CommandLookup::Command(command, rest) => command.run(objects, rest, json, reporter).await,
        CommandLookup::Other(answer) => answer,
    }
}

#[cfg(test)]
mod tests;
