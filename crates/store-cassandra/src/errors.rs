//! What the driver reports, as what the caller can do next.

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

use larder_store::{Error, Kind};

/// An error of the driver, while doing `what`: a table, mostly.
pub(crate) fn of(what: &str, error: ExecutionError) -> Error {
    Error::caused(kind(&error), format_args!("{what}"), error)
}

/// An error of preparing a statement.
pub(crate) fn of_prepare(what: &str, error: PrepareError) -> Error {
    of(what, ExecutionError::PrepareError(error))
}

/// The deadline passed.
pub(crate) fn late(what: &str) -> Error {
    Error::new(Kind::TimedOut, format!("{what}: the deadline passed"))
}

/// A write was sent more than once and one answer was an error: another one may be carried out.
pub(crate) fn in_doubt(what: &str, error: ExecutionError) -> Error {
    Error::caused(Kind::TimedOut, format_args!("{what}: sent more than once, and in doubt"), error)
}

/// What came back is not what was asked for.
pub(crate) fn unreadable(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::caused(Kind::Damaged, format_args!("{what}: an answer that cannot be read"), error)
}

/// Whether replicas gave a read up: over too many tombstones, most likely. Protocol 4 does not say why.
pub(crate) fn is_read_failure(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::ReadFailure { .. }, _)))
}

/// Whether too few replicas are up: each node would answer the same.
pub(crate) fn is_unavailable(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unavailable { .. }, _)))
}

/// Whether the cluster does not allow it to this user: waiting does not mend that.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    let below = error.source.as_ref().and_then(|source| source.downcast_ref::<ExecutionError>());
    matches!(below, Some(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, _))))
}

fn kind(error: &ExecutionError) -> Kind {
    match error {
        ExecutionError::LastAttemptError(attempt) => of_attempt(attempt),
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed { first_attempt }) => of_attempt(first_attempt),
        ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_)) => nobody(),
        ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan => nobody(),
        ExecutionError::RequestTimeout(_) => Kind::TimedOut,
        _ => Kind::Io,
    }
}

fn of_attempt(error: &RequestAttemptError) -> Kind {
    match error {
        RequestAttemptError::DbError(error, _) => of_database(error),
        // It may have been done, or not.
        RequestAttemptError::BrokenConnectionError(_) => Kind::TimedOut,
        RequestAttemptError::UnableToAllocStreamId => Kind::TimedOut,
        _ => Kind::Io,
    }
}

fn of_database(error: &DbError) -> Kind {
    match *error {
        DbError::Unavailable { alive, required, .. } => {
            Kind::Unavailable { alive: count(alive), required: count(required) }
        }
        DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. } => Kind::TimedOut,
        DbError::Overloaded | DbError::RateLimitReached { .. } => Kind::TimedOut,
        DbError::IsBootstrapping => nobody(),
        // Some replicas may have done it; another may be able to.
        DbError::WriteFailure { received, required, .. } | DbError::ReadFailure { received, required, .. }
            if received < required =>
        {
            Kind::Unavailable { alive: count(received), required: count(required) }
        }
        _ => Kind::Io,
    }
}

/// No node could be asked at all.
fn nobody() -> Kind {
    Kind::Unavailable { alive: 0, required: 1 }
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    fn database(error: DbError) -> ExecutionError {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, "said the node".into()))
    }

    #[test]
    fn errors_say_what_the_caller_can_do() {
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
            (DbError::ServerError, Kind::Io),
            (DbError::Invalid, Kind::Io),
            (DbError::Unauthorized, Kind::Io),
        ];
        for (error, kind) in cases {
            let text = format!("{error:?}");
            assert_eq!(of("objects", database(error)).kind, kind, "{text}");
        }
        assert_eq!(of("objects", ExecutionError::RequestTimeout(Default::default())).kind, Kind::TimedOut);
        assert_eq!(of("objects", ExecutionError::EmptyPlan).kind, Kind::Unavailable { alive: 0, required: 1 });
    }

    #[test]
    fn what_is_not_allowed_is_not_what_went_wrong() {
        assert!(is_forbidden(&of("schema", database(DbError::Unauthorized))));
        assert!(!is_forbidden(&of("schema", database(DbError::Invalid))) && !is_forbidden(&late("schema")));
    }

    #[test]
    fn the_text_names_the_table_and_the_cause() {
        let text = of("objects", database(DbError::Overloaded)).to_string();
        assert!(text.starts_with("objects: ") && text.contains("said the node"), "{text}");
    }
}
