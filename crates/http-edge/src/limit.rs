//! How many connections a process holds: one count for all of its listeners, since they share its descriptors.

use std::net::IpAddr;
use std::sync::Arc;

use larder_admission::{HeldShare, SharedPermits};
use larder_store::RateLimitedLog;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Most connections at a time where a listener is not told otherwise.
const CONNECTIONS_MAX: usize = 10_000;
/// Connections that are being refused at the same time. Each holds a descriptor until its answer is out, so the process keeps
/// as many in reserve; further ones wait in the backlog of their listener, a second at most for each that does not read.
pub const REFUSALS_MAX: usize = 32;

/// The bound that all listeners of a process share. Clones are the same bound.
#[derive(Debug, Clone)]
pub struct ConnectionLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: SharedPermits,
    refusals: Arc<Semaphore>,
    log: RateLimitedLog,
    started: Instant,
}

/// The place of one connection, which it holds until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(#[expect(dead_code, reason = "held, not read")] HeldShare);

impl ConnectionLimit {
    /// At most `max` connections at a time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Shared {
            open: SharedPermits::new(max),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            log: RateLimitedLog::new(),
            started: Instant::now(),
        }))
    }

    /// The place of one more connection from this address; `None`: there are as many as may be, and it has to be refused.
    pub(crate) fn admit(&self, listener: &'static str, address: IpAddr) -> Option<ConnectionPermit> {
        self.0.open.gates(listener, address).try_pass(1).map(ConnectionPermit)
    }

    /// Waits for the place of a connection that is being refused, and says now and then how many are.
    pub(crate) async fn refuse(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        if let Some(line) = self.0.log.admit(self.0.started.elapsed()) {
            tracing::warn!(
                max = self.0.open.max(),
                open = self.0.open.held(),
                %address,
                left_out = line.left_out,
                "connection refused with 503: the places or the memory are taken, or the share of its listener or its address is"
            );
        }
        self.0.refusals.clone().acquire_owned().await.ok()
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(CONNECTIONS_MAX)
    }
}
