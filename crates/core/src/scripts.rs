//! The port to the JavaScript engine: commit hooks and MapReduce call functions through it.
//!
//! The engine runs scripts in processes of its own, so a script that loops or crashes ends its own call alone.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
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
    pub fn of_json(text: Vec<u8>) -> Self {
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
