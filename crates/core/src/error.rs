//! Errors of the gateway. A client or an operator can act on every kind. Edges match all of them without a wildcard, so a new
//! kind fails to compile until each protocol has an answer for it.

use bytes::Bytes;
use larder_rows::address::AddressError;
use larder_store as store;

use crate::rules::erlang;
use crate::rules::props::PropsError;
use crate::rules::refusals::{ContextError, DatatypeError, FailedCondition};

/// Result of a gateway call.
pub type Result<T> = std::result::Result<T, Error>;

/// A replica count of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuorumParam {
    /// Replies to a read.
    R,
    /// Replies of primaries to a read.
    Pr,
    /// Acknowledgements of a write.
    W,
    /// Acknowledgements of durable writes.
    Dw,
    /// Acknowledgements of primaries to a write.
    Pw,
}

/// A feature that is not built yet, refused by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Commit hooks in buckets of data types.
    DatatypeHooks,
    /// Search.
    Search,
    /// Joining and leaving clusters.
    ClusterChanges,
    /// Anti-entropy folds and replication queues.
    Folds,
}

impl Feature {
    /// Its name, for the text of the answer.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DatatypeHooks => "commit hooks of data types",
            Self::Search => "search",
            Self::ClusterChanges => "cluster changes",
            Self::Folds => "anti-entropy folds and replication queues",
        }
    }
}

