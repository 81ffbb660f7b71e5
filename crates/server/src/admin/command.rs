//! One command: its words, its limits, and its handler.

use std::future::Future;
use std::pin::Pin;

use larder_admin_frame::{AdminAnswer, AdminRequest};
use larder_gateway::Gateway;
use larder_gateway::objects::Objects;

use super::progress::ProgressReporter;

/// A running command.
pub(super) type RunningCommand<'a> = Pin<Box<dyn Future<Output = AdminAnswer> + Send + 'a>>;

/// The arguments of a handler.
pub(super) struct CommandCall<'a> {
    /// The gateway.
    pub(super) gateway: &'a Gateway,
    /// Its S3 side.
    pub(super) objects: &'a Objects,
    /// The arguments after the command's own words.
    pub(super) args: &'a [&'a str],
    /// The whole request.
    pub(super) request: &'a AdminRequest,
    /// Whether the client wants JSON.
    pub(super) json: bool,
    /// The receiver of progress.
    pub(super) reporter: &'a ProgressReporter,
}

impl<'a> CommandCall<'a> {
    /// The content of FILE for an argument `@FILE`, the argument itself otherwise.
    ///
    /// # Errors
    /// The reason why the client could not read the file.
    pub(super) fn content(&self, arg: &'a str) -> Result<&'a str, &'a String> {
        match self.request.unreadable.get(arg) {
            Some(reason) => Err(reason),
            None => Ok(self.request.files.get(arg).map_or(arg, String::as_str)),
        }
    }
}

/// One command.
pub(super) struct AdminCommand {
    /// Its words.
    pub(super) words: &'static [&'static str],
    /// Fewest and most arguments after the words.
    pub(super) args: (usize, usize),
    /// Its usage line.
    pub(super) usage: &'static str,
    /// A short description.
    pub(super) help: &'static str,
    /// Whether it has a JSON form.
    pub(super) json: bool,
    /// Whether it reports progress. Such a command may be broken off at any time and given again.
    pub(super) reports: bool,
    /// The function that runs it.
    pub(super) handler: for<'a> fn(CommandCall<'a>) -> RunningCommand<'a>,
}

impl std::fmt::Debug for AdminCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Command({})", self.words.join(" "))
    }
}

impl AdminCommand {
    /// Runs the command, if the number of arguments fits.
    pub(super) async fn run(&self, call: CommandCall<'_>) -> AdminAnswer {
        if call.args.len() < self.args.0 || call.args.len() > self.args.1 {
            return AdminAnswer::usage(self.usage);
        }
        if call.json && !self.json {
            return AdminAnswer::failed(format!("{} has no JSON form", self.words.join(" ")));
        }
        (self.handler)(call).await
    }
}
