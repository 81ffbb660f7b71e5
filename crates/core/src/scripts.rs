//! The port to the JavaScript engine: commit hooks and MapReduce call functions through it.
//!
//! The engine runs scripts in processes of its own, so a script that loops or crashes ends its own call alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use larder_rows::Timestamp;
use larder_rows::limits::JOBS_MAX;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// The function of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptFunction {
    /// A function of the loaded modules or of Riak's helpers, such as `Module.function`.
    Named(String),
    /// The source of a function expression, such as `function(value) { return [value.key]; }`.
    Source(String),
}

/// One call of a script.
#[derive(Debug, Clone)]
pub struct ScriptCall {
    /// Whom it serves, such as a bucket or a user: these have workers in turn.
    pub client: Arc<str>,
    /// The function.
    pub function: ScriptFunction,
    /// Its arguments.
    pub arguments: ScriptArguments,
    /// How long the call may wait for a worker. From then on the engine's own limit counts: no deadline of a client kills one.
    pub deadline: Instant,
}

/// The arguments of a call, as the text of a JSON array: the engine parses it, and this process makes no tree of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptArguments(Vec<u8>);

impl ScriptArguments {
    /// These arguments.
    #[must_use]
    pub fn new(arguments: &[Value]) -> Self {
        // Values in memory are written to memory, which does not fail.
        Self(serde_json::to_vec(arguments).unwrap_or_default())
    }

    /// Arguments that are the text of a JSON array already.
    #[must_use]
    pub fn from_json(text: Vec<u8>) -> Self {
        Self(text)
    }

    /// The text of the array.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.0
    }
}

/// Runs scripts.
#[async_trait]
pub trait Scripts: Send + Sync {
    /// Calls a function and returns its result as JSON; `undefined` is null.
    ///
    /// # Errors
    /// [`ScriptError`]. No effect remains of a failed call.
    async fn call(&self, call: ScriptCall) -> Result<Value, ScriptError>;

    /// As [`Self::call`], for work that no client waits for: it leaves a worker to the calls of requests.
    ///
    /// # Errors
    /// As [`Self::call`].
    async fn call_in_background(&self, call: ScriptCall) -> Result<Value, ScriptError> {
        self.call(call).await
    }

    /// Reads the modules again and returns their number. It blocks for seconds at most, so async code calls it on a blocking
    /// thread. The modules in use stay when it fails.
    ///
    /// # Errors
    /// The file and its fault, as one line.
    fn reload(&self) -> Result<usize, String>;

    /// Whether the modules or Riak's helpers have this function; `None` while no worker has loaded them.
    fn has_function(&self, name: &str) -> Option<bool>;
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// No worker is free before the deadline, none can be started, or too many calls of this client wait or ran too long.
    #[error("no script worker is available")]
    Unavailable,
    /// No module has a function of this name.
    #[error("no script function is named {0}")]
    NoSuchFunction(String),
    /// The script threw this, or its source is no function.
    #[error("the script failed: {0}")]
    Threw(String),
    /// The deadline passed; the worker was killed.
    #[error("the script ran too long")]
    TimedOut,
    /// Arguments or result have more bytes than a call may have.
    #[error("the script's arguments or result are too large")]
    TooLarge,
    /// The worker died, such as of its memory limit.
    #[error("the script's worker died")]
    Crashed,
}

/// A job as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Its number on this gateway.
    pub id: u64,
    /// When it began.
    pub begun: Timestamp,
    /// Its inputs and phases in a few words.
    pub summary: String,
    /// Inputs that it has taken.
    pub inputs: u64,
}

#[derive(Debug)]
struct JobEntry {
    begun: Timestamp,
    summary: String,
    client: Arc<str>,
    inputs: Arc<AtomicU64>,
    cancel: watch::Sender<bool>,
}

/// All jobs that run.
#[derive(Debug, Default)]
pub struct RunningJobs {
    jobs: Mutex<BTreeMap<u64, JobEntry>>,
    last: AtomicU64,
}

/// The place of one job among those that run, until it is dropped.
#[derive(Debug)]
pub struct JobTicket {
    jobs: Arc<RunningJobs>,
    id: u64,
    inputs: Arc<AtomicU64>,
    cancelled: watch::Receiver<bool>,
}

impl RunningJobs {
    /// The jobs, oldest first.
    pub fn list(&self) -> Vec<RunningJob> {
        let shown = |(id, entry): (&u64, &JobEntry)| RunningJob {
            id: *id,
            begun: entry.begun,
            summary: entry.summary.clone(),
            inputs: entry.inputs.load(Ordering::Relaxed),
        };
        self.jobs.lock().iter().map(shown).collect()
    }

    /// Ends a job; its client gets an error. `false`: no such job runs.
    pub fn cancel(&self, id: u64) -> bool {
        self.jobs.lock().get(&id).is_some_and(|entry| entry.cancel.send(true).is_ok())
    }

    /// Takes a place for a job of this client; `None`: there is none, or the client has half of them.
    pub fn begin(self: &Arc<Self>, begun: Timestamp, summary: String, client: &Arc<str>) -> Option<JobTicket> {
        let mut jobs = self.jobs.lock();
        let of_client = jobs.values().filter(|job| job.client == *client).count();
        if jobs.len() >= JOBS_MAX || of_client >= JOBS_MAX / 2 {
            return None;
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (cancel, cancelled) = watch::channel(false);
        let inputs = Arc::new(AtomicU64::new(0));
        jobs.insert(id, JobEntry { begun, summary, client: Arc::clone(client), inputs: Arc::clone(&inputs), cancel });
        Some(JobTicket { jobs: Arc::clone(self), id, inputs, cancelled })
    }
}

impl JobTicket {
    /// Counts inputs that the job took.
    pub fn count_inputs(&self, inputs: usize) {
        self.inputs.fetch_add(inputs as u64, Ordering::Relaxed);
    }

    /// Returns when the job is cancelled.
    pub fn cancelled(&self) -> impl Future<Output = ()> + use<> {
        let mut cancelled = self.cancelled.clone();
        async move {
            if cancelled.wait_for(|is| *is).await.is_err() {
                // The place is gone, and with it all who could cancel the job.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.jobs.jobs.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_is_listed_until_it_is_dropped_and_can_be_cancelled() {
        let jobs = Arc::new(RunningJobs::default());
        let first = jobs.begin(Timestamp(5), "b".into(), &"x".into()).unwrap();
        let second = jobs.begin(Timestamp(6), "c".into(), &"x".into()).unwrap();
        first.count_inputs(3);
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].inputs, listed[1].begun), (2, 1, 3, Timestamp(6)));
        drop(first);
        assert!(!jobs.cancel(1), "it has ended");
        assert!(jobs.cancel(2));
        second.cancelled().await;
        drop(second);
        assert_eq!(jobs.list(), []);
    }

    #[test]
    fn places_are_bounded_and_no_client_has_all() {
        let jobs = Arc::new(RunningJobs::default());
        let begin = |client: &str| jobs.begin(Timestamp(1), String::new(), &client.into());
        let taken: Vec<_> = std::iter::from_fn(|| begin("a")).collect();
        assert_eq!(taken.len(), JOBS_MAX / 2);
        let others: Vec<_> = std::iter::from_fn(|| begin("b")).collect();
        assert!(others.len() == JOBS_MAX / 2 && begin("c").is_none());
        drop(taken);
        assert!(begin("c").is_some() && begin("b").is_none());
    }
}
