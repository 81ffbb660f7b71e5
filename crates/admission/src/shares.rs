//! Permits that listeners and addresses share, so that none of them takes all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Addresses kept at least before a sweep forgets those without clients.
const ADDRESSES_KEPT_MIN: usize = 1024;
/// The bits of an IPv6 address that name its network: a host chooses the others freely.
const NETWORK_BITS: u128 = !0 << 64;

/// A number of permits: one listener gets three quarters of them at most, one address half.
#[derive(Debug)]
pub struct SharedPermits {
    max: usize,
    all: Arc<Semaphore>,
    listeners: Mutex<HashMap<&'static str, Arc<Semaphore>>>,
    addresses: Mutex<AddressShares>,
}

/// The shares of addresses, kept while a client of the address is connected.
#[derive(Debug, Default)]
struct AddressShares {
    shares: HashMap<IpAddr, Weak<Semaphore>>,
    /// Shares left by the last sweep. The next sweep comes at twice as many, so its cost per client stays constant.
    size_after_sweep: usize,
}

/// The semaphores of one client: its address's share, its listener's, and all. A client takes them in this order: one that
/// used up its own share waits without holding permits that other clients could use.
#[derive(Debug, Clone)]
pub struct ShareGates([Option<Arc<Semaphore>>; 3]);

/// Permits of one client; dropping this gives them back.
#[derive(Debug)]
#[must_use = "the permits are given back when this is dropped"]
pub struct HeldShare(#[expect(dead_code, reason = "held, not read")] [Option<OwnedSemaphorePermit>; 3]);

impl SharedPermits {
    /// A set of `max` permits.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { max, all: Arc::new(Semaphore::new(max)), listeners: Mutex::default(), addresses: Mutex::default() }
    }

    /// The number of permits.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The number of permits that one address may hold.
    #[must_use]
    pub fn address_max(&self) -> usize {
        self.max.div_ceil(2)
    }

    /// The number of permits held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.max.saturating_sub(self.all.available_permits())
    }

    /// The gates of a client at this address, for the listener of this name.
    #[must_use]
    pub fn gates(&self, listener: &'static str, address: IpAddr) -> ShareGates {
        let ShareGates([_, of_listener, all]) = self.gates_of_proxy(listener);
        ShareGates([Some(self.address_share(address)), of_listener, all])
    }

    /// The gates of a proxy, for the listener of this name: many clients come through it, so it has no share by address.
    #[must_use]
    pub fn gates_of_proxy(&self, listener: &'static str) -> ShareGates {
        // One listener never gets all: the others stay reachable while it is flooded.
        let listener_max = self.max - self.max / 4;
        let of_listener = || Arc::new(Semaphore::new(listener_max));
        let of_listener = Arc::clone(self.listeners.lock().entry(listener).or_insert_with(of_listener));
        ShareGates([None, Some(of_listener), Some(Arc::clone(&self.all))])
    }

    /// The gate of a client at this address whose proxy holds permits of its own.
    #[must_use]
    pub fn gates_behind_proxy(&self, address: IpAddr) -> ShareGates {
        ShareGates([Some(self.address_share(address)), None, None])
    }

    fn address_share(&self, address: IpAddr) -> Arc<Semaphore> {
        self.addresses.lock().address_share(client_key(address), self.address_max())
    }
}

impl AddressShares {
    fn address_share(&mut self, address: IpAddr, max: usize) -> Arc<Semaphore> {
        // A held permit keeps its semaphore alive, so a new share never stands beside permits of an old one.
        if let Some(share) = self.shares.get(&address).and_then(Weak::upgrade) {
            return share;
        }
        // Bound: a scan from many addresses must not make the map grow for ever.
        if self.shares.len() >= ADDRESSES_KEPT_MIN.max(2 * self.size_after_sweep) {
            self.shares.retain(|_, share| share.strong_count() > 0);
            self.size_after_sweep = self.shares.len();
        }
        let share = Arc::new(Semaphore::new(max));
        self.shares.insert(address, Arc::downgrade(&share));
        share
    }
}

