//! Refusals of key-value that errors of the core carry.

use larder_rows::codec::DecodeError;

use crate::rules::props::Datatype;

/// Why a context is refused. Clients of objects know it as a vclock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.about("vclock"))]
pub enum ContextError {
    /// The bytes are damaged, or no server of Larder made them.
    Foreign,
    /// The context belongs to another address.
    OtherAddress,
    /// It names a clock that no gateway can have issued yet.
    Ahead,
}

impl ContextError {
    /// The sentence for a client that knows the context by this name.
    #[must_use]
    pub fn about(self, name: &str) -> String {
        let why = match self {
            Self::Foreign => "was not issued by this server or is damaged",
            Self::OtherAddress => "belongs to another bucket type, bucket or key",
            Self::Ahead => "is ahead of this server's clock",
        };
        format!("The {name} {why}")
    }
}

/// The kind of condition that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedCondition {
    /// `If-Match`, `If-Unmodified-Since`, or `If-None-Match` on a write.
    Precondition,
    /// `If-None-Match` or `If-Modified-Since` on a read: the client's copy is current.
    NotModified,
    /// `if_not_modified`: the live writes are others than those of its context.
    Modified,
    /// `if_not_modified`: there is no live write.
    Missing,
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatatypeError {
    /// A removal without a context names something that is not there: the Erlang term of the refusal.
    #[error("{0}")]
    NotPresent(String),
    /// The update is one of another data type than the bucket's.
    #[error("an update of a {} in a bucket of the data type {}", .update.name(), .bucket.name())]
    WrongOperation {
        /// The data type of the update.
        update: Datatype,
        /// The data type of the bucket.
        bucket: Datatype,
    },
    /// The context is damaged, or not one of this key.
    #[error("{}", .0.about("context"))]
    Context(#[from] ContextError),
    /// A name, an element, a register or the whole update is larger than it may be.
    #[error("{part} is larger than {max} bytes")]
    UpdateTooLarge {
        /// The part, as the subject of a sentence.
        part: &'static str,
        /// The limit in bytes.
        max: usize,
    },
    /// The update has more edits than one request may have, or its maps are nested deeper.
    #[error("the update has more than {max} {part}")]
    TooMany {
        /// The things counted.
        part: &'static str,
        /// The limit.
        max: usize,
    },
    /// The id of a request is empty, too long, or for a type that counts nothing.
    #[error("an id of a request has 1 to 256 bytes, and only counters and maps take one")]
    RequestId,
    /// The value takes more memory than a reader of whole values allows; it can be read in pages.
    #[error("the value is larger than {max} bytes: read it in pages over HTTP, with start and max_results")]
    ValueTooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// A state of a data type that the source of a move shows is none that it may have.
    #[error("the data type at the source has {0} that this server does not take")]
    SourceState(&'static str),
    /// Stored bytes are damaged.
    #[error("a row of a data type is damaged: {0}")]
    Damaged(#[from] DecodeError),
}
