//! The program `larder`: it reads its settings and serves until a signal; `check` and `repair` inspect a data directory instead,
//! `healthcheck` asks a running server.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use larder_rows::Timestamp;
use larder_store::{Clock as _, SystemClock};

use crate::healthcheck::HealthTarget;
use crate::inspect::InspectCommand;
use crate::recent_log::RecentLogs;
use crate::settings::cli::{Invocation, read};
use crate::settings::{EngineKind, ServerSettings};

/// Most threads that read and write files of large bodies; further work waits. Each thread caches some megabytes of freed
/// memory.
const FILE_THREADS_MAX: usize = 32;
/// The embedded engine reads on the runtime's threads, so a small machine gets more of them than it has cores.
const WORKERS_MIN: usize = 4;

/// Runs the program with the arguments and variables of this process, until its end.
///
/// It is here and not in `main.rs`: `block_on` is generic, and would compile every future a second time in the crate of its caller.
#[must_use]
pub fn run() -> ExitCode {
    // Before any file or socket is created.
    crate::private::keep_private();
    // Not a command for people, so the command line of the help does not have it.
    if std::env::args_os().nth(1).is_some_and(|word| word == crate::scripts::WORKER_WORD) {
        return larder_script::run_worker();
    }
    let variables: Vec<_> = std::env::vars_os().collect();
    match read(std::env::args_os(), &variables, |file| std::fs::read_to_string(file)) {
        Ok(Invocation::Print(text)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Invocation::Inspect(command)) => inspect(&command),
        Ok(Invocation::CheckHealth(target)) => check_health(&target),
        Ok(Invocation::Serve(settings)) => serve(&settings),
        Err(error) => fail(&error.message, error.exit),
    }
}

fn serve(settings: &ServerSettings) -> ExitCode {
    // Values, sessions and certificates of such a time would be wrong for good.
    if SystemClock::default().now() == Timestamp::ZERO {
        return fail("the clock of this machine is before 1970: set it, then start again", 1);
    }
    let recent = RecentLogs::default();
    let log = crate::log::start(settings.log_level, settings.log_format, Arc::clone(&recent.log));
    // First of all: later opens of files and sockets depend on this limit.
    let files_max = crate::descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads(settings))
        .max_blocking_threads(FILE_THREADS_MAX)
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => {
            runtime.block_on(crate::serve::serve(settings, files_max, recent)).map_err(|failure| failure.to_string())
        }
        Err(error) => Err(format!("cannot start threads: {error}")),
    };
    // The waiting log lines come before the last line, which gives the reason of the end.
    drop(log);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => fail(&line, 1),
    }
}

fn inspect(command: &InspectCommand) -> ExitCode {
    match crate::inspect::run(command, &mut std::io::stdout().lock()) {
        Ok(exit) => ExitCode::from(exit),
        Err(line) => fail(&line, crate::inspect::EXIT_FAILED),
    }
}

fn check_health(target: &HealthTarget) -> ExitCode {
    match crate::healthcheck::run(target) {
        Ok(line) => {
            let _ = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(line) => fail(&line, 1),
    }
}

fn threads(settings: &ServerSettings) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match (settings.threads, settings.engine) {
        (0, EngineKind::Cassandra) => cores,
        (0, _) => cores.max(WORKERS_MIN),
        (configured, _) => configured,
    }
}

fn fail(line: &str, exit: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "larder: {line}");
    ExitCode::from(exit)
}
