//! The pool of workers: two lanes, so that a client's sources never take the workers of hooks. Within a lane clients have workers in
//! turn, and fewer than there are.
//!
//! Calls that no client waits for leave one worker of the named lane to the others; of a lane of one they have a lane beside it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use larder_admission::{FairBudget, FairTurns, HeldTurn, TurnLimits};
use larder_core::{ScriptArguments, ScriptCall, ScriptError, ScriptFunction, Scripts};
use larder_rows::Timestamp;
use larder_rows::text::beginning;
use larder_store::{Clock, RateLimitedLog};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::frame::{self, FrameKind};
use crate::module_set::ModuleSet;
use crate::modules::{fingerprint, read_modules};
use crate::script_log::ScriptLog;
use crate::script_result::parse_result;
use crate::time_slices::{Overruns, TimeSlices};
use crate::worker::CALL_HEAD_MAX;
use crate::worker_process::{
    CLIENT_CALLS_MAX, ERROR_BYTES_MAX, READY_TIMEOUT, START_TIMEOUT, ScriptLimits, WAITING_BYTES_MAX, WorkerCommand,
    WorkerProcess,
};

/// How often the folder of modules is looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of one unit of waiting arguments.
const WAITING_UNIT: usize = 1024;
/// Most bytes of a worker's first report.
const REPORT_BYTES_MAX: usize = 16 << 20;

/// The client of the first worker.
const SERVER: &str = "";

static START_FAILED: RateLimitedLog = RateLimitedLog::new();

/// Settings of a pool.
#[derive(Debug, Clone)]
pub struct ScriptSettings {
    /// The folder of modules.
    pub dir: Option<PathBuf>,
    /// Most workers of each lane.
    pub workers: usize,
    /// Bounds of calls.
    pub limits: ScriptLimits,
    /// The program of a worker.
    pub command: WorkerCommand,
}

/// Runs scripts in worker processes, which it starts, keeps and replaces.
pub struct ScriptPool {
    inner: Arc<PoolInner>,
    /// Ends with the pool.
    watch: Option<AbortHandle>,
}

struct PoolInner {
    settings: ScriptSettings,
    clock: Arc<dyn Clock>,
    handle: Handle,
    modules: RwLock<Arc<ModuleSet>>,
    /// Held by a reload: two at once could leave the older files in use.
    reloading: Mutex<()>,
    named: Lane,
    sources: Lane,
    /// For calls in the background, where `named` has one worker.
    background: Lane,
    /// Calls in the background that may have a worker or wait in a lane.
    background_calls: Semaphore,
    waiting_bytes: FairBudget<Arc<str>>,
    slices: TimeSlices,
    log: ScriptLog,
}

/// Workers for one kind of call.
struct Lane {
    /// One for each worker that runs. No client has all of them, if there are more.
    turns: FairTurns<Arc<str>>,
    /// Of its own clients: a user may have the name of a bucket.
    overruns: Overruns,
    /// Workers without a call, the one that rested longest first.
    idle: Mutex<VecDeque<WorkerProcess>>,
}

impl Lane {
    fn new(workers: usize) -> Self {
        let limits = TurnLimits { at_once: workers, per_source: workers.saturating_sub(1), waiting: CLIENT_CALLS_MAX };
        Self { turns: FairTurns::new(limits), overruns: Overruns::default(), idle: Mutex::new(VecDeque::new()) }
    }
}

impl ScriptPool {
    /// Reads the modules, starts the first worker, and looks at the folder each second from then on.
    ///
    /// # Errors
    /// The folder or file that cannot be read, as one line. A module with an error of JavaScript is logged only.
    pub fn start(settings: ScriptSettings, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let seen = settings.dir.as_deref().and_then(fingerprint);
        let modules = read_modules(settings.dir.as_deref())?;
        let modules = ModuleSet::new(1, modules, &settings.limits).map_err(|error| error.to_string())?;
        let slices = TimeSlices::start().map_err(|error| error.to_string())?;
        let inner = Arc::new(PoolInner {
            handle: Handle::current(),
            modules: RwLock::new(Arc::new(modules)),
            reloading: Mutex::new(()),
            named: Lane::new(settings.workers),
            sources: Lane::new(settings.workers),
            background: Lane::new(1),
            background_calls: Semaphore::new(settings.workers.saturating_sub(1).max(1)),
            waiting_bytes: FairBudget::new(WAITING_BYTES_MAX / WAITING_UNIT),
            slices,
            log: ScriptLog::default(),
            settings,
            clock,
        });
        let watch = inner.settings.dir.is_some().then(|| {
            let inner = Arc::clone(&inner);
            tokio::spawn(watch(inner, seen)).abort_handle()
        });
        Ok(Self { inner, watch })
    }
}

