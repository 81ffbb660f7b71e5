//! One command: its words, its limits, and its handler, with the arguments and the progress reports of a call.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_console::RunningCommands;
use larder_core::Error;
use larder_encryption::at_rest::DataKeys;
use larder_kv::Gateway;
use larder_kv_admin::frame::{AdminAnswer, AdminRequest};
use larder_kv_admin::progress_bar::Progress;
use larder_moving::Mover;
use larder_rows::text::escaped;
use larder_s3::Objects;
use tokio::sync::watch;
use tokio::time::Instant;

use super::backup::BackupSource;
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
    /// The addresses of HTTP and S3.
    pub(crate) listeners: Vec<SocketAddr>,
    /// The moves from other stores.
    pub(crate) mover: Arc<Mover>,
    /// The engine that `backup` copies; `None`: it is not the embedded one.
    pub(crate) backup: Option<BackupSource>,
    /// The keys of what is encrypted at rest; `None`: nothing is.
    pub(crate) data_keys: Option<Arc<DataKeys>>,
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

    /// The folder of an argument. One that the client sees and the server does not, or the other way round, is refused: a service
    /// may have a `/tmp` of its own, where an export is lost.
    ///
    /// # Errors
    /// The answer that says so, and that of a path which is not whole.
    pub(super) fn shared_folder(&self, arg: &'a str) -> Result<&'a Path, AdminAnswer> {
        let folder = Path::new(arg);
        if !folder.is_absolute() {
            return Err(AdminAnswer::failed("give the whole path of the directory: it is one of the server's machine"));
        }
        let Some(theirs) = self.request.folders.get(arg) else { return Ok(folder) };
        let same = match std::fs::metadata(&theirs.path) {
            Ok(ours) => (ours.dev(), ours.ino()) == (theirs.device, theirs.inode),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            // The command itself says what the server may not do there.
            Err(_) => true,
        };
        match same {
            true => Ok(folder),
            false => Err(AdminAnswer::failed(format!(
                "{} is another folder for the server than for kv-admin: its service has one of its own there. Give a folder \
                 that both see: the installed service has /var/lib/larder-exports",
                theirs.path.display()
            ))),
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

/// An option that a command takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandOption {
    /// Its name, with the hyphens.
    pub(super) name: &'static str,
    /// How often it may be given, and whether with a value.
    pub(super) kind: OptionKind,
}

/// The form of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionKind {
    /// Without a value.
    Flag,
    /// With a value, once.
    Value,
    /// With a value, any number of times.
    Values,
}

/// The arguments of a command, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedArgs<'a> {
    /// The arguments that are no options.
    pub(super) plain: Vec<&'a str>,
    options: BTreeMap<&'static str, Vec<&'a str>>,
}

impl<'a> ParsedArgs<'a> {
    /// Sorts the arguments.
    ///
    /// # Errors
    /// A line about an option that the command does not take, or not so.
    pub(super) fn parse(args: &[&'a str], known: &[CommandOption]) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with("--") {
                parsed.plain.push(arg);
                continue;
            }
            let (name, value) = arg.split_once('=').map_or((*arg, None), |(name, value)| (name, Some(value)));
            let option = known.iter().find(|option| option.name == name);
            let CommandOption { name, kind } = option.ok_or_else(|| format!("There is no option {name}"))?;
            let value = match (kind, value) {
                (OptionKind::Flag, None) => "",
                (OptionKind::Flag, Some(_)) => return Err(format!("{name} takes no value")),
                (_, Some(value)) => value,
                (_, None) => args.next().ok_or_else(|| format!("{name} needs a value"))?,
            };
            let values = parsed.options.entry(name).or_default();
            if *kind != OptionKind::Values && !values.is_empty() {
                return Err(format!("{name} is there twice"));
            }
            values.push(value);
        }
        Ok(parsed)
    }

    /// Whether the option is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option that may be there once.
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.options.get(name).and_then(|values| values.first().copied())
    }

    /// All values of an option.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        self.options.get(name).into_iter().flatten().map(|value| (*value).to_owned()).collect()
    }

    /// The secret in the file that `--secret-file` names, without the end of its line.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub(super) fn secret(&self, request: &AdminRequest) -> Result<Option<String>, AdminAnswer> {
        let Some(file) = self.value("--secret-file") else { return Ok(None) };
        match (request.files.get(file), request.unreadable.get(file)) {
            (Some(secret), _) => Ok(Some(secret.trim_end_matches(['\n', '\r']).to_owned())),
            (None, Some(reason)) => Err(AdminAnswer::failed(reason)),
            (None, None) => Err(AdminAnswer::failed("--secret-file needs the path of a file")),
        }
    }
}

