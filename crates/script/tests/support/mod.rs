//! A pool with a folder of modules, and what its process holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_core::{ScriptArguments, ScriptCall, ScriptError, ScriptFunction, Scripts as _};
use larder_script::{ScriptLimits, ScriptPool, ScriptSettings, WorkerCommand};
use larder_store::SystemClock;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// A pool over modules of a test.
pub(crate) struct TestPool {
    pub(crate) pool: Arc<ScriptPool>,
    pub(crate) dir: tempfile::TempDir,
}

impl TestPool {
    /// A pool with these modules.
    pub(crate) fn with_modules(workers: usize, limit: Duration, modules: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, source) in modules {
            std::fs::write(dir.path().join(name), source).unwrap();
        }
        let limits = ScriptLimits { call: limit, heap: 64 << 20, result: 1 << 20, ..ScriptLimits::default() };
        let command =
            WorkerCommand { program: PathBuf::from(env!("CARGO_BIN_EXE_larder-script-worker")), arguments: vec![] };
        let settings = ScriptSettings { dir: Some(dir.path().to_owned()), workers, limits, command };
        let pool = Arc::new(ScriptPool::start(settings, Arc::new(SystemClock::default())).unwrap());
        Self { pool, dir }
    }

    /// Calls a named function.
    pub(crate) async fn named(&self, name: &str, arguments: Vec<Value>) -> Result<Value, ScriptError> {
        call(&self.pool, ScriptFunction::Named(name.to_owned()), arguments).await
    }
}

/// Calls a function.
pub(crate) async fn call(
    pool: &ScriptPool,
    function: ScriptFunction,
    arguments: Vec<Value>,
) -> Result<Value, ScriptError> {
    let (arguments, deadline) = (ScriptArguments::new(&arguments), Instant::now() + Duration::from_secs(30));
    pool.call(ScriptCall { client: next_client(), function, arguments, deadline }).await
}

static ALONE: Mutex<()> = Mutex::const_new(());

/// Held by each test: the tests of a file share a process, and count its children.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// The processes that this one started.
pub(crate) fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flatten().flat_map(|task| of(task).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The number of open descriptors.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within ten seconds: {what}");
}

/// A client of its own: no call waits for its turn among those of another.
pub(crate) fn next_client() -> Arc<str> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).to_string().into()
}