/// A request that was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The type does not exist or is not active.
    #[error("unknown bucket type")]
    UnknownType(Bytes),
    /// A part of the address is empty or too long.
    #[error("{0}")]
    BadAddress(#[from] AddressError),
    /// A replica count is greater than the bucket's n_val.
    #[error("a quorum value is greater than n_val {n_val}")]
    QuorumAboveN {
        /// The bucket's n_val.
        n_val: u32,
    },
    /// Fewer replicas answered than a strict parameter asks for.
    #[error("{which:?} value unsatisfied: {got}/{wanted}")]
    Unsatisfied {
        /// The parameter.
        which: QuorumParam,
        /// Replicas that answered.
        got: u32,
        /// Replicas asked for.
        wanted: u32,
    },
    /// Fewer machines than `node_confirms` asks for; the protocols word it differently for reads and writes.
    #[error("node_confirms value unsatisfied: {got}/{wanted}")]
    NodeConfirms {
        /// Machines there are.
        got: u32,
        /// Machines asked for.
        wanted: u32,
        /// Whether it was a read.
        reading: bool,
    },
    /// A condition of the request does not hold.
    #[error("condition failed: {0:?}")]
    Condition(FailedCondition),
    /// A `consistent` value was not replaced: the context is not the current one.
    #[error("the context is not the current one")]
    Superseded,
    /// The context is not one of this address.
    #[error("{0}")]
    Context(#[from] ContextError),
    /// The body is larger than objects may be.
    #[error("the object has more than {max} bytes")]
    TooLarge {
        /// Bytes seen or announced.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// Metadata, links and index terms together are larger than they may be.
    #[error("metadata, links and index terms have {bytes} bytes, more than {max}")]
    MetadataTooLarge {
        /// Bytes given.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The index terms of one object take more room than they may.
    #[error("the index terms take {bytes} bytes, more than {max}")]
    IndexTooLarge {
        /// Bytes that they take.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The key would have more siblings than it may.
    #[error("too many siblings: {count}")]
    TooManySiblings {
        /// How many it would have.
        count: usize,
    },
    /// Another writer changed the key since it was read; nothing was written.
    #[error("the object was changed meanwhile")]
    Changed,
    /// The request's body broke off or was malformed.
    #[error("the request body could not be read: {0}")]
    BrokenBody(String),
    /// A data type refused the request; nothing was changed.
    #[error("{0}")]
    Datatype(DatatypeError),
    /// The bucket's values are no data type, or not one with this operation.
    #[error("the values of this bucket are no such data type")]
    NotDatatype,
    /// The bucket's values are a data type, which changes by its own operations alone.
    #[error("the values of this bucket are a data type: update it by its own operations")]
    DatatypePut,
    /// A data type in a bucket without `allow_mult`.
    #[error("data types need allow_mult=true")]
    DatatypeNeedsSiblings,
    /// A precommit hook refused the write; nothing was written.
    #[error("refused by a precommit hook: {}", .0.erlang())]
    Precommit(PrecommitRefusal),
    /// Refused until it is built.
    #[error("{} are not available yet", .0.name())]
    NotBuilt(Feature),
    /// Invalid properties of a type or bucket, each with its reason, or a forbidden change of a type.
    #[error("{0}")]
    Refused(#[from] PropsError),
    /// A type that does not exist or is not on all nodes yet.
    #[error("{0}")]
    Type(#[from] crate::types::TypeStateError),
    /// The deadline passed; a write may or may not have happened.
    #[error("request timed out")]
    TimedOut,
    /// Too many requests: try again after this many seconds.
    #[error("overload")]
    Overloaded {
        /// Seconds to wait.
        retry_after: u32,
    },
    /// This gateway must not serve now: its catalogue is old, its clock is off, or its engine takes no writes.
    #[error("not ready: {0}")]
    NotReady(String),
    /// The disk is full; nothing was written.
    #[error("the disk is full")]
    DiskFull,
    /// Stored bytes are damaged; never wrong bytes.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
    /// The store failed in another way.
    #[error("{0}")]
    Internal(String),
}

impl From<DatatypeError> for Error {
    fn from(error: DatatypeError) -> Self {
        match error {
            DatatypeError::Damaged(_) => Self::Damaged(error.to_string()),
            refused => Self::Datatype(refused),
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error.kind {
            store::Kind::Unavailable { alive, required } => {
                Self::Unsatisfied { which: QuorumParam::R, got: alive, wanted: required }
            }
            store::Kind::TimedOut => Self::TimedOut,
            store::Kind::TooManyRows { rows } => Self::TooManySiblings { count: rows },
            store::Kind::Changed => Self::Changed,
            store::Kind::TooLarge => Self::Internal(error.to_string()),
            store::Kind::Poisoned => Self::NotReady(error.to_string()),
            store::Kind::Full => Self::DiskFull,
            store::Kind::NoSuchBlob | store::Kind::Damaged => Self::Damaged(error.to_string()),
            store::Kind::Misuse | store::Kind::Io => Self::Internal(error.to_string()),
        }
    }
}

impl Error {
    /// Whether a write that failed with this error may still take effect, or has.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Internal(_) | Self::NotReady(_))
    }

    /// Whether the store refused the write whole.
    pub fn has_written_nothing(&self) -> bool {
        matches!(
            self,
            Self::TooManySiblings { .. }
                | Self::Superseded
                | Self::Changed
                | Self::DiskFull
                | Self::Condition(_)
                | Self::Overloaded { .. }
        )
    }

    /// The outcome that metrics count.
    pub(crate) fn outcome(&self) -> crate::metrics::RequestOutcome {
        use crate::metrics::RequestOutcome;
        match self {
            Self::TimedOut
            | Self::Unsatisfied { .. }
            | Self::Overloaded { .. }
            | Self::Changed
            | Self::NotReady(_)
            | Self::DiskFull
            | Self::Damaged(_)
            | Self::Internal(_) => RequestOutcome::Failed,
            _ => RequestOutcome::Refused,
        }
    }
}

/// Why a precommit hook refused a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrecommitRefusal {
    /// The hook said `fail`, or could not be run.
    Fail,
    /// The hook gave this reason.
    Reason(String),
    /// The hook returned something else; an Erlang term.
    Term(String),
}

impl PrecommitRefusal {
    /// Riak's error term, as its protocol buffers show it.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Self::Fail => "precommit_fail".into(),
            Self::Reason(reason) => format!("{{precommit_fail,{}}}", erlang::binary(reason)),
            Self::Term(term) => format!("{{precommit_fail,{term}}}"),
        }
    }
}
