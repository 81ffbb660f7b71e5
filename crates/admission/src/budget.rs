//! One budget of bytes in memory, and the account of each client with it.
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
use std::time::Duration;

use tokio::time::Instant;

use crate::shares::{HeldShare, ShareGates, SharedPermits};

/// The largest small draw.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of one permit.
const PERMIT_BYTES: u64 = 1024;
/// Bytes that clients get at least, however much is fixed: below it the server could serve no request of usual size.
const CLIENT_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// How long a draw waits for other clients; after that the client gets a refusal and may retry.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The budget that all listeners of a process share. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<SharedBudget>);

#[derive(Debug)]
struct SharedBudget {
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
            small: byte_permits(clients / 4),
            large: byte_permits(clients - clients / 4),
            waiting: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// The account of a client at this address, for the listener of this name.
    #[must_use]
    pub fn account(&self, listener: &'static str, address: IpAddr) -> ClientAccount {
        let SharedBudget { small, large, .. } = &*self.0;
        let (small, large) = (small.gates(listener, address), large.gates(listener, address));
        ClientAccount(Arc::new(AccountGates { budget: Arc::clone(&self.0), small, large }))
    }

    /// The account of a proxy, which has no share by address.
    #[must_use]
    pub fn account_of_proxy(&self, listener: &'static str) -> ClientAccount {
        let SharedBudget { small, large, .. } = &*self.0;
        let (small, large) = (small.gates_of_proxy(listener), large.gates_of_proxy(listener));
        ClientAccount(Arc::new(AccountGates { budget: Arc::clone(&self.0), small, large }))
    }

    /// How much is held now.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        let SharedBudget { small, large, waiting, refused } = &*self.0;
        MemoryUsage {
            small: permit_bytes(small.held()),
            small_max: permit_bytes(small.max()),
            large: permit_bytes(large.held()),
            large_max: permit_bytes(large.max()),
            waiting: waiting.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
        }
    }
}

impl SharedBudget {
    /// The largest draw of one address: a larger one would never succeed.
    fn draw_max(&self) -> u64 {
        permit_bytes(self.large.address_max())
    }

    fn begin_waiting(&self) -> WaitingDraw<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingDraw(&self.waiting)
    }

    fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a draw as waiting until it is dropped.
struct WaitingDraw<'a>(&'a AtomicU64);

impl Drop for WaitingDraw<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The account of a client. Clones share it.
#[derive(Debug, Clone)]
pub struct ClientAccount(Arc<AccountGates>);

#[derive(Debug)]
struct AccountGates {
    budget: Arc<SharedBudget>,
    small: ShareGates,
    large: ShareGates,
}

/// Drawn bytes; dropping this gives them back.
#[derive(Debug)]
#[must_use = "the bytes are given back when this is dropped"]
pub struct HeldMemory(#[expect(dead_code, reason = "held, not read")] HeldShare);

/// The budget has no memory for this client now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySpent;

impl ClientAccount {
    /// Draws bytes, waiting some seconds for other clients. A request draws once for all it needs: two requests that each
    /// hold some and wait for more would block each other. A draw above an address's share counts as the whole share.
    ///
    /// # Errors
    /// [`MemorySpent`]: the draw took nothing.
    pub async fn draw(&self, bytes: u64) -> Result<HeldMemory, MemorySpent> {
        let (gates, permits) = self.gates_for(bytes);
        if let Some(held) = gates.try_acquire(permits) {
            return Ok(HeldMemory(held));
        }
        let budget = &self.0.budget;
        // The guard ends the count also when the caller drops this future.
        let _waiting = budget.begin_waiting();
        let held = gates.acquire(permits, Instant::now() + WAIT_MAX).await;
        held.map(HeldMemory).ok_or(MemorySpent).inspect_err(|_| budget.count_refusal())
    }

    /// Draws bytes if they are free now.
    ///
    /// # Errors
    /// [`MemorySpent`]: the draw took nothing.
    pub fn try_draw(&self, bytes: u64) -> Result<HeldMemory, MemorySpent> {
        let (gates, permits) = self.gates_for(bytes);
        gates.try_acquire(permits).map(HeldMemory).ok_or(MemorySpent).inspect_err(|_| self.0.budget.count_refusal())
    }

    fn gates_for(&self, bytes: u64) -> (&ShareGates, u32) {
        let bytes = bytes.min(self.0.budget.draw_max());
        let gates = if bytes <= SMALL_BYTES_MAX { &self.0.small } else { &self.0.large };
        (gates, u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX))
    }
}

fn byte_permits(bytes: u64) -> SharedPermits {
    SharedPermits::new(usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX))
}

fn permit_bytes(permits: usize) -> u64 {
    permits as u64 * PERMIT_BYTES
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn peer(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
    }

    /// Draws of so many bytes until the first refusal.
    fn draw_all(account: &ClientAccount, bytes: u64) -> Vec<HeldMemory> {
        std::iter::from_fn(|| account.try_draw(bytes).ok()).collect()
    }

    #[test]
    fn small_draws_do_not_wait_for_large_ones() {
        let budget = MemoryBudget::new(64 * MIB, 48 * MIB);
        let large: Vec<_> = (1..4).map(|last| draw_all(&budget.account("http", peer(last)), MIB)).collect();
        assert!(budget.account("http", peer(1)).try_draw(MIB).is_err());
        assert!(budget.account("http", peer(1)).try_draw(64 * 1024).is_ok());
        drop(large);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_draw_gets_freed_bytes_or_a_refusal_in_time() {
        let budget = MemoryBudget::new(64 * MIB, 0);
        let account = budget.account("http", peer(1));
        let mut held = draw_all(&account, MIB);
        assert_eq!((held.len(), budget.usage().large), (24, 24 * MIB), "half of the 48 MiB for large draws");
        let (begun, refused) = (Instant::now(), budget.usage().refused);
        assert_eq!(account.draw(MIB).await.err(), Some(MemorySpent));
        assert_eq!((begun.elapsed(), budget.usage().refused), (WAIT_MAX, refused + 1));
        let waiting = tokio::spawn({
            let account = account.clone();
            async move { account.draw(MIB).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(budget.usage().waiting, 1);
        held.pop();
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(budget.usage().waiting, 0);
        drop(held);
        assert!(account.draw(u64::MAX).await.is_ok(), "a draw above the share counts as the whole share");
        assert_eq!(budget.usage().large, 0);
    }
}
