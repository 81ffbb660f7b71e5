//! The bound of connections that all listeners of a process share.

use std::net::IpAddr;
use std::sync::Arc;

use larder_admission::{HeldShare, SharedPermits};
use larder_store::RateLimitedLog;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::proxy_header::ProxyHeaderError;

/// The default bound of a listener.
const CONNECTIONS_MAX: usize = 10_000;
/// Refusals at the same time. Each holds a descriptor until its response is sent, so the process keeps as many in reserve.
/// Further connections wait in the backlog of their listener, a second at most for each client that does not read.
pub const REFUSALS_MAX: usize = 32;

/// The bound that all listeners of a process share. Clones are the same bound.
#[derive(Debug, Clone)]
pub struct ConnectionLimit(Arc<SharedConnectionLimit>);

#[derive(Debug)]
struct SharedConnectionLimit {
    open: SharedPermits,
    refusals: Arc<Semaphore>,
    log: RateLimitedLog,
    proxy_log: RateLimitedLog,
}

/// The place of one connection; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(#[expect(dead_code, reason = "held, not read")] HeldShare);

impl ConnectionLimit {
    /// At most `max` connections at a time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(SharedConnectionLimit {
            open: SharedPermits::new(max),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            log: RateLimitedLog::new(),
            proxy_log: RateLimitedLog::new(),
        }))
    }

    /// The place of one more connection from this address; `None`: the bound is reached, and the caller refuses it.
    pub(crate) fn admit(&self, listener: &'static str, address: IpAddr) -> Option<ConnectionPermit> {
        self.0.open.gates(listener, address).try_acquire(1).map(ConnectionPermit)
    }

    /// The place of one more connection of a trusted proxy, which has no share by address.
    pub(crate) fn admit_proxy(&self, listener: &'static str) -> Option<ConnectionPermit> {
        self.0.open.gates_of_proxy(listener).try_acquire(1).map(ConnectionPermit)
    }

    /// The share of the client that a proxy names, beside the place of the proxy's connection.
    pub(crate) fn admit_behind_proxy(&self, address: IpAddr) -> Option<ConnectionPermit> {
        self.0.open.gates_behind_proxy(address).try_acquire(1).map(ConnectionPermit)
    }

    /// Logs a PROXY header that is of no use, at a bounded rate.
    pub(crate) fn log_bad_proxy(&self, proxy: IpAddr, error: &ProxyHeaderError) {
        if let Some(line) = self.0.proxy_log.admit_now() {
            tracing::warn!(%proxy, %error, left_out = line.left_out, "PROXY header refused: the connection is closed");
        }
    }

    /// Waits for the place of a refusal, and logs refusals at a bounded rate.
    pub(crate) async fn refuse(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        if let Some(line) = self.0.log.admit_now() {
            tracing::warn!(
                max = self.0.open.max(),
                open = self.0.open.held(),
                %address,
                left_out = line.left_out,
                "connection refused: the server, its listener or its address is at its share of connections or memory"
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
