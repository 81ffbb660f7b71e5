//! When the driver asks another node: as it does by itself, but for one answer.
//!
//! A node that misses replicas may be the one that is cut off, so another is asked, unless no other is connected: then what this
//! one said, how many replicas are up, is the answer, and not that nobody else could be asked.

use std::sync::{Arc, OnceLock, Weak};

use scylla::client::session::Session;
use scylla::errors::{DbError, RequestAttemptError};
use scylla::policies::retry::{
    DefaultRetryPolicy, RequestInfo, RetryDecision, RetryPolicy as Policy, RetrySession as Deciding,
};

/// The policy of a session, which is told about that once there is one.
#[derive(Clone, Default)]
pub(crate) struct Retry {
    session: Arc<OnceLock<Weak<Session>>>,
}

/// What is decided about one request.
struct Decided {
    usual: Box<dyn Deciding>,
    retry: Retry,
}

impl Retry {
    /// Whose nodes are looked at.
    pub(crate) fn watch(&self, session: &Arc<Session>) {
        // Set once, by who made both.
        let _ = self.session.set(Arc::downgrade(session));
    }

    fn is_another_connected(&self) -> bool {
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return true };
        session.get_cluster_state().get_nodes_info().iter().filter(|node| node.is_connected()).count() > 1
    }
}

impl std::fmt::Debug for Retry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Retry")
    }
}

impl Policy for Retry {
    fn new_session(&self) -> Box<dyn Deciding> {
        Box::new(Decided { usual: DefaultRetryPolicy::new().new_session(), retry: self.clone() })
    }
}

impl Deciding for Decided {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        let misses_replicas = matches!(request.error, RequestAttemptError::DbError(DbError::Unavailable { .. }, _));
        if misses_replicas && !self.retry.is_another_connected() {
            return RetryDecision::DontRetry;
        }
        self.usual.decide_should_retry(request)
    }

    fn reset(&mut self) {
        self.usual.reset();
    }
}
