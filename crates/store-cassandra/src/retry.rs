//! The driver's retry policy: the default one, except for one error.
//!
//! A node that reports missing replicas may itself be cut off, so the default policy asks another node. If no other
//! node is connected, the error of the first node is the useful answer: it says how many replicas are up.

use std::sync::{Arc, OnceLock, Weak};

use scylla::client::session::Session;
use scylla::errors::{DbError, RequestAttemptError};
use scylla::policies::retry::{
    DefaultRetryPolicy, RequestInfo, RetryDecision, RetryPolicy as Policy, RetrySession as Deciding,
};

/// The policy of a session. It needs the session to see the connected nodes, and gets it after the session exists.
#[derive(Debug, Clone, Default)]
pub(crate) struct LarderRetryPolicy {
    session: Arc<OnceLock<Weak<Session>>>,
}

/// The retries of one request.
struct LarderRetrySession {
    usual: Box<dyn Deciding>,
    retry: LarderRetryPolicy,
}

impl LarderRetryPolicy {
    /// Sets the session whose nodes are checked.
    pub(crate) fn watch(&self, session: &Arc<Session>) {
        // Set once, by the caller that created both.
        let _ = self.session.set(Arc::downgrade(session));
    }

    fn is_another_connected(&self) -> bool {
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return true };
        session.get_cluster_state().get_nodes_info().iter().filter(|node| node.is_connected()).count() > 1
    }
}

impl Policy for LarderRetryPolicy {
    fn new_session(&self) -> Box<dyn Deciding> {
        Box::new(LarderRetrySession { usual: DefaultRetryPolicy::new().new_session(), retry: self.clone() })
    }
}

impl Deciding for LarderRetrySession {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        let misses_replicas = matches!(request.error, RequestAttemptError::DbError(DbError::Unavailable { .. }, _));
        // Asking again would replace the count of live replicas by "no node left".
        if misses_replicas && !self.retry.is_another_connected() {
            return RetryDecision::DontRetry;
        }
        self.usual.decide_should_retry(request)
    }

    fn reset(&mut self) {
        self.usual.reset();
    }
}
