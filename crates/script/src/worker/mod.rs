//! The worker process: it reads its setup, confines itself, and then answers one call after another.

mod confinement;
mod engine;
mod schema;

use std::io::{self, Write as _};
use std::process::ExitCode;

use larder_rows::text::beginning;
use serde::{Deserialize, Serialize};

use crate::frame::{self, FrameKind};
use crate::modules::JsModule;
use crate::worker_process::{ERROR_BYTES_MAX, MODULE_BYTES_MAX, THREAD_STACK};
use engine::{CallOutcome, JsEngine};

/// The first frame to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkerSetup {
    pub(crate) heap: usize,
    pub(crate) stack: usize,
    pub(crate) arguments: usize,
    pub(crate) result: usize,
    /// Seconds of CPU that one call may take.
    pub(crate) cpu_seconds: u64,
    pub(crate) modules: Vec<JsModule>,
}

/// The first frame from a worker.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadedModules {
    /// Every function of the modules and of the helpers, by its path.
    pub(crate) functions: Vec<String>,
    /// Modules that failed, each with its error.
    pub(crate) faults: Vec<String>,
    /// Why system calls of the worker are not filtered, if they are not.
    pub(crate) unfiltered: Option<String>,
}

/// Bytes of a call's frame beyond its arguments: the function's name or source, and the time.
pub(crate) const CALL_HEAD_MAX: usize = 1 << 20;
/// Bytes of the setup frame. JSON may escape each byte of a module with six.
const SETUP_BYTES_MAX: usize = 6 * MODULE_BYTES_MAX as usize + (1 << 20);

/// Runs this process as a worker: frames on standard input and output, until the input ends.
pub fn run_worker() -> ExitCode {
    // Before anything else is open.
    if confinement::end_with_server().is_err()
        || confinement::close_inherited().is_err()
        || confinement::ignore_signals().is_err()
    {
        return ExitCode::FAILURE;
    }
    // The first frame comes before the confinement, which depends on it.
    let setup = match frame::read(io::stdin().lock(), SETUP_BYTES_MAX) {
        Ok(Some((FrameKind::Setup, payload))) => serde_json::from_slice::<WorkerSetup>(&payload).ok(),
        _ => None,
    };
    let Some(setup) = setup else { return ExitCode::FAILURE };
    let serving = std::thread::Builder::new().stack_size(THREAD_STACK).spawn(move || serve(&setup));
    if serving.is_err() {
        return ExitCode::FAILURE;
    }
    // The server is gone when the pipe has no writer: this thread then ends the process, whatever the script does.
    confinement::wait_for_hangup(&io::stdin());
    ExitCode::SUCCESS
}

/// Confines the process, loads the modules, answers calls. Its end, also by a panic, ends the process; the pool starts another.
fn serve(setup: &WorkerSetup) {
    let _end = ExitOnDrop;
    if let Err(error) = confinement::confine(setup).and_then(|()| answer_calls(setup)) {
        let _ = writeln!(io::stderr(), "script worker: {error}");
    }
}

/// Ends the process when it is dropped.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        std::process::exit(1);
    }
}

fn answer_calls(setup: &WorkerSetup) -> io::Result<()> {
    // After the confinement, which makes calls that the filter takes away. The limits hold where the kernel has no filter.
    let unfiltered = confinement::forbid().err().map(|error| error.to_string());
    let (mut engine, loaded) = JsEngine::start(setup).map_err(io::Error::other)?;
    let loaded = LoadedModules { unfiltered, ..loaded };
    frame::write(io::stdout().lock(), FrameKind::Ready, &serde_json::to_vec(&loaded)?)?;
    while let Some((kind, payload)) = frame::read(io::stdin().lock(), setup.arguments + CALL_HEAD_MAX)? {
        confinement::allow_cpu(setup.cpu_seconds)?;
        let outcome = match kind {
            FrameKind::CallNamed => engine.call_named(payload),
            FrameKind::CallSource => engine.call_source(payload),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let (kind, payload) = match &outcome {
            CallOutcome::Value(json) if json.len() > setup.result => (FrameKind::TooLarge, ""),
            CallOutcome::Value(json) => (FrameKind::Value, &**json),
            CallOutcome::Threw(text) => (FrameKind::Threw, beginning(text, ERROR_BYTES_MAX)),
            CallOutcome::NoSuchFunction => (FrameKind::NoSuchFunction, ""),
        };
        frame::write(io::stdout().lock(), kind, payload.as_bytes())?;
        // The pool waits for the second frame before the next call: one that the engine ends in between is not lost.
        engine.rest();
        frame::write(io::stdout().lock(), FrameKind::Ready, b"")?;
    }
    Ok(())
}