impl Drop for ScriptPool {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

#[async_trait]
impl Scripts for ScriptPool {
    async fn call(&self, call: ScriptCall) -> Result<Value, ScriptError> {
        let lane = match &call.function {
            ScriptFunction::Named(_) => &self.inner.named,
            ScriptFunction::Source(_) => &self.inner.sources,
        };
        self.inner.call(lane, call).await
    }

    async fn call_in_background(&self, call: ScriptCall) -> Result<Value, ScriptError> {
        let inner = &self.inner;
        // Before the lane: calls that wait here stand in front of no other.
        let permit = timeout_at(call.deadline, inner.background_calls.acquire()).await;
        let _permit = permit.ok().and_then(Result::ok).ok_or(ScriptError::Unavailable)?;
        let lane = match &call.function {
            ScriptFunction::Named(_) if inner.settings.workers > 1 => &inner.named,
            ScriptFunction::Named(_) => &inner.background,
            ScriptFunction::Source(_) => &inner.sources,
        };
        inner.call(lane, call).await
    }

    fn reload(&self) -> Result<usize, String> {
        self.inner.reload()
    }

    fn has_function(&self, name: &str) -> Option<bool> {
        self.inner.modules.read().has_function(name)
    }
}

impl PoolInner {
    async fn call(&self, lane: &Lane, call: ScriptCall) -> Result<Value, ScriptError> {
        let ScriptCall { client, function, arguments, deadline } = call;
        if lane.overruns.refuses(&client, Instant::now()) {
            return Err(ScriptError::Unavailable);
        }
        let (kind, function) = match function {
            ScriptFunction::Named(name) => (FrameKind::CallNamed, name),
            ScriptFunction::Source(source) => (FrameKind::CallSource, source),
        };
        let payload = call_payload(&function, self.clock.now(), &arguments);
        drop(arguments);
        let frame = frame::encode(kind, &payload).map_err(|_| ScriptError::TooLarge)?;
        drop(payload);
        if frame.len() > self.settings.limits.arguments || function.len() > CALL_HEAD_MAX / 8 {
            return Err(ScriptError::TooLarge);
        }
        let units = frame.len().div_ceil(WAITING_UNIT);
        let waiting = self.waiting_bytes.try_take(&client, units).ok_or(ScriptError::Unavailable)?;
        let turn = timeout_at(deadline, lane.turns.take(Arc::clone(&client))).await;
        let turn = turn.ok().and_then(Result::ok).ok_or(ScriptError::Unavailable)?;
        // While it waited, the calls before it may have run too long.
        if Instant::now() >= deadline || lane.overruns.refuses(&client, Instant::now()) {
            return Err(ScriptError::Unavailable);
        }
        let worker = self.worker(lane).await.ok_or(ScriptError::Unavailable)?;
        let result = self.run(lane, worker, &frame, turn).await;
        drop(waiting);
        lane.overruns.note(&client, matches!(result, Err(ScriptError::TimedOut)), Instant::now());
        match result {
            Err(ScriptError::NoSuchFunction(_)) => Err(ScriptError::NoSuchFunction(function)),
            result => result,
        }
    }

    /// A worker of the lane that is ready and has the modules in use: an idle one, or a new one.
    async fn worker(&self, lane: &Lane) -> Option<WorkerProcess> {
        loop {
            let modules = Arc::clone(&self.modules.read());
            let idle = lane.idle.lock().pop_front();
            let (worker, is_ready) = match idle {
                // One that died, or that takes too long to get ready, fails no call: another is started.
                Some(mut worker) => {
                    let ready = worker.generation == modules.generation
                        && matches!(timeout(READY_TIMEOUT, worker.ready()).await, Ok(Ok(_)));
                    (worker, ready)
                }
                None => (self.start_worker(&modules).await?, true),
            };
            // Race: after a reload returned, no call runs the code before it: the modules may have changed since [invariant 140].
            if is_ready && worker.generation == self.modules.read().generation {
                return Some(worker);
            }
            worker.kill().await;
        }
    }

    async fn start_worker(&self, modules: &ModuleSet) -> Option<WorkerProcess> {
        let started = launch(&self.settings, modules).await;
        started
            .inspect_err(|error| {
                if let Some(line) = START_FAILED.admit(self.clock.monotonic()) {
                    let left_out = line.left_out;
                    tracing::error!(%error, left_out, "script worker failed to start: calls of scripts fail");
                }
            })
            .ok()
    }

