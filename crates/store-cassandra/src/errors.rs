//! Errors of the driver, as errors of the store.
//!
//! The driver's retry policy: the default one, except for two errors.
//!
//! - A node that reports missing replicas may itself be cut off, so the default policy asks another node. If no other
//!   node is connected, the error of the first node is the useful answer: it says how many replicas are up.
//! - A node forgets the statements of a table whose schema changes. The driver prepares a statement that was forgotten and sends it
//!   again, once; while tables are made, the node may have forgotten it by then. It did not execute it, so it is asked again.

use std::sync::{Arc, OnceLock, Weak};

use larder_store::{Error, Kind};
use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::retry::{
    DefaultRetryPolicy, RequestInfo, RetryDecision, RetryPolicy as Policy, RetrySession as Deciding,
};

/// How often a node that forgot a statement is asked again, beside the driver's own retry.
const FORGOTTEN_RETRIES_MAX: u32 = 20;

/// An error of the driver about `what`, usually a table.
pub(crate) fn from_driver(what: &str, error: ExecutionError) -> Error {
    Error::caused(kind(&error), format_args!("{what}"), error)
}

/// An error of preparing a statement.
pub(crate) fn from_prepare(what: &str, error: PrepareError) -> Error {
    from_driver(what, ExecutionError::PrepareError(error))
}

/// The error of a call whose deadline passed.
pub(crate) fn deadline_passed(what: &str) -> Error {
    Error::new(Kind::TimedOut, format!("{what}: the deadline passed"))
}

/// The error of a write that was sent more than once: one request failed, another one may be executed.
pub(crate) fn in_doubt(what: &str, error: ExecutionError) -> Error {
    Error::caused(Kind::TimedOut, format_args!("{what}: sent more than once, and in doubt"), error)
}

/// The error of an answer with unexpected columns.
pub(crate) fn unreadable(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::caused(Kind::Damaged, format_args!("{what}: an answer that cannot be read"), error)
}

/// Whether replicas gave up a read, most likely over too many tombstones. Protocol 4 does not report the reason.
pub(crate) fn is_read_failure(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::ReadFailure { .. }, _)))
}

/// Whether too few replicas are up: every node would answer the same.
pub(crate) fn is_unavailable(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unavailable { .. }, _)))
}

/// Whether the cluster forbids the statement to this user: waiting does not help.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    let below = error.source.as_ref().and_then(|source| source.downcast_ref::<ExecutionError>());
    matches!(below, Some(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, _))))
}

fn kind(error: &ExecutionError) -> Kind {
    match error {
        ExecutionError::LastAttemptError(attempt) => kind_of_attempt(attempt),
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }) => {
            kind_of_attempt(first_attempt)
        }
        ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_)) => no_node_reachable(),
        ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan => no_node_reachable(),
        ExecutionError::RequestTimeout(_) => Kind::TimedOut,
        _ => Kind::Io,
    }
}

fn kind_of_attempt(error: &RequestAttemptError) -> Kind {
    match error {
        RequestAttemptError::DbError(error, _) => kind_of_database_error(error),
        // The node may have executed the statement.
        RequestAttemptError::BrokenConnectionError(_) => Kind::TimedOut,
        // All streams of the connection are in use: a retry may find one.
        RequestAttemptError::UnableToAllocStreamId => Kind::TimedOut,
        _ => Kind::Io,
    }
}

fn kind_of_database_error(error: &DbError) -> Kind {
    match *error {
        DbError::Unavailable { alive, required, .. } => {
            Kind::Unavailable { alive: count(alive), required: count(required) }
        }
        DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. } => Kind::TimedOut,
        DbError::Overloaded | DbError::RateLimitReached { .. } => Kind::TimedOut,
        DbError::IsBootstrapping => no_node_reachable(),
        // The schema changes: a retry may succeed.
        DbError::Unprepared { .. } => Kind::TimedOut,
        // Some replicas may have executed it.
        DbError::WriteFailure { .. } => Kind::TimedOut,
        // A retry may succeed.
        DbError::ReadFailure { received, required, .. } if received < required => {
            Kind::Unavailable { alive: count(received), required: count(required) }
        }
        _ => Kind::Io,
    }
}

