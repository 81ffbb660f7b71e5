//! What was typed: options are taken out, files are read, the rest is for the server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the socket, as `--socket` does.
pub(crate) const SOCKET_VARIABLE: &str = "LARDER_ADMIN_SOCKET";

const SOCKET_DEFAULT: &str = "./data/admin.sock";
const SOCKET_FLAG: &str = "--socket";
/// `bucket-type`, `create` or `update`, the name: what follows may be a file's name.
const WORDS_BEFORE_PROPERTIES: usize = 3;

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Nothing was asked: print the help and fail.
    Usage,
    /// Ask the server.
    Command {
        /// Where it listens.
        socket: PathBuf,
        /// What to ask.
        words: Vec<String>,
    },
}

/// Understands the arguments behind the program's name.
///
/// # Errors
/// A line for standard error.
pub(crate) fn read(
    arguments: impl Iterator<Item = OsString>,
    variable: Option<OsString>,
) -> Result<Invocation, String> {
    let mut socket = PathBuf::from(variable.unwrap_or_else(|| SOCKET_DEFAULT.into()));
    let mut words = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let word = argument.into_string().map_err(|word| format!("{} is not UTF-8", word.display()))?;
        if word == SOCKET_FLAG {
            socket = arguments.next().map(PathBuf::from).ok_or_else(|| format!("{SOCKET_FLAG} needs a path"))?;
        } else if let Some(path) = word.strip_prefix("--socket=") {
            socket = path.into();
        } else {
            words.push(word);
        }
    }
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(Invocation::Usage),
        ["help" | "--help" | "-h"] => Ok(Invocation::Help),
        ["version" | "--version" | "-V"] => Ok(Invocation::Version),
        _ => Ok(Invocation::Command { socket, words: with_files(words)? }),
    }
}

/// Puts the content of `@FILE` in its place, where properties are given.
fn with_files(words: Vec<String>) -> Result<Vec<String>, String> {
    let is_change = matches!(
        words.iter().map(String::as_str).collect::<Vec<_>>()[..],
        ["bucket-type" | "bucket_type", "create" | "update", ..]
    );
    let content = |(at, word): (usize, String)| match word.strip_prefix('@') {
        Some(file) if is_change && at >= WORDS_BEFORE_PROPERTIES => content_of(Path::new(file)),
        _ => Ok(word),
    };
    words.into_iter().enumerate().map(content).collect()
}

fn content_of(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str, variable: Option<&str>) -> Result<Invocation, String> {
        read(line.split_whitespace().map(OsString::from), variable.map(OsString::from))
    }

    fn command(socket: &str, words: &str) -> Result<Invocation, String> {
        let words = words.split_whitespace().map(str::to_owned).collect();
        Ok(Invocation::Command { socket: socket.into(), words })
    }

    #[test]
    fn options_are_taken_out_wherever_they_stand() {
        for (line, variable, is) in [
            ("ping", None, command("./data/admin.sock", "ping")),
            ("ping", Some("/v"), command("/v", "ping")),
            ("--socket /s ping", Some("/v"), command("/s", "ping")),
            ("bucket-type list --socket=/s --json", None, command("/s", "bucket-type list --json")),
            ("ping --socket", None, Err("--socket needs a path".to_owned())),
            ("", None, Ok(Invocation::Usage)),
            ("help", None, Ok(Invocation::Help)),
            ("--socket /s --help", None, Ok(Invocation::Help)),
            ("version", None, Ok(Invocation::Version)),
            ("help bucket-type", None, command("./data/admin.sock", "help bucket-type")),
        ] {
            assert_eq!(read_line(line, variable), is, "{line}");
        }
    }

    #[test]
    fn properties_may_come_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.json");
        std::fs::write(&file, "{\"props\": {}}\n").unwrap();
        let words = |line: String| match read_line(&line, None) {
            Ok(Invocation::Command { words, .. }) => words,
            other => panic!("{other:?}"),
        };
        let name = file.display();
        assert_eq!(words(format!("bucket-type create t @{name}"))[3], "{\"props\": {}}\n");
        assert_eq!(words(format!("bucket-type create @{name}"))[2], format!("@{name}"), "a type may be called so");
        assert_eq!(words(format!("bucket-type status t @{name}"))[3], format!("@{name}"));
        let missing = read_line("bucket-type update t @/no/such/file", None).unwrap_err();
        assert!(missing.starts_with("cannot read /no/such/file: No such file"), "{missing}");
    }
}
