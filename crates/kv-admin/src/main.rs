//! `kv-admin`: sends its arguments to the server's admin socket and prints the answer. The server owns the texts; this
//! program holds only those it needs without a server.

mod args;
mod client;

use std::io::Write as _;
use std::process::ExitCode;

use args::AdminInvocation;
use client::ServerAnswer;

/// The text of `kv-admin help`; a test of the server compares it with the server's own.
const HELP: &str = include_str!("help.txt");

fn main() -> ExitCode {
    let answer = match args::read(std::env::args_os().skip(1), std::env::var_os(args::SOCKET_VARIABLE)) {
        Ok(AdminInvocation::Help) => ServerAnswer::done(HELP.to_owned()),
        Ok(AdminInvocation::Version) => ServerAnswer::done(format!("{}\n", env!("CARGO_PKG_VERSION"))),
        Ok(AdminInvocation::Usage) => ServerAnswer::failed(HELP.trim_end()),
        Ok(AdminInvocation::Command { socket, args }) => client::ask_when_started(&socket, &args)
            .unwrap_or_else(|problem| ServerAnswer::failed(&problem.to_string())),
        Err(problem) => ServerAnswer::failed(&problem),
    };
    print(&answer);
    ExitCode::from(answer.exit)
}

/// Prints the answer. A closed pipe is no failure: `kv-admin status | head -1`.
fn print(answer: &ServerAnswer) {
    let _ = std::io::stdout().write_all(answer.stdout.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(answer.stderr.as_bytes());
}
