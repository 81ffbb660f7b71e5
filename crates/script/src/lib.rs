//! JavaScript for commit hooks and MapReduce: QuickJS in processes of their own, never in the server.
//!
//! ```text
//! ScriptPool ──> WorkerProcess ──pipe──> larder script-worker: confinement ─> JsEngine
//!   lanes: named functions, sources        frames: setup, calls, log lines, results
//! ```
//! QuickJS calls its interrupt handler between instructions only, so a loop inside a native function ends by a kill alone. The
//! pool kills a worker at the deadline of its call and starts another. A worker has no file, no socket, no environment and no
//! clock; its memory, its stack and its CPU time are bounded by the engine and by the kernel.

mod frame;
mod module_set;
mod modules;
mod pool;
mod script_log;
mod script_result;
mod time_slices;
mod worker;
mod worker_process;

pub use pool::{ScriptPool, ScriptSettings};
pub use worker::run_worker;
pub use worker_process::{ScriptLimits, WorkerCommand};
