//! One budget of bytes in memory.
//!
//! ```text
//! total ─┬─ fixed                caches, memtables, queues: they have bounds of their own, subtracted at the start
//!        └─ clients ─┬─ small    draws of up to 64 KiB: they never wait for large ones
//!                    └─ large    all others
//! ```
//! Of each pool one listener gets three quarters at most, one address half: no single one takes it all.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::account::ClientAccount;
use crate::shares::SharedPermits;

/// The largest small draw.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of one permit.
pub(crate) const PERMIT_BYTES: u64 = 1024;
/// Bytes that clients get at least, however much is fixed: below it the server could serve no request of usual size.
const CLIENT_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// The budget that all listeners of a process share. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<SharedBudget>);

#[derive(Debug)]
pub(crate) struct SharedBudget {
    small: SharedPermits,
    large: SharedPermits,
    waiting: AtomicU64,
    refused: AtomicU64,
}

/// How much of the budget is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes that small draws hold.
    pub small: u64,
    /// Bytes that small draws may hold.
    pub small_max: u64,
    /// Bytes that large draws hold.
    pub large: u64,
    /// Bytes that large draws may hold.
    pub large_max: u64,
    /// Draws that wait.
    pub waiting: u64,
    /// Draws refused since the start.
    pub refused: u64,
}

impl MemoryBudget {
    /// A budget of `total` bytes, of which `fixed` belong to parts with bounds of their own.
    #[must_use]
    pub fn new(total: u64, fixed: u64) -> Self {
        let clients = total.saturating_sub(fixed).max(CLIENT_BYTES_MIN);
        Self(Arc::new(SharedBudget {
            small: permits_of(clients / 4),
            large: permits_of(clients - clients / 4),
            waiting: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// The account of a client at this address, for the listener of this name.
    #[must_use]
    pub fn account(&self, listener: &'static str, address: IpAddr) -> ClientAccount {
        let SharedBudget { small, large, .. } = &*self.0;
        ClientAccount::new(Arc::clone(&self.0), small.gates(listener, address), large.gates(listener, address))
    }

    /// How much is held now.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        let SharedBudget { small, large, waiting, refused } = &*self.0;
        MemoryUsage {
            small: bytes_of(small.held()),
            small_max: bytes_of(small.max()),
            large: bytes_of(large.held()),
            large_max: bytes_of(large.max()),
            waiting: waiting.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
        }
    }
}

impl SharedBudget {
    /// The largest draw of one address: a larger one would never succeed.
    pub(crate) fn draw_max(&self) -> u64 {
        bytes_of(self.large.address_max())
    }

    pub(crate) fn begin_waiting(&self) -> WaitingDraw<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingDraw(&self.waiting)
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a draw as waiting until it is dropped.
pub(crate) struct WaitingDraw<'a>(&'a AtomicU64);

impl Drop for WaitingDraw<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn permits_of(bytes: u64) -> SharedPermits {
    SharedPermits::new(usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX))
}

fn bytes_of(permits: usize) -> u64 {
    permits as u64 * PERMIT_BYTES
}
