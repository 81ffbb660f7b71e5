//! `kv-admin`: sends its arguments to the server's admin socket and prints the answer. The server owns the texts; this
//! program holds only those it needs without a server. It takes its own options out of the arguments, reads files, and makes
//! certificates.

mod archive;
mod client;
mod self_signed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use larder_kv_admin::frame::{AdminAnswer, AdminRequest, SeenFolder};

use client::SocketChoice;

/// The text of `kv-admin help`; a test of the server compares it with the server's own.
const HELP: &str = include_str!("help.txt");
/// The environment variable that names the socket, as `--socket` does.
const SOCKET_VARIABLE: &str = "LARDER_ADMIN_SOCKET";

const SOCKET_FLAG: &str = "--socket";
/// The option of a password that comes over standard input.
const STDIN_PASSWORD: &str = "password=-";

fn main() -> ExitCode {
    let answer = match read_arguments(std::env::args_os().skip(1), std::env::var_os(SOCKET_VARIABLE)) {
        Ok(AdminInvocation::Help) => AdminAnswer::done(HELP),
        Ok(AdminInvocation::Version) => AdminAnswer::done(env!("CARGO_PKG_VERSION")),
        Ok(AdminInvocation::Usage) => AdminAnswer::failed(HELP),
        Ok(AdminInvocation::SelfSigned(args)) => self_signed::run(&args),
        Ok(AdminInvocation::Command { socket, request }) => client::ask_when_started(&socket, &request)
            .unwrap_or_else(|problem| AdminAnswer::failed(problem.to_string())),
        Err(problem) => AdminAnswer::failed(problem),
    };
    print(&answer);
    ExitCode::from(answer.exit)
}

/// Prints the answer. A closed pipe is no failure: `kv-admin status | head -1`.
fn print(answer: &AdminAnswer) {
    let _ = std::io::stdout().write_all(printable(&answer.stdout).as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(printable(&answer.stderr).as_bytes());
}

/// The text without characters that make a terminal do something: names in an answer come from clients.
fn printable(text: &str) -> String {
    let is_plain = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    text.chars()
        .flat_map(|character| if is_plain(character) { vec![character] } else { character.escape_default().collect() })
        .collect()
}

/// The action that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum AdminInvocation {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// An empty command line: print the help and fail.
    Usage,
    /// Make a certificate, with these arguments.
    SelfSigned(Vec<String>),
    /// Send a command to the server.
    Command {
        /// The server's socket.
        socket: SocketChoice,
        /// The command, its arguments, and the files that they may name.
        request: AdminRequest,
    },
}

/// Parses the arguments after the program's name.
///
/// # Errors
/// A line for standard error.
fn read_arguments(
    arguments: impl Iterator<Item = OsString>,
    variable: Option<OsString>,
) -> Result<AdminInvocation, String> {
    let mut socket = variable.map(|path| SocketChoice::Named(path.into()));
    let mut args = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let arg = argument.into_string().map_err(|arg| format!("{} is not UTF-8", arg.display()))?;
        if arg == SOCKET_FLAG {
            let path = arguments.next().ok_or_else(|| format!("{SOCKET_FLAG} needs a path"))?;
            socket = Some(SocketChoice::Named(path.into()));
        } else if let Some(path) = arg.strip_prefix("--socket=") {
            socket = Some(SocketChoice::Named(path.into()));
        } else {
            args.push(arg);
        }
    }
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(AdminInvocation::Usage),
        ["help" | "--help" | "-h"] => Ok(AdminInvocation::Help),
        ["version" | "--version" | "-V"] => Ok(AdminInvocation::Version),
        [first, second, ..] if [first, second] == self_signed::COMMAND => {
            Ok(AdminInvocation::SelfSigned(args.split_off(self_signed::COMMAND.len())))
        }
        _ => {
            let socket = socket.unwrap_or(SocketChoice::Unnamed);
            Ok(AdminInvocation::Command { socket, request: request(args) })
        }
    }
}

