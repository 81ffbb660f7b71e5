//! Preparing statements for new tables: nodes learn of a table one after another.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::{DbError, PrepareError, RequestAttemptError};
use scylla::statement::prepared::PreparedStatement;
use tokio::time::{Instant, sleep};

/// How long a table may be missing.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Prepares a statement; tries again while a node does not know its table.
///
/// # Errors
/// After ten seconds, the node's last error; any other error at once.
pub(crate) async fn prepare(session: &Session, text: &str) -> Result<PreparedStatement, PrepareError> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match session.prepare(text).await {
            Err(error) if is_unknown(&error) && Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// Whether a node does not know the table of the statement. Both engines call such a statement invalid.
fn is_unknown(error: &PrepareError) -> bool {
    let PrepareError::AllAttemptsFailed { first_attempt } = error else { return false };
    matches!(first_attempt, RequestAttemptError::DbError(DbError::Invalid, _))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_table_is_retried() {
        let refused = |error| PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(error, "table blob_blocks does not exist".into()),
        };
        assert!(is_unknown(&refused(DbError::Invalid)));
        for error in [DbError::SyntaxError, DbError::Unauthorized, DbError::Overloaded] {
            assert!(!is_unknown(&refused(error)));
        }
    }
}
