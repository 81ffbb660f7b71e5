//! The pool of script workers, as the settings want it. A worker is this program again.

use std::sync::Arc;

use larder_core::Scripts;
use larder_script::{ScriptLimits, ScriptPool, ScriptSettings, WorkerCommand};
use larder_store::Clock;

use crate::failure::ServerFailure;
use crate::settings::{ServerSettings, table};

/// The word on the command line that makes this program a worker.
pub const WORKER_WORD: &str = "script-worker";

/// Reads the modules; workers start with the first call, or at once where there are modules.
pub(crate) fn start_scripts(
    settings: &ServerSettings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Scripts>, ServerFailure> {
    let limits = ScriptLimits {
        call: settings.js_timeout,
        heap: usize::try_from(settings.js_memory).unwrap_or(usize::MAX),
        ..ScriptLimits::default()
    };
    // Also after the file of the program was replaced by another version.
    let command = WorkerCommand { program: "/proc/self/exe".into(), arguments: vec![WORKER_WORD.into()] };
    let settings = ScriptSettings { dir: settings.js_dir.clone(), workers: settings.js_workers, limits, command };
    let failed = |fault: String| ServerFailure(format!("cannot read the modules of {}: {fault}", table::JS_DIR.flag()));
    Ok(Arc::new(ScriptPool::start(settings, clock).map_err(failed)?))
}
