//! What an engine answers instead: few kinds, named after what the caller can do next.

/// Result of a store call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed, by what the caller may do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Fewer replicas are up than the level asks: wait, or ask for less.
    Unavailable {
        /// Replicas that are up.
        alive: u32,
        /// Replicas that the level asks for.
        required: u32,
    },
    /// The deadline passed; a write may or may not have happened, and may be sent again as it is.
    TimedOut,
    /// The batch is larger than the engine takes: send less.
    TooLarge,
    /// A partition would hold more rows than the batch allows.
    TooManyRows {
        /// Rows it would hold.
        rows: usize,
    },
    /// A partition holds other rows than the batch was made for; nothing was written: read again.
    Changed,
    /// A write or sync failed earlier: no writes until the server is restarted.
    Poisoned,
    /// The disk is full: nothing was written.
    Full,
    /// There is no such blob (any more).
    NoSuchBlob,
    /// Stored bytes are damaged or of an unknown version: never guessed at.
    Damaged,
    /// The call breaks the contract (a guarded table in `apply`, and the like): a defect of the caller.
    Misuse,
    /// Anything else from the machine below.
    Io,
}

/// A failed store call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    /// What the caller may do.
    pub kind: Kind,
    /// What was being done, for the log.
    pub context: String,
    /// What lay below.
    #[source]
    pub source: Option<std::sync::Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a cause below.
    #[must_use]
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// An error with its cause; the text includes it.
    #[must_use]
    pub fn caused(
        kind: Kind,
        context: impl std::fmt::Display,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, context: format!("{context}: {source}"), source: Some(std::sync::Arc::new(source)) }
    }
}
