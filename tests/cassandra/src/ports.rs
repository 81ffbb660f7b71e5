//! Which ports a cluster uses. All its nodes use the same, each on its own address.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};

use crate::{Error, NODES_MAX, Result};

/// Cassandra's own numbers: for clients, for other nodes, for its management.
const NATIVE: u16 = 9042;
const STORAGE: u16 = 7000;
const JMX: u16 = 7199;
/// Where clusters of tests are looked for room: above Cassandra's own, below those the kernel hands out.
const TEST_BASES: std::ops::RangeInclusive<u16> = 10_000..=20_000;
const TEST_STEP: usize = 250;

/// The ports of a cluster: Cassandra's own numbers, all moved by the same distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    base: u16,
}

impl Ports {
    /// Cassandra's own numbers moved by `base`; 0 leaves them.
    ///
    /// # Errors
    /// [`Error::Failed`] when that is beyond the last port.
    pub fn at(base: u16) -> Result<Self> {
        let last = u16::MAX - NATIVE;
        if base > last {
            return Err(Error::failed(format!("a port base is at most {last}")));
        }
        Ok(Self { base })
    }

    /// Numbers that nothing on this machine listens on now: for tests, which must not meet a node of a user.
    ///
    /// # Errors
    /// [`Error::Failed`] when none are left.
    pub fn free() -> Result<Self> {
        let all = TEST_BASES.step_by(TEST_STEP).map(|base| Self { base });
        let mut free = all.filter(|ports| ports.taken(NODES_MAX).is_none());
        free.next().ok_or_else(|| Error::failed("no free ports for a cluster"))
    }

    /// How far they are moved.
    #[must_use]
    pub const fn base(self) -> u16 {
        self.base
    }

    /// Where clients are answered.
    #[must_use]
    pub const fn native(self) -> u16 {
        NATIVE + self.base
    }

    /// Where other nodes are answered.
    #[must_use]
    pub const fn storage(self) -> u16 {
        STORAGE + self.base
    }

    /// Where a node's management answers, on 127.0.0.1 alone.
    #[must_use]
    pub fn jmx(self, number: usize) -> u16 {
        let above = u16::try_from(number.clamp(1, NODES_MAX) - 1).unwrap_or_default();
        JMX + self.base + above
    }

    /// The first address that something listens on already.
    pub(crate) fn taken(self, nodes: usize) -> Option<SocketAddr> {
        (1..=nodes).find_map(|number| self.taken_of(number))
    }

    /// The same for one node.
    pub(crate) fn taken_of(self, number: usize) -> Option<SocketAddr> {
        let own = address(number);
        let of_node = [(own, self.native()), (own, self.storage()), (Ipv4Addr::LOCALHOST, self.jmx(number))];
        let at = |(host, port): (Ipv4Addr, u16)| SocketAddr::V4(SocketAddrV4::new(host, port));
        of_node.into_iter().map(at).find(|at| TcpListener::bind(at).is_err())
    }
}

/// The address of a node, counted from 1.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, u8::try_from(number).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_is_seen_and_gone_round() {
        let ports = Ports::free().unwrap();
        let taken = TcpListener::bind(("127.0.0.2", ports.storage())).unwrap();
        assert_eq!(ports.taken(1), None);
        assert_eq!(ports.taken(2), Some(taken.local_addr().unwrap()));
        assert_ne!(Ports::free().unwrap(), ports);
    }

    #[test]
    fn numbers_are_moved_together() {
        let ports = Ports::at(10_000).unwrap();
        assert_eq!((ports.native(), ports.storage(), ports.jmx(1), ports.jmx(3)), (19_042, 17_000, 17_199, 17_201));
        assert!(Ports::at(60_000).is_err());
    }
}
