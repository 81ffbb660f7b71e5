//! The postcommit queue: each object's hooks run in their order after its write. A failure is logged and counted, and changes
//! nothing for the client.

use std::sync::Arc;
use std::time::Duration;

use larder_model::props::Hook;
use tokio::time::Instant;

use super::precommit::{HookFailure, refusal_in};
use super::{CommitHooks, HookMemory, HookedObject, name_of};
use crate::metrics::Event;

/// How long one hook may wait for a worker and run.
const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

impl CommitHooks {
    /// Queues the hooks of a written object. A full queue skips them.
    pub(crate) fn after(self: &Arc<Self>, hooks: Vec<Hook>, object: HookedObject, memory: HookMemory) {
        if hooks.is_empty() {
            return;
        }
        let Ok(place) = Arc::clone(&self.postcommit).try_acquire_owned() else {
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
        let returned = self.call(name, vec![object.to_json()?], Instant::now() + HOOK_TIMEOUT).await;
        match returned {
            Ok(returned) => match refusal_in(&returned) {
                Some(refusal) => Err(refusal.erlang()),
                None => Ok(()),
            },
            Err(HookFailure::ForTheMoment) => Err("no script worker was free".into()),
            Err(HookFailure::Text(failure)) => Err(failure),
        }
    }

    fn count_failure(&self, hook: &Hook, object: &HookedObject, failure: &str) {
        self.core.metrics.count_event(Event::PostcommitFailed);
        self.log_failure(&name_of(hook), object, failure, "the object is written all the same");
    }
}
