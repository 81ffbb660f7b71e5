//! The port of the audit log: changes of users, keys, grants, policies and types, and refused requests. Edges report them, and the
//! server keeps them.

use std::net::IpAddr;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It was carried out.
    Done,
    /// The client may not do this.
    Refused,
    /// It failed for another reason. A change may be carried out all the same, if its answer was lost.
    Failed,
}

impl AuditOutcome {
    /// The outcome of an answer with this HTTP status.
    #[must_use]
    pub fn from_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Refused,
            400.. => Self::Failed,
            _ => Self::Done,
        }
    }

    /// Its word in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// One event. No field is ever a secret: a field that a client fills is a name, an address or a method.
#[derive(Debug, Clone, Copy)]
pub struct AuditEvent<'a> {
    /// The interface: `http`, `pb`, `s3`, `console` or `kv-admin`.
    pub face: &'static str,
    /// The user; `None`: anonymous.
    pub who: Option<&'a str>,
    /// The client's address; `None`: on this machine, by the admin socket.
    pub from: Option<IpAddr>,
    /// The operation, by its name in the table of its interface, or the method of a request that matches none.
    pub action: &'a str,
    /// The changed thing, or the path of the request.
    pub target: &'a str,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// The status of the answer over HTTP.
    pub status: Option<u16>,
    /// The id of the request, where the answer has one.
    pub request: Option<&'a str>,
}

/// The audit log. It must not wait.
pub trait AuditSink: Send + Sync {
    /// Keeps an event, or counts it as lost.
    fn record(&self, event: &AuditEvent<'_>);

    /// The number of events that were lost since the start.
    fn lost(&self) -> u64;
}
