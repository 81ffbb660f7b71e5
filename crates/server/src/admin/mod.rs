//! The commands of `kv-admin` and their answers.
//!
//! ```text
//! kv-admin ──request─▶ socket ──▶ connection ──▶ run ──▶ COMMANDS ──▶ gateway
//!          ◀─answer── (larder-admin-frame)           (one table: words, usage, help, handler)
//! ```
//! The server owns every text: `kv-admin` prints the answer and exits with its code. Answers go to standard output; usage and
//! failures to standard error.

mod bucket_type;
mod cluster;
mod command;
mod connection;
mod erlang;
mod help;
mod progress;
mod s3_user;
mod self_test;
pub(crate) mod socket;
mod stats;
mod table;
mod text;
mod transfer;
mod unsupported;

pub(crate) use transfer::is_running as is_transferring;

use larder_admin_frame::{AdminAnswer, AdminRequest};
use larder_gateway::objects::Objects;

use command::CommandCall;
use progress::ProgressReporter;
use table::CommandLookup;

/// The argument that asks for JSON, at any position.
const JSON: &str = "--json";

/// Runs one command.
async fn run(objects: &Objects, request: &AdminRequest, reporter: &ProgressReporter) -> AdminAnswer {
    let words = words_of(request);
    match table::find(&words) {
        CommandLookup::Command(command, args) => {
            let json = words.len() < request.args.len();
            command.run(CommandCall { gateway: &objects.gateway, objects, args, request, json, reporter }).await
        }
        CommandLookup::Other(answer) => answer,
    }
}

/// Whether the command of a request reports progress.
fn reports_progress(request: &AdminRequest) -> bool {
    matches!(table::find(&words_of(request)), CommandLookup::Command(command, _) if command.reports)
}

/// The arguments without [`JSON`].
fn words_of(request: &AdminRequest) -> Vec<&str> {
    request.args.iter().map(String::as_str).filter(|word| *word != JSON).collect()
}

#[cfg(test)]
mod tests;
