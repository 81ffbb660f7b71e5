//! Permits that listeners and addresses share, so that none of them can take all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Addresses that are remembered at least before those that are gone are forgotten.
const ADDRESSES_KEPT_MIN: usize = 1024;
/// The bits of an IPv6 address that name its network: a host picks the others as it likes.
const NETWORK_BITS: u128 = !0 << 64;

/// A number of permits: one listener gets three quarters of them at most, one address half.
#[derive(Debug)]
pub struct SharedPermits {
    max: usize,
    all: Arc<Semaphore>,
    listeners: Mutex<HashMap<&'static str, Arc<Semaphore>>>,
    addresses: Mutex<AddressShares>,
}

/// The shares of addresses, kept as long as a client there is connected.
#[derive(Debug, Default)]
struct AddressShares {
    shares: HashMap<IpAddr, Weak<Semaphore>>,
    /// Shares after the last sweep: the next one comes at twice as many, so its cost per client does not grow.
    swept: usize,
}

/// The way of one client to the permits: its address's share, its listener's, and all. They are passed in this order: a client
/// that has spent its own share waits without holding what others could use.
#[derive(Debug, Clone)]
pub struct ShareGates([Arc<Semaphore>; 3]);

/// Permits of one client; they are given back when it is dropped.
#[derive(Debug)]
#[must_use = "the permits are given back when this is dropped"]
pub struct HeldShare(#[expect(dead_code, reason = "held, not read")] [OwnedSemaphorePermit; 3]);

impl SharedPermits {
    /// So many permits.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { max, all: Arc::new(Semaphore::new(max)), listeners: Mutex::default(), addresses: Mutex::default() }
    }

    /// How many there are.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// How many one address may hold.
    #[must_use]
    pub fn address_max(&self) -> usize {
        self.max.div_ceil(2)
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.max.saturating_sub(self.all.available_permits())
    }

    /// The gates of a client at this address, at the listener of this name.
    #[must_use]
    pub fn gates(&self, listener: &'static str, address: IpAddr) -> ShareGates {
        let listener_max = self.max - self.max / 4;
        let of_listener = || Arc::new(Semaphore::new(listener_max));
        let of_listener = Arc::clone(self.listeners.lock().entry(listener).or_insert_with(of_listener));
        ShareGates([self.of_address(address), of_listener, Arc::clone(&self.all)])
    }

    fn of_address(&self, address: IpAddr) -> Arc<Semaphore> {
        self.addresses.lock().of(one_client(address), self.address_max())
    }
}

impl AddressShares {
    fn of(&mut self, address: IpAddr, max: usize) -> Arc<Semaphore> {
        if let Some(share) = self.shares.get(&address).and_then(Weak::upgrade) {
            return share;
        }
        if self.shares.len() >= ADDRESSES_KEPT_MIN.max(2 * self.swept) {
            self.shares.retain(|_, share| share.strong_count() > 0);
            self.swept = self.shares.len();
        }
        let share = Arc::new(Semaphore::new(max));
        self.shares.insert(address, Arc::downgrade(&share));
        share
    }
}

/// The address that stands for all that one client can have: its IPv6 network, and IPv4 however it is written.
fn one_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_BITS).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl ShareGates {
    /// Takes permits if they are free now.
    #[must_use]
    pub fn try_pass(&self, permits: u32) -> Option<HeldShare> {
        let pass = |gate: &Arc<Semaphore>| Arc::clone(gate).try_acquire_many_owned(permits).ok();
        let [address, listener, all] = &self.0;
        Some(HeldShare([pass(address)?, pass(listener)?, pass(all)?]))
    }

    /// Takes permits, waiting until the deadline for others to give them back.
    pub async fn pass(&self, permits: u32, deadline: Instant) -> Option<HeldShare> {
        let pass = async |gate: &Arc<Semaphore>| {
            timeout_at(deadline, Arc::clone(gate).acquire_many_owned(permits)).await.ok().and_then(Result::ok)
        };
        let [address, listener, all] = &self.0;
        Some(HeldShare([pass(address).await?, pass(listener).await?, pass(all).await?]))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
    }

    /// Permits, one after the other, until one is refused.
    fn take_all(gates: &ShareGates) -> Vec<HeldShare> {
        std::iter::from_fn(|| gates.try_pass(1)).collect()
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
    fn a_single_permit_is_anybodys() {
        assert!(SharedPermits::new(1).gates("http", peer(1)).try_pass(1).is_some());
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let permits = SharedPermits::new(8);
        for number in 0..10_000_u32 {
            let _ = permits.gates("http", IpAddr::V4(Ipv4Addr::from_bits(number)));
        }
        assert!(permits.addresses.lock().shares.len() <= ADDRESSES_KEPT_MIN);
    }

    #[test]
    fn one_host_once_had_a_share_for_each_of_its_ipv6_addresses() {
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
