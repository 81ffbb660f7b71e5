//! The failed log-ins of each address that are paused now. Above a bound, further ones of the address are refused unseen.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Most failures of an address at a time.
const PER_ADDRESS_MAX: usize = 8;
/// Most failures in all.
const ALL_MAX: usize = 4096;

/// Failed log-ins by address.
#[derive(Debug, Default)]
pub(super) struct FailedLogins(Mutex<HashMap<IpAddr, usize>>);

impl FailedLogins {
    /// Whether the address may try.
    pub(super) fn may_try(&self, address: IpAddr) -> bool {
        let failed = self.0.lock();
        // Each address has one failure at least, so their number bounds the map.
        failed.len() < ALL_MAX && failed.get(&network_of(address)).is_none_or(|count| *count < PER_ADDRESS_MAX)
    }

    /// Counts a failure until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, address: IpAddr) -> FailureGuard {
        let address = network_of(address);
        *self.0.lock().entry(address).or_default() += 1;
        FailureGuard { failed: Arc::clone(self), address }
    }
}

/// A failure that counts.
#[must_use = "a failure counts as long as this lives"]
pub(super) struct FailureGuard {
    failed: Arc<FailedLogins>,
    address: IpAddr,
}

impl Drop for FailureGuard {
    fn drop(&mut self) {
        let mut failed = self.failed.0.lock();
        if let Some(count) = failed.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                failed.remove(&self.address);
            }
        }
    }
}

/// One IPv6 client has 2⁶⁴ addresses: they count as one.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_few_failures_at_a_time() {
        let failed = Arc::new(FailedLogins::default());
        let [one, near, far, v4]: [IpAddr; 4] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "127.0.0.1"].map(|address| address.parse().unwrap());
        let guards: Vec<_> = (0..PER_ADDRESS_MAX).map(|_| failed.begin(one)).collect();
        assert_eq!([one, near, far, v4].map(|address| failed.may_try(address)), [false, false, true, true]);
        drop(guards);
        assert!(failed.may_try(one) && failed.0.lock().is_empty());
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let failed = Arc::new(FailedLogins::default());
        let address = |at: usize| IpAddr::V4(u32::try_from(at).unwrap().into());
        let guards: Vec<_> = (0..ALL_MAX).map(|at| failed.begin(address(at))).collect();
        assert!(!failed.may_try(address(ALL_MAX)));
        drop(guards);
        assert!(failed.may_try(address(ALL_MAX)));
    }
}
