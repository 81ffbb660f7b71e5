//! What `kv-admin` can say, and what it is answered.
//!
//! ```text
//! kv-admin ──words──▶ socket ──▶ run ──▶ COMMANDS ──▶ gateway
//!          ◀─answer── (frame)         (one table: words, usage, help, handler)
//! ```
//! The server owns every text: `kv-admin` prints what comes back and ends with the exit code that comes with it. Answers go
//! to standard output; usage and failures to standard error.

mod answer;
mod bucket_type;
mod cluster;
mod cycle;
mod erlang;
pub mod frame;
mod help;
pub mod progress;
mod refused;
mod s3_user;
pub mod socket;
mod stats;
mod table;
mod transfer;

pub use answer::Answer;
pub use help::help;
pub use table::{COMMANDS, Command};
pub(crate) use transfer::is_running as is_transferring;

use larder_gateway::objects::Objects;

use progress::Reporter;
use table::Found;

/// Carries out one command: the words behind `kv-admin`, such as `["bucket-type", "list"]`.
///
/// The word `--json`, wherever it stands, asks for the answer as JSON.
pub async fn run(objects: &Objects, args: &[String]) -> Answer {
    run_reporting(objects, args, &Reporter::new().0).await
}

/// As [`run`]; who listens to `reporter` hears how far a long command has come.
pub async fn run_reporting(objects: &Objects, args: &[String], reporter: &Reporter) -> Answer {
    let json = args.iter().any(|word| word == "--json");
    let options = ["--json", progress::WORD];
    let words: Vec<&str> = args.iter().map(String::as_str).filter(|word| !options.contains(word)).collect();
    match table::find(&words) {
        Found::Command(command, rest) => command.run(objects, rest, json, reporter).await,
        Found::Other(answer) => answer,
    }
}

#[cfg(test)]
mod tests;
