//! The command line: options are taken out, files are read, the other arguments go to the server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the socket, as `--socket` does.
pub(crate) const SOCKET_VARIABLE: &str = "LARDER_ADMIN_SOCKET";

const SOCKET_DEFAULT: &str = "./data/admin.sock";
const SOCKET_FLAG: &str = "--socket";
/// `bucket-type`, `create` or `update`, the name: later arguments may name a file.
const ARGS_BEFORE_PROPERTIES: usize = 3;

/// The action that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdminInvocation {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// An empty command line: print the help and fail.
    Usage,
    /// Send a command to the server.
    Command {
        /// The server's socket.
        socket: PathBuf,
        /// The command and its arguments.
        args: Vec<String>,
    },
}

/// Parses the arguments after the program's name.
///
/// # Errors
/// A line for standard error.
pub(crate) fn read(
    arguments: impl Iterator<Item = OsString>,
    variable: Option<OsString>,
) -> Result<AdminInvocation, String> {
    let mut socket = PathBuf::from(variable.unwrap_or_else(|| SOCKET_DEFAULT.into()));
    let mut args = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let arg = argument.into_string().map_err(|arg| format!("{} is not UTF-8", arg.display()))?;
        if arg == SOCKET_FLAG {
            socket = arguments.next().map(PathBuf::from).ok_or_else(|| format!("{SOCKET_FLAG} needs a path"))?;
        } else if let Some(path) = arg.strip_prefix("--socket=") {
            socket = path.into();
        } else {
            args.push(arg);
        }
    }
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(AdminInvocation::Usage),
        ["help" | "--help" | "-h"] => Ok(AdminInvocation::Help),
        ["version" | "--version" | "-V"] => Ok(AdminInvocation::Version),
        _ => Ok(AdminInvocation::Command { socket, args: insert_files(args)? }),
    }
}

/// Replaces `@FILE` by the file's content, where properties are given.
fn insert_files(args: Vec<String>) -> Result<Vec<String>, String> {
    let is_change = matches!(
        args.iter().map(String::as_str).collect::<Vec<_>>()[..],
        ["bucket-type" | "bucket_type", "create" | "update", ..]
    );
    let content = |(at, arg): (usize, String)| match arg.strip_prefix('@') {
        Some(file) if is_change && at >= ARGS_BEFORE_PROPERTIES => read_content(Path::new(file)),
        _ => Ok(arg),
    };
    args.into_iter().enumerate().map(content).collect()
}

fn read_content(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str, variable: Option<&str>) -> Result<AdminInvocation, String> {
        read(line.split_whitespace().map(OsString::from), variable.map(OsString::from))
    }

    fn command(socket: &str, args: &str) -> Result<AdminInvocation, String> {
        let args = args.split_whitespace().map(str::to_owned).collect();
        Ok(AdminInvocation::Command { socket: socket.into(), args })
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
    fn properties_may_come_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.json");
        std::fs::write(&file, "{\"props\": {}}\n").unwrap();
        let args = |line: String| match read_line(&line, None) {
            Ok(AdminInvocation::Command { args, .. }) => args,
            other => panic!("{other:?}"),
        };
        let name = file.display();
        assert_eq!(args(format!("bucket-type create t @{name}"))[3], "{\"props\": {}}\n");
        assert_eq!(
            args(format!("bucket-type create @{name}"))[2],
            format!("@{name}"),
            "a type's name may begin with @"
        );
        assert_eq!(args(format!("bucket-type status t @{name}"))[3], format!("@{name}"));
        let missing = read_line("bucket-type update t @/no/such/file", None).unwrap_err();
        assert!(missing.starts_with("cannot read /no/such/file: No such file"), "{missing}");
    }
}
