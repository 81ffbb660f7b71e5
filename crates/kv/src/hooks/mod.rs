//! Commit hooks: precommit hooks see, change or refuse an object before its write; postcommit hooks see it after.
//!
//! ```text
//! put, delete ──> precommit, in list order: the next hook sees the change, the first refusal ends it ──> write ──> answer
//!                 JavaScript of --js-dir through the port `Scripts`, or built in                            ├──> postcommit queue
//!                                                                                                         └──> outbox
//! ```
//! A put in a bucket without hooks checks two flags and nothing else. Buckets of data types refuse hooks, and `write_once`
//! ones do not run them, as in Riak.

mod object;
mod postcommit;
mod precommit;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_admission::{FairBudget, HeldUnits};
use larder_core::body::{ByteStream, next};
use larder_core::node_context::NodeContext;
use larder_core::rules::props::{Hook, WebhookUrl};
use larder_core::{Error, Result};
use larder_rows::address::BucketAddress;
use larder_store::RateLimitedLog;
use tokio::time::{Instant, timeout_at};

use larder_core::outbox::Outbox;

pub(crate) use object::HookedObject;
pub(crate) use postcommit::HookedWrite;

/// Largest body in a bucket with hooks: it is in memory, and a script gets it as JSON.
pub const HOOKED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of bodies that precommit hooks hold, of all requests together. A bucket has no more of them than are free, as of all below.
const HELD_BYTES_MAX: usize = 256 << 20;
/// Bytes of bodies in the postcommit queue. Apart from the former: no put waits for postcommit hooks of others.
const POSTCOMMIT_BYTES_MAX: usize = 128 << 20;
/// Copies of a body that waits for its postcommit hooks: the bytes, and the text in JSON.
const POSTCOMMIT_COPIES: u64 = 2;
/// Copies of a body while a script sees it: the bytes, the text in JSON, the frame to the worker, and the returned text.
const HELD_COPIES: u64 = 4;
/// Bytes of one unit of them.
const HELD_UNIT: u64 = 1024;
/// Objects that wait for postcommit hooks or are in one.
const POSTCOMMIT_MAX: usize = 1024;

static HOOK_FAILED: RateLimitedLog = RateLimitedLog::new();

/// The hooks of a bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct BucketHooks {
    pub(crate) precommit: Vec<Hook>,
    /// Scripts.
    pub(crate) postcommit: Vec<Hook>,
    /// The addresses of the built-in postcommit hooks.
    pub(crate) webhooks: Vec<WebhookUrl>,
}

/// Runs the hooks of a gateway.
pub(crate) struct CommitHooks {
    context: Arc<NodeContext>,
    pub(crate) outbox: Arc<Outbox>,
    held: FairBudget<BucketAddress>,
    postcommit: FairBudget<BucketAddress>,
    postcommit_bytes: FairBudget<BucketAddress>,
}

/// The memory of an object that hooks hold.
pub(crate) type HookMemory = HeldUnits<BucketAddress>;

impl CommitHooks {
    pub(crate) fn new(context: Arc<NodeContext>, outbox: Arc<Outbox>) -> Self {
        let of_bytes = |bytes: usize| FairBudget::new(bytes / HELD_UNIT as usize);
        let (held, postcommit_bytes) = (of_bytes(HELD_BYTES_MAX), of_bytes(POSTCOMMIT_BYTES_MAX));
        Self { context, outbox, held, postcommit: FairBudget::new(POSTCOMMIT_MAX), postcommit_bytes }
    }

    /// Waits for memory for a body of this length in this bucket.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Overloaded`] when there is none before the deadline.
    pub(crate) async fn hold(&self, bucket: &BucketAddress, bytes: u64, deadline: Instant) -> Result<HookMemory> {
        check_length(bytes)?;
        let units = memory_units(HELD_COPIES * bytes);
        let held = timeout_at(deadline, self.held.take(bucket, units)).await;
        held.map_err(|_| Error::Overloaded { retry_after: 1 })
    }

    /// Receives a body. It takes memory as it arrives, so one that stalls keeps what it sent.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Overloaded`], and a body that breaks off.
    pub(crate) async fn receive(
        &self,
        bucket: &BucketAddress,
        stream: &mut dyn ByteStream,
        length: Option<u64>,
        deadline: Instant,
    ) -> Result<(Bytes, HookMemory)> {
        check_length(length.unwrap_or(0))?;
        let mut memory = self.hold(bucket, 0, deadline).await?;
        let mut body = BytesMut::new();
        while let Some(piece) = next(stream).await? {
            body.extend_from_slice(&piece);
            let bytes = body.len() as u64;
            check_length(bytes)?;
            Self::hold_more(&mut memory, HELD_COPIES * bytes)?;
        }
        Ok((body.freeze(), memory))
    }

    /// Takes memory up to so many bytes.
    ///
    /// # Errors
    /// [`Error::Overloaded`] at once: a request that holds memory must not wait for more.
    pub(crate) fn hold_more(memory: &mut HookMemory, bytes: u64) -> Result<()> {
        let more = memory_units(bytes).saturating_sub(memory.units());
        if memory.try_grow(more) { Ok(()) } else { Err(Error::Overloaded { retry_after: 1 }) }
    }

    /// Waits until the postcommit queue is empty, `most` at most.
    pub(crate) async fn drain(&self, most: Duration) {
        if tokio::time::timeout(most, self.postcommit.wait_until_free()).await.is_err() {
            let waiting = self.postcommit.held();
            tracing::warn!(waiting, "postcommit hooks not run: the server ends");
        }
    }

    /// Logs the failure of a hook, with its consequence.
    fn log_failure(&self, hook: &str, object: &HookedObject, failure: &str, consequence: &'static str) {
        if let Some(line) = HOOK_FAILED.admit(self.context.monotonic()) {
            let bucket = String::from_utf8_lossy(&object.address.bucket.bucket);
            let key = String::from_utf8_lossy(&object.address.key);
            let left_out = line.left_out;
            tracing::warn!(hook, ?bucket, ?key, failure, left_out, "commit hook failed: {consequence}");
        }
    }
}

fn check_length(bytes: u64) -> Result<()> {
    if bytes > HOOKED_BYTES_MAX { Err(Error::TooLarge { bytes, max: HOOKED_BYTES_MAX }) } else { Ok(()) }
}

/// Units of this many bytes.
fn memory_units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(HELD_UNIT).max(1)).unwrap_or(usize::MAX)
}

/// The name of a hook for logs and error terms.
fn hook_name(hook: &Hook) -> String {
    match hook {
        Hook::Text(name) | Hook::Named(name) => name.clone(),
        Hook::ModFun(function) | Hook::WithArgument { function, .. } => {
            format!("{}:{}", function.module, function.function)
        }
    }
}
