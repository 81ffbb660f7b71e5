//! Whether a gateway should get requests, for load balancers and orchestrators. The answer is made of states in memory: a question
//! costs no request to the store.

use std::fmt;

/// The reason for which a gateway should get no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReadyReason {
    /// The server has begun to end.
    Stopping,
    /// The engine refuses writes until a restart: a sync failed, or its data is damaged.
    ReadOnly,
    /// The disk has no room for writes.
    DiskFull,
    /// The clock of this machine is too far from the cluster's.
    ClockSkewed,
    /// The store has not answered for some seconds, or no node of it is reached.
    StoreUnreachable,
}

impl fmt::Display for NotReadyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopping => "the server is being stopped",
            Self::ReadOnly => "the engine takes no writes: a sync failed or its data is damaged",
            Self::DiskFull => "the disk is full",
            Self::ClockSkewed => "the clock of this machine differs from the cluster's",
            Self::StoreUnreachable => "the store is not reached",
        })
    }
}