/// The address that one client's share counts for: its IPv6 network, or its IPv4 address in either form.
#[must_use]
pub fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        // A host chooses the lower half of its IPv6 address freely: each choice would get a share of its own.
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_BITS).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl ShareGates {
    /// Takes permits if they are free now; otherwise none.
    #[must_use]
    pub fn try_acquire(&self, permits: u32) -> Option<HeldShare> {
        // The permits are taken in one order and given back together when a later one fails.
        let acquire = |gate: &Option<Arc<Semaphore>>| match gate {
            Some(gate) => Arc::clone(gate).try_acquire_many_owned(permits).ok().map(Some),
            None => Some(None),
        };
        let [address, listener, all] = &self.0;
        Some(HeldShare([acquire(address)?, acquire(listener)?, acquire(all)?]))
    }

    /// Takes permits, waiting until the deadline for other clients.
    pub async fn acquire(&self, permits: u32, deadline: Instant) -> Option<HeldShare> {
        let acquire = async |gate: &Option<Arc<Semaphore>>| match gate {
            Some(gate) => {
                let acquired = timeout_at(deadline, Arc::clone(gate).acquire_many_owned(permits)).await;
                acquired.ok().and_then(Result::ok).map(Some)
            }
            None => Some(None),
        };
        let [address, listener, all] = &self.0;
        // The common permits come last: a wait for the own share must not hold what other clients could use.
        Some(HeldShare([acquire(address).await?, acquire(listener).await?, acquire(all).await?]))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
    }

    /// Takes single permits until one is refused.
    fn take_all(gates: &ShareGates) -> Vec<HeldShare> {
        std::iter::from_fn(|| gates.try_acquire(1)).collect()
    }

    #[test]
    fn no_address_and_no_listener_gets_all() {
        let permits = SharedPermits::new(48);
        let greedy = take_all(&permits.gates("http", peer(1)));
        assert_eq!(greedy.len(), 24, "half for one address");
        let other = take_all(&permits.gates("http", peer(2)));
        assert_eq!(other.len(), 12, "three quarters for one listener");
        let third = take_all(&permits.gates("s3", peer(3)));
        assert_eq!((third.len(), permits.held()), (12, 48));
        drop((greedy, other, third));
        assert_eq!(permits.held(), 0);
    }

    #[test]
    fn clients_behind_a_proxy_have_their_shares_and_the_proxy_has_none() {
        let permits = SharedPermits::new(48);
        let proxied = take_all(&permits.gates_of_proxy("http"));
        assert_eq!((proxied.len(), permits.held()), (36, 36), "bounded by the listener alone");
        assert_eq!(take_all(&permits.gates_behind_proxy(peer(1))).len(), 24, "half for one address");
        let behind = take_all(&permits.gates_behind_proxy(peer(1)));
        assert!(permits.gates("s3", peer(1)).try_acquire(1).is_none(), "one share for all ways to the server");
        drop(behind);
    }

    #[test]
    fn a_single_permit_is_free_for_any_address() {
        assert!(SharedPermits::new(1).gates("http", peer(1)).try_acquire(1).is_some());
    }

    #[test]
    fn addresses_without_clients_are_forgotten() {
        let permits = SharedPermits::new(8);
        for number in 0..10_000_u32 {
            let _ = permits.gates("http", IpAddr::V4(Ipv4Addr::from_bits(number)));
        }
        assert!(permits.addresses.lock().shares.len() <= ADDRESSES_KEPT_MIN);
    }

    #[test]
    fn all_ipv6_addresses_of_a_network_share_one_half() {
        let permits = SharedPermits::new(48);
        let taken = |address: &str| take_all(&permits.gates("http", address.parse().unwrap()));
        let greedy = taken("2001:db8::1");
        assert_eq!((greedy.len(), taken("2001:db8::2").len()), (24, 0), "one network");
        assert_eq!(taken("2001:db8:0:1::1").len(), 12, "another one");
        drop(greedy);
        let greedy = taken("192.0.2.1");
        assert_eq!((greedy.len(), taken("::ffff:192.0.2.1").len()), (24, 0), "one address in two forms");
    }
}
