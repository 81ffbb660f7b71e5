//! The failure of a server.

/// The reason why the server did not start, or did not end in order: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServerFailure(pub(crate) String);