/// The gateway's reasons for an error, one per line.
pub(super) fn reasons(error: &Error) -> String {
    match error {
        Error::Refused(refused) => refused.console().join("\n"),
        Error::TimedOut => "timeout: it may or may not have been done; ask for the status".to_owned(),
        Error::Overloaded { retry_after } => format!("overload: try again in {retry_after} s"),
        Error::UnknownType(_)
        | Error::BadAddress(_)
        | Error::QuorumAboveN { .. }
        | Error::Unsatisfied { .. }
        | Error::NodeConfirms { .. }
        | Error::Condition(_)
        | Error::Superseded
        | Error::Changed
        | Error::Context(_)
        | Error::TooLarge { .. }
        | Error::MetadataTooLarge { .. }
        | Error::IndexTooLarge { .. }
        | Error::TooManySiblings { .. }
        | Error::BrokenBody(_)
        | Error::Datatype(_)
        | Error::NotDatatype
        | Error::DatatypePut
        | Error::DatatypeNeedsSiblings
        | Error::Precommit(_)
        | Error::NotBuilt(_)
        | Error::Type(_)
        | Error::NotReady(_)
        | Error::DiskFull
        | Error::Damaged(_)
        | Error::Internal(_) => error.to_string(),
    }
}

/// A name for the console. Text of any script stays readable; control characters and bytes that are no text become `\x{..}`,
/// so that a line stays a line.
pub(super) fn shown(name: &[u8]) -> String {
    escaped(name, |c| !c.is_control())
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

#[cfg(test)]
mod options_tests {
    use super::*;

    const KNOWN: &[CommandOption] = &[
        CommandOption { name: "--all", kind: OptionKind::Flag },
        CommandOption { name: "--one", kind: OptionKind::Value },
        CommandOption { name: "--many", kind: OptionKind::Values },
    ];

    fn parse<'a>(line: &'a str) -> Result<ParsedArgs<'a>, String> {
        ParsedArgs::parse(&line.split(' ').collect::<Vec<_>>(), KNOWN)
    }

    #[test]
    fn options_stand_anywhere_and_are_checked() {
        let parsed = parse("--many=a=b x --all --one --all y --many c").unwrap();
        assert_eq!((parsed.plain.as_slice(), parsed.has("--all")), (&["x", "y"][..], true));
        assert_eq!((parsed.value("--one"), parsed.values("--many")), (Some("--all"), vec!["a=b".into(), "c".into()]));
        assert_eq!((parsed.value("--none"), parsed.has("--none")), (None, false));
        for (line, problem) in [
            ("--other", "There is no option --other"),
            ("--all=1", "--all takes no value"),
            ("x --one", "--one needs a value"),
            ("--one a --one=b", "--one is there twice"),
        ] {
            assert_eq!(parse(line), Err(problem.to_owned()), "{line}");
        }
    }
}

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn names_print_as_text_on_one_line() {
        for (name, text) in [
            (&b"plain"[..], "plain"),
            ("пример".as_bytes(), "пример"),
            (b"a\nb", "a\\x{A}b"),
            (b"\xffz", "\\x{FF}z"),
            (b"", ""),
        ] {
            assert_eq!(shown(name), text);
        }
    }
}
