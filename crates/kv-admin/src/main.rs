//! `kv-admin`: sends its arguments to the server's admin socket and prints the answer. The server owns the texts; this
//! program holds only those it needs without a server.

mod args;
mod client;

use std::io::Write as _;
use std::process::ExitCode;

use larder_admin_frame::AdminAnswer;

use args::AdminInvocation;

/// The text of `kv-admin help`; a test of the server compares it with the server's own.
const HELP: &str = include_str!("help.txt");

fn main() -> ExitCode {
    let answer = match args::read(std::env::args_os().skip(1), std::env::var_os(args::SOCKET_VARIABLE)) {
        Ok(AdminInvocation::Help) => AdminAnswer::done(HELP),
        Ok(AdminInvocation::Version) => AdminAnswer::done(env!("CARGO_PKG_VERSION")),
        Ok(AdminInvocation::Usage) => AdminAnswer::failed(HELP),
        Ok(AdminInvocation::Command { socket, request }) => client::ask_when_started(&socket, &request)
            .unwrap_or_else(|problem| AdminAnswer::failed(problem.to_string())),
        Err(problem) => AdminAnswer::failed(problem),
    };
    print(&answer);
    ExitCode::from(answer.exit)
}

/// Prints the answer. A closed pipe is no failure: `kv-admin status | head -1`.
fn print(answer: &AdminAnswer) {
    let _ = std::io::stdout().write_all(answer.stdout.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(answer.stderr.as_bytes());
}
