//! `larder`: reads its settings and serves until it is told to stop; `check` and `repair` look at a data directory instead.

use std::io::Write as _;
use std::process::ExitCode;

use larder_server::inspect::InspectCommand;
use larder_server::settings::cli::{Invocation, read};
use larder_server::settings::{Engine, Settings};

/// Small rows come and go by the hundred thousand a second: the system's allocator takes a fifth of a durable put.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Most threads that read and write files of large bodies: further work waits for one. Each keeps some megabytes of freed
/// memory to itself.
const FILE_THREADS_MAX: usize = 32;
/// Reads of an engine of our own run on the threads of the runtime, so a small machine gets more of them than it has cores.
const WORKERS_MIN: usize = 4;

fn main() -> ExitCode {
    larder_server::private::keep_private();
    let variables: Vec<_> = std::env::vars_os().collect();
    match read(std::env::args_os(), &variables, |file| std::fs::read_to_string(file)) {
        Ok(Invocation::Print(text)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Invocation::Inspect(command)) => inspect(&command),
        Ok(Invocation::Serve(settings)) => run(&settings),
        Err(error) => fail(&error.message, error.exit),
    }
}

fn run(settings: &Settings) -> ExitCode {
    let log = larder_server::log::start(settings.log_level, settings.log_format);
    // Before anything is opened: what is opened then is bounded by it.
    let files_max = larder_server::descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads(settings))
        .max_blocking_threads(FILE_THREADS_MAX)
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => {
            runtime.block_on(larder_server::serve(settings, files_max)).map_err(|failure| failure.to_string())
        }
        Err(error) => Err(format!("cannot start threads: {error}")),
    };
    // Lines that wait are written before the last one, which says why it ended.
    drop(log);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => fail(&line, 1),
    }
}

fn inspect(command: &InspectCommand) -> ExitCode {
    match larder_server::inspect::run(command, &mut std::io::stdout().lock()) {
        Ok(exit) => ExitCode::from(exit),
        Err(line) => fail(&line, larder_server::inspect::EXIT_UNDONE),
    }
}

fn threads(settings: &Settings) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match (settings.threads, settings.engine) {
        (0, Engine::Cassandra) => cores,
        (0, _) => cores.max(WORKERS_MIN),
        (told, _) => told,
    }
}

fn fail(line: &str, exit: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "larder: {line}");
    ExitCode::from(exit)
}