/// The request with the files of its arguments `@FILE`, `password=@FILE` and `--…-file FILE`: the server knows which of them name
/// files. `password=-` reads standard input.
fn request(args: Vec<String>) -> AdminRequest {
    let (mut files, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
    for (arg, file) in named_files(&args) {
        let read = if arg == STDIN_PASSWORD {
            std::io::read_to_string(std::io::stdin()).map(String::into_bytes)
        } else {
            std::fs::read(file)
        };
        match read.map_err(|error| error.to_string()).and_then(archive::text) {
            Ok(text) => files.insert(arg.to_owned(), text),
            Err(why) => unreadable.insert(arg.to_owned(), format!("cannot read {file}: {why}")),
        };
    }
    let folders = args.iter().filter(|arg| arg.starts_with('/'));
    let folders = folders.filter_map(|arg| Some((arg.clone(), SeenFolder::nearest(arg.as_ref())?))).collect();
    AdminRequest { args, files, unreadable, progress: true, folders }
}

/// The files that arguments may name, each with the text by which the server asks for it.
fn named_files(args: &[String]) -> Vec<(&str, &str)> {
    let mut named = Vec::new();
    let mut is_value = false;
    for arg in args {
        if std::mem::take(&mut is_value) {
            named.push((arg.as_str(), arg.as_str()));
        } else if let Some(file) = arg.strip_prefix('@') {
            named.push((arg, file));
        } else if let Some(file) = arg.strip_prefix("password=@") {
            named.push((arg, file));
        } else if arg == STDIN_PASSWORD {
            named.push((arg, "standard input"));
        } else if let Some((_, file)) = arg.split_once("-file=").filter(|_| arg.starts_with("--")) {
            named.push((file, file));
        } else {
            is_value = arg.starts_with("--") && arg.ends_with("-file");
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::SOCKET_DEFAULT;

    fn read_line(line: &str, variable: Option<&str>) -> Result<AdminInvocation, String> {
        read_arguments(line.split_whitespace().map(OsString::from), variable.map(OsString::from))
    }

    fn command(socket: &str, args: &str) -> Result<AdminInvocation, String> {
        let args = args.split_whitespace().map(str::to_owned).collect();
        let request = AdminRequest { args, progress: true, ..AdminRequest::default() };
        let socket = match socket {
            SOCKET_DEFAULT => SocketChoice::Unnamed,
            _ => SocketChoice::Named(socket.into()),
        };
        Ok(AdminInvocation::Command { socket, request })
    }

    #[test]
    fn options_are_recognised_at_any_position() {
        for (line, variable, is) in [
            ("ping", None, command("./data/admin.sock", "ping")),
            ("ping", Some("/v"), command("/v", "ping")),
            ("--socket /s ping", Some("/v"), command("/s", "ping")),
            ("bucket-type list --socket=/s --json", None, command("/s", "bucket-type list --json")),
            ("ping --socket", None, Err("--socket needs a path".to_owned())),
            ("", None, Ok(AdminInvocation::Usage)),
            ("help", None, Ok(AdminInvocation::Help)),
            ("--socket /s --help", None, Ok(AdminInvocation::Help)),
            ("version", None, Ok(AdminInvocation::Version)),
            ("help bucket-type", None, command("./data/admin.sock", "help bucket-type")),
        ] {
            assert_eq!(read_line(line, variable), is, "{line}");
        }
    }

    #[test]
    fn a_name_of_a_client_once_made_the_terminal_act() {
        assert_eq!(printable("a\x1b]0;x\x07\tb\r\n"), "a\\u{1b}]0;x\\u{7}\tb\\r\n");
        assert_eq!(printable("пример\n"), "пример\n");
    }

    #[test]
    fn a_password_comes_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p");
        std::fs::write(&file, "tea at five\n").unwrap();
        let word = format!("password=@{}", file.display());
        let Ok(AdminInvocation::Command { request, .. }) = read_line(&format!("security add-user u {word}"), None)
        else {
            panic!("{word}")
        };
        assert_eq!(request.files, BTreeMap::from([(word, "tea at five\n".to_owned())]));
    }

    #[test]
    fn files_are_read_for_every_argument_that_may_name_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.json");
        std::fs::write(&file, "{\"props\": {}}\n").unwrap();
        let word = format!("@{}", file.display());
        let request = match read_line(&format!("bucket-type create @t {word}"), None) {
            Ok(AdminInvocation::Command { request, .. }) => request,
            other => panic!("{other:?}"),
        };
        assert_eq!(request.args, ["bucket-type", "create", "@t", &word]);
        assert_eq!(request.files, BTreeMap::from([(word, "{\"props\": {}}\n".to_owned())]));
        for line in [format!("s3 key --secret-file {}", file.display()), format!("s3 --secret-file={}", file.display())]
        {
            let Ok(AdminInvocation::Command { request, .. }) = read_line(&line, None) else { panic!("{line}") };
            assert_eq!(request.files.into_values().collect::<Vec<_>>(), ["{\"props\": {}}\n"], "{line}");
        }
        let missing = &request.unreadable["@t"];
        assert!(missing.starts_with("cannot read t: No such file"), "{missing}");
        assert_eq!(request.unreadable.len(), 1);
    }
}
