//! Whether a gateway should get requests, for load balancers and orchestrators. The answer is made of states in memory: a question
//! costs no request to the store.

use std::fmt;

use crate::core::Core;

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

impl Core {
    /// Whether this gateway should get requests.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn readiness(&self) -> Result<(), NotReadyReason> {
        let (core, ports) = (&self.core, &self.core.ports);
        let nodes = ports.engine.nodes();
        let is_cut_off = !nodes.is_empty() && nodes.iter().all(|node| !node.up);
        let reasons = [
            (NotReadyReason::Stopping, core.is_stopping()),
            (NotReadyReason::StoreUnreachable, is_cut_off || self.catalogue.peek(core.monotonic()).is_none()),
            (NotReadyReason::ReadOnly, !ports.store.is_ready() || !ports.blobs.is_ready()),
            (NotReadyReason::DiskFull, ports.engine.is_full()),
            (NotReadyReason::ClockSkewed, self.issuer.is_skewed()),
        ];
        reasons.into_iter().find(|(_, holds)| *holds).map_or(Ok(()), |(reason, _)| Err(reason))
    }
}
