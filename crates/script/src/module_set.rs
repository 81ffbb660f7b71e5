//! The modules in use, as a worker is given them.

use std::collections::HashSet;
use std::io;
use std::sync::OnceLock;

use crate::frame::{self, FrameKind};
use crate::modules::JsModule;
use crate::worker::{LoadedModules, WorkerSetup};
use crate::worker_process::ScriptLimits;

/// One generation of modules.
pub(crate) struct ModuleSet {
    pub(crate) generation: u64,
    /// The number of modules.
    pub(crate) count: usize,
    /// The first frame of each of its workers.
    pub(crate) setup: Vec<u8>,
    /// The report of its first worker.
    loaded: OnceLock<(HashSet<String>, Vec<String>)>,
}

impl ModuleSet {
    pub(crate) fn new(generation: u64, modules: Vec<JsModule>, limits: &ScriptLimits) -> io::Result<Self> {
        let count = modules.len();
        let setup = WorkerSetup {
            heap: limits.heap,
            stack: limits.stack,
            arguments: limits.arguments,
            result: limits.result,
            cpu_seconds: limits.call.as_secs() + 1,
            modules,
        };
        let setup = frame::encode(FrameKind::Setup, &serde_json::to_vec(&setup)?)?;
        Ok(Self { generation, count, setup, loaded: OnceLock::new() })
    }

    /// Notes what a worker reported. The first report logs a line for each module that failed, and for a worker without a
    /// filter of system calls.
    pub(crate) fn note(&self, report: &[u8]) {
        let report: LoadedModules = serde_json::from_slice(report).unwrap_or_default();
        let loaded = (report.functions.into_iter().collect(), report.faults);
        if self.loaded.set(loaded).is_ok() {
            for fault in self.faults() {
                tracing::warn!(%fault, "module of --js-dir failed to load: hooks that need it refuse writes");
            }
            if let Some(cause) = report.unfiltered {
                tracing::warn!(cause, "system calls of script workers not filtered: limits alone confine them");
            }
        }
    }

    /// The modules that failed, each with its error.
    pub(crate) fn faults(&self) -> &[String] {
        self.loaded.get().map_or(&[], |(_, faults)| faults)
    }

    /// Whether it has this function; `None` before a worker reported.
    pub(crate) fn has_function(&self, name: &str) -> Option<bool> {
        self.loaded.get().map(|(functions, _)| functions.contains(name))
    }
}
