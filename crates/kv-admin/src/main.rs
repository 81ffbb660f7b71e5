//! `kv-admin`: sends its words to the server's admin socket and prints what comes back. The server owns the texts; only what
//! must be said without a server is said here.

mod client;
mod words;

use std::io::Write as _;
use std::process::ExitCode;

use client::Answer;
use words::Invocation;

/// The text of `kv-admin help`; a test of the server compares it with the server's own.
const HELP: &str = include_str!("help.txt");

fn main() -> ExitCode {
    let answer = match words::read(std::env::args_os().skip(1), std::env::var_os(words::SOCKET_VARIABLE)) {
        Ok(Invocation::Help) => Answer::done(HELP.to_owned()),
        Ok(Invocation::Version) => Answer::done(format!("{}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Invocation::Usage) => Answer::failed(HELP.trim_end()),
        Ok(Invocation::Command { socket, words }) => {
            client::ask_patiently(&socket, &words).unwrap_or_else(|problem| Answer::failed(&problem.to_string()))
        }
        Err(problem) => Answer::failed(&problem),
    };
    print(&answer);
    ExitCode::from(answer.exit)
}

/// Nobody reading is no reason to fail: `kv-admin status | head -1`.
fn print(answer: &Answer) {
    let _ = std::io::stdout().write_all(answer.stdout.as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(answer.stderr.as_bytes());
}