    /// Makes the call. The worker goes back to its lane, or is killed where the call did not end by itself. A caller that goes
    /// away drops this future, and the worker with it.
    async fn run(
        &self,
        lane: &Lane,
        mut worker: WorkerProcess,
        frame: &[u8],
        turn: HeldTurn<Arc<str>>,
    ) -> Result<Value, ScriptError> {
        let log = |line: &[u8]| self.log.write(line, self.clock.monotonic());
        let call = self.slices.share(worker.id(), worker.call(frame, log));
        let answer = timeout(self.settings.limits.call, call).await;
        let result = match answer {
            Ok(Ok((FrameKind::Value, json))) => parse_result(json).await,
            Ok(Ok((FrameKind::Threw, text))) => Err(ScriptError::Threw(shown(text))),
            Ok(Ok((FrameKind::NoSuchFunction, _))) => Err(ScriptError::NoSuchFunction(String::new())),
            Ok(Ok((FrameKind::TooLarge, _))) => Err(ScriptError::TooLarge),
            Ok(Ok(_) | Err(_)) => {
                worker.kill().await;
                return Err(ScriptError::Crashed);
            }
            Err(_) => {
                worker.kill().await;
                return Err(ScriptError::TimedOut);
            }
        };
        // Before the turn ends: the next call then finds this worker.
        lane.idle.lock().push_back(worker);
        drop(turn);
        result
    }

    fn reload(&self) -> Result<usize, String> {
        let _one = self.reloading.lock();
        let generation = self.modules.read().generation + 1;
        let modules = read_modules(self.settings.dir.as_deref())?;
        let modules = ModuleSet::new(generation, modules, &self.settings.limits).map_err(|error| error.to_string())?;
        let modules = Arc::new(modules);
        let worker = self.try_modules(&modules)?;
        if let Some(fault) = modules.faults().first() {
            return Err(fault.clone());
        }
        let count = modules.count;
        *self.modules.write() = modules;
        let _old = [&self.sources, &self.background].map(|lane| std::mem::take(&mut *lane.idle.lock()));
        let mut idle = self.named.idle.lock();
        // It takes the place of one of those, so the lane keeps its bound; a lane without idle workers needs none.
        let replaces_one = !idle.is_empty();
        idle.clear();
        idle.extend(Some(worker).filter(|_| replaces_one));
        Ok(count)
    }

    /// Starts a worker with these modules, from a thread that may block.
    fn try_modules(&self, modules: &Arc<ModuleSet>) -> Result<WorkerProcess, String> {
        let (report, reports) = mpsc::channel();
        let (settings, modules) = (self.settings.clone(), Arc::clone(modules));
        self.handle.spawn(async move { report.send(launch(&settings, &modules).await) });
        let started =
            reports.recv_timeout(2 * START_TIMEOUT).map_err(|_| "the server has no time for them".to_owned())?;
        started.map_err(|error| format!("no worker could load them: {error}"))
    }
}

/// Starts a worker and waits until it has loaded the modules.
async fn launch(settings: &ScriptSettings, modules: &ModuleSet) -> io::Result<WorkerProcess> {
    let answer_max = settings.limits.result.max(REPORT_BYTES_MAX);
    let starting = async {
        let ModuleSet { setup, generation, .. } = modules;
        let mut worker = WorkerProcess::start(&settings.command, setup, *generation, answer_max).await?;
        modules.note(&worker.ready().await?);
        Ok(worker)
    };
    timeout(START_TIMEOUT, starting).await?
}

/// Loads the modules again when a file of the folder was added, changed or removed.
async fn watch(inner: Arc<PoolInner>, mut seen: Option<u64>) {
    // The first worker tells which functions there are.
    let modules = Arc::clone(&inner.modules.read());
    // A call that came first has started one.
    if let Ok(_turn) = inner.named.turns.take(SERVER.into()).await
        && inner.named.idle.lock().is_empty()
        && let Some(worker) = inner.start_worker(&modules).await
    {
        inner.named.idle.lock().push_back(worker);
    }
    drop(modules);
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        let task = Arc::clone(&inner);
        let reloaded = tokio::task::spawn_blocking(move || {
            let current = task.settings.dir.as_deref().and_then(fingerprint);
            (current, (current != seen).then(|| task.reload()))
        });
        let Ok((current, reloaded)) = reloaded.await else { return };
        seen = current;
        match reloaded {
            Some(Ok(modules)) => tracing::info!(modules, "modules of --js-dir changed: loaded again"),
            Some(Err(fault)) => tracing::warn!(%fault, "modules of --js-dir changed: the old ones stay in use"),
            None => {}
        }
    }
}

/// The payload of a call; the arguments are JSON already.
fn call_payload(function: &str, now: Timestamp, arguments: &ScriptArguments) -> Vec<u8> {
    let arguments = arguments.json();
    let mut payload = Vec::with_capacity(arguments.len() + function.len() + 64);
    payload.extend_from_slice(b"{\"function\":");
    // Written to memory, which does not fail.
    let _ = serde_json::to_writer(&mut payload, function);
    payload.extend_from_slice(format!(",\"now\":{},\"arguments\":", now.0 / 1000).as_bytes());
    payload.extend_from_slice(arguments);
    payload.push(b'}');
    payload
}

fn shown(text: Vec<u8>) -> String {
    beginning(&String::from_utf8_lossy(&text), ERROR_BYTES_MAX).to_owned()
}
