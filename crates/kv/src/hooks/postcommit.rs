//! The postcommit queue: each object's hooks run in their order after its write. A failure is logged and counted, and changes
//! nothing for the client.

use std::sync::Arc;
use std::time::Duration;

use larder_core::metrics::Event;
use larder_core::rules::props::Hook;
use serde_json::Value;
use tokio::time::Instant;

use super::precommit::{HookFailure, refusal_in};
use super::{CommitHooks, HookMemory, HookedObject, POSTCOMMIT_COPIES, hook_name, memory_units};
use larder_core::outbox::PendingNotices;

/// How long one hook may wait for a worker and run.
const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// A write that precommit hooks let pass, with the postcommit hooks for after its commit.
pub(crate) struct HookedWrite {
    pub(crate) hooks: Vec<Hook>,
    pub(crate) object: HookedObject,
    /// Of the precommit hooks.
    pub(crate) memory: HookMemory,
    /// For webhooks; in the batch of the write.
    pub(crate) notices: PendingNotices,
}

impl CommitHooks {
    /// Queues the hooks of a written object. They are skipped where the queue, or the bucket's share of it, is full.
    pub(crate) fn after(self: &Arc<Self>, written: HookedWrite) {
        let HookedWrite { hooks, object, memory, notices } = written;
        // The deliverer has them from here on; the next put takes the memory.
        drop((notices, memory));
        if hooks.is_empty() {
            return;
        }
        let units = memory_units(POSTCOMMIT_COPIES * object.body().len() as u64);
        let bucket = &object.address.bucket;
        let place = self.postcommit.try_take(bucket, 1);
        let memory = self.postcommit_bytes.try_take(bucket, units);
        let (Some(place), Some(memory)) = (place, memory) else {
            for hook in &hooks {
                self.count_failure(hook, &object, "the queue is full");
            }
            return;
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            for hook in &hooks {
                if let Err(failure) = this.run_after(hook, &object).await {
                    this.count_failure(hook, &object, &failure);
                }
            }
            drop((place, memory));
        });
    }

    async fn run_after(&self, hook: &Hook, object: &HookedObject) -> Result<(), String> {
        let (Hook::Text(name) | Hook::Named(name)) = hook else { return Err("it is not built in".into()) };
        let called = self.call_after(name, object).await;
        match called {
            Ok(returned) => match refusal_in(&returned) {
                Some(refusal) => Err(refusal.erlang()),
                None => Ok(()),
            },
            Err(HookFailure::ForTheMoment | HookFailure::PastDeadline) => Err("no script worker was free".into()),
            Err(HookFailure::Text(failure)) => Err(failure),
        }
    }

    /// Calls a script behind the calls of requests: a worker is left for precommit hooks, however long this one takes.
    async fn call_after(&self, name: &str, object: &HookedObject) -> Result<Value, HookFailure> {
        let deadline = Instant::now() + HOOK_TIMEOUT;
        let called = self.scripts()?.call_in_background(object.script(name, &[object.to_json()?], deadline)).await;
        called.map_err(|error| HookFailure::from_script_error(&error, deadline))
    }

    fn count_failure(&self, hook: &Hook, object: &HookedObject, failure: &str) {
        self.context.metrics.count_event(Event::PostcommitFailed);
        self.log_failure(&hook_name(hook), object, failure, "the object is written all the same");
    }
}