/// No node could be reached.
fn no_node_reachable() -> Kind {
    Kind::Unavailable { alive: 0, required: 1 }
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The policy of a session. It needs the session to see the connected nodes, and gets it after the session exists.
#[derive(Debug, Clone, Default)]
pub(crate) struct LarderRetryPolicy {
    session: Arc<OnceLock<Weak<Session>>>,
}

/// The retries of one request.
struct LarderRetrySession {
    usual: Box<dyn Deciding>,
    retry: LarderRetryPolicy,
    /// How often the node forgot the statement.
    forgotten: u32,
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
        let usual = DefaultRetryPolicy::new().new_session();
        Box::new(LarderRetrySession { usual, retry: self.clone(), forgotten: 0 })
    }
}

impl LarderRetrySession {
    /// Whether the node forgot the statement, and is to be asked again.
    fn was_forgotten(&mut self, error: &RequestAttemptError) -> bool {
        let is_forgotten = matches!(error, RequestAttemptError::DbError(DbError::Unprepared { .. }, _));
        self.forgotten += u32::from(is_forgotten);
        is_forgotten && self.forgotten <= FORGOTTEN_RETRIES_MAX
    }
}

impl Deciding for LarderRetrySession {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        if self.was_forgotten(request.error) {
            return RetryDecision::RetrySameTarget(None);
        }
        let misses_replicas = matches!(request.error, RequestAttemptError::DbError(DbError::Unavailable { .. }, _));
        // Asking again would replace the count of live replicas by "no node left".
        if misses_replicas && !self.retry.is_another_connected() {
            return RetryDecision::DontRetry;
        }
        self.usual.decide_should_retry(request)
    }

    fn reset(&mut self) {
        self.usual.reset();
        self.forgotten = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    fn database(error: DbError) -> ExecutionError {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, "from the node".into()))
    }

    #[test]
    fn errors_have_the_kind_that_callers_act_on() {
        let consistency = Consistency::Quorum;
        let (received, required, write_type) = (1, 2, WriteType::Simple);
        let cases = [
            (DbError::Unavailable { consistency, required, alive: 1 }, Kind::Unavailable { alive: 1, required: 2 }),
            (DbError::ReadTimeout { consistency, received, required, data_present: true }, Kind::TimedOut),
            (DbError::WriteTimeout { consistency, received, required, write_type }, Kind::TimedOut),
            (DbError::Overloaded, Kind::TimedOut),
            (DbError::IsBootstrapping, Kind::Unavailable { alive: 0, required: 1 }),
            (
                DbError::ReadFailure { consistency, received, required, numfailures: 1, data_present: false },
                Kind::Unavailable { alive: 1, required: 2 },
            ),
            (DbError::Unprepared { statement_id: Vec::new().into() }, Kind::TimedOut),
            (DbError::ServerError, Kind::Io),
            (DbError::Invalid, Kind::Io),
            (DbError::Unauthorized, Kind::Io),
        ];
        for (error, kind) in cases {
            let text = format!("{error:?}");
            assert_eq!(from_driver("objects", database(error)).kind, kind, "{text}");
        }
        assert_eq!(from_driver("objects", ExecutionError::RequestTimeout(Default::default())).kind, Kind::TimedOut);
        assert_eq!(from_driver("objects", ExecutionError::EmptyPlan).kind, Kind::Unavailable { alive: 0, required: 1 });
    }

    #[test]
    fn a_statement_that_a_node_forgot_twice_once_failed_its_request() {
        let usual = DefaultRetryPolicy::new().new_session();
        let mut retries = LarderRetrySession { usual, retry: LarderRetryPolicy::default(), forgotten: 0 };
        let error =
            RequestAttemptError::DbError(DbError::Unprepared { statement_id: Vec::new().into() }, String::new());
        assert!((0..FORGOTTEN_RETRIES_MAX).all(|_| retries.was_forgotten(&error)));
        assert!(!retries.was_forgotten(&error), "a node that forgets it for ever ends the request");
    }

    #[test]
    fn a_forbidden_statement_differs_from_other_errors() {
        assert!(is_forbidden(&from_driver("schema", database(DbError::Unauthorized))));
        assert!(
            !is_forbidden(&from_driver("schema", database(DbError::Invalid)))
                && !is_forbidden(&deadline_passed("schema"))
        );
    }

    #[test]
    fn the_text_names_the_table_and_the_cause() {
        let text = from_driver("objects", database(DbError::Overloaded)).to_string();
        assert!(text.starts_with("objects: ") && text.contains("from the node"), "{text}");
    }
}
