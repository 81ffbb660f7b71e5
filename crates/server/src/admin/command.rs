//! One command: its words, its limits, and its handler, with the arguments and the progress reports of a call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_console::RunningCommands;
use larder_kv::Gateway;
use larder_kv_admin::frame::{AdminAnswer, AdminRequest};
use larder_kv_admin::progress_bar::Progress;
use larder_s3::Objects;
use tokio::sync::watch;
use tokio::time::Instant;

use super::options::{CommandOption, ParsedArgs};
use crate::console::ConsoleLinks;

/// Shortest time between two reports.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// The answer of a handler; an error is a failure that ends it early.
pub(super) type CommandResult = Result<AdminAnswer, AdminAnswer>;
/// A running command.
pub(super) type RunningCommand<'a> = Pin<Box<dyn Future<Output = CommandResult> + Send + 'a>>;

/// The parts of the server that commands act on.
#[derive(Clone)]
pub(crate) struct AdminContext {
    /// The gateway.
    pub(crate) gateway: Arc<Gateway>,
    /// The S3 side over its core.
    pub(crate) objects: Arc<Objects>,
    /// Links to the console; `None`: it is off.
    pub(crate) console: Option<ConsoleLinks>,
    /// The commands that run and report progress, for the console.
    pub(crate) commands: RunningCommands,
}

/// The arguments of a handler.
pub(super) struct CommandCall<'a> {
    /// The parts of the server that commands act on.
    pub(super) context: &'a AdminContext,
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
    /// The gateway.
    pub(super) fn gateway(&self) -> &'a Gateway {
        &self.context.gateway
    }

    /// The S3 side of the gateway.
    pub(super) fn objects(&self) -> &'a Objects {
        &self.context.objects
    }

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
    /// Fewest and most arguments after the words.
    pub(super) args: (usize, usize),
    /// Its usage line: its words, which are plain, then its arguments.
    pub(super) usage: &'static str,
    /// A short description.
    pub(super) help: &'static str,
    /// Whether it has a JSON form.
    pub(super) json: bool,
    /// Whether it reports progress. Such a command may be broken off at any time and given again.
    pub(super) reports_progress: bool,
    /// Whether the audit log has a line for each call: it changes users, keys or types.
    pub(super) audited: bool,
    /// The options among its arguments.
    pub(super) options: &'static [CommandOption],
    /// The function that runs it.
    pub(super) handler: for<'a> fn(CommandCall<'a>) -> RunningCommand<'a>,
}

impl std::fmt::Debug for AdminCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Command({})", self.words().join(" "))
    }
}

impl AdminCommand {
    /// Its words: the beginning of its usage line.
    pub(super) fn words(&self) -> Vec<&'static str> {
        let is_word = |part: &&str| part.starts_with(|first: char| first.is_ascii_lowercase());
        self.usage.split(' ').take_while(is_word).collect()
    }

    /// The text of the audit log for these arguments: all of them where they are names, else the first that is no option. Later
    /// ones are properties.
    pub(super) fn target(&self, args: &[&str]) -> String {
        // A password that stands in the place of a name is none.
        let args: Vec<&str> = args.iter().copied().filter(|arg| !arg.starts_with("password=")).collect();
        if matches!(self.words()[..], ["security", "grant" | "revoke" | "del-source"] | ["s3", "quota", ..]) {
            return args.join(" ");
        }
        let parsed = ParsedArgs::parse(&args, self.options).unwrap_or_default();
        parsed.plain.first().copied().unwrap_or_default().to_owned()
    }

    /// Runs the command, if the number of arguments fits.
    pub(super) async fn run(&self, call: CommandCall<'_>) -> AdminAnswer {
        if call.args.len() < self.args.0 || call.args.len() > self.args.1 {
            return AdminAnswer::usage(self.usage);
        }
        if call.json && !self.json {
            return AdminAnswer::failed(format!("{} has no JSON form", self.words().join(" ")));
        }
        (self.handler)(call).await.unwrap_or_else(|failure| failure)
    }
}

/// The sending side of a command's reports.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    begun: Instant,
    /// Time of the last report, in microseconds since the start.
    last: AtomicU64,
    sender: watch::Sender<Progress>,
}

impl ProgressReporter {
    /// A reporter, and the receiver of its reports.
    #[must_use]
    pub(super) fn new() -> (Self, watch::Receiver<Progress>) {
        let (sender, reports) = watch::channel(Progress::default());
        let begun = Instant::now();
        (Self { begun, last: AtomicU64::new(0), sender }, reports)
    }

    /// Reports, unless the last report is newer than [`REPORT_PAUSE`]; `report` gets the seconds since the start.
    pub(super) fn report(&self, report: impl FnOnce(f64) -> Progress) {
        let since = self.begun.elapsed();
        let now = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let last = self.last.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(last)) < REPORT_PAUSE.as_micros() {
            return;
        }
        self.last.store(now, Ordering::Relaxed);
        self.sender.send_replace(report(since.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_keep_their_distance_in_time() {
        let (reporter, mut reports) = ProgressReporter::new();
        let report = |seconds| Progress { seconds, ..Progress::default() };
        reporter.report(report);
        assert!(!reports.has_changed().unwrap(), "it has only begun");
        tokio::time::advance(Duration::from_secs(2)).await;
        reporter.report(report);
        reporter.report(|_| panic!("it reported a moment ago"));
        assert!((reports.borrow_and_update().seconds - 2.0).abs() < 0.001);
    }
}
