//! Errors of engines: few kinds, named after what the caller can do next.

/// Result of a store call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed, grouped by what the caller can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Fewer replicas are up than the level requires: wait, or ask for less.
    Unavailable {
        /// Replicas that are up.
        alive: u32,
        /// Replicas that the level requires.
        required: u32,
    },
    /// The deadline passed. A write may or may not have happened; the caller may send it again unchanged.
    TimedOut,
    /// The batch is larger than the engine accepts: send less.
    TooLarge,
    /// A partition would hold more rows than the batch allows.
    TooManyRows {
        /// Rows that the partition would hold.
        rows: usize,
    },
    /// A partition holds other rows than the batch was made for. The engine wrote nothing: read again.
    Changed,
    /// An earlier write or sync failed: the engine refuses writes until a restart.
    Poisoned,
    /// The disk is full. The engine wrote nothing.
    Full,
    /// The blob does not exist, or was removed.
    NoSuchBlob,
    /// Stored bytes are damaged or have an unknown version; the engine never guesses.
    Damaged,
    /// The call breaks the contract (a guarded table in `apply`, and the like): a bug of the caller.
    Misuse,
    /// Any other failure of the operating system, the disk or the cluster.
    Io,
}

/// A failed store call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    /// Kind of the failure.
    pub kind: Kind,
    /// The operation that failed, for the log.
    pub context: String,
    /// The underlying error.
    #[source]
    pub source: Option<std::sync::Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without an underlying error.
    #[must_use]
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// An error with its underlying error; the text includes both.
    #[must_use]
    pub fn caused(
        kind: Kind,
        context: impl std::fmt::Display,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, context: format!("{context}: {source}"), source: Some(std::sync::Arc::new(source)) }
    }
}
