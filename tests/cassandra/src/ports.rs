//! The ports of a cluster. All nodes use the same ports, each on its own address.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};

use crate::{Error, NODES_MAX, Result};

/// Cassandra's default ports: for clients, for other nodes, for management.
const NATIVE: u16 = 9042;
const STORAGE: u16 = 7000;
const JMX: u16 = 7199;
/// Offsets for clusters of tests: above Cassandra's default ports, below the kernel's ephemeral ones.
const TEST_BASES: std::ops::RangeInclusive<u16> = 10_000..=20_000;
const TEST_STEP: usize = 250;

/// The ports of a cluster: Cassandra's default ports plus an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CassandraPorts {
    base: u16,
}

impl CassandraPorts {
    /// Cassandra's default ports plus `base`.
    ///
    /// # Errors
    /// [`Error::Failed`] above the last port.
    pub fn at(base: u16) -> Result<Self> {
        let last = u16::MAX - NATIVE;
        if base > last {
            return Err(Error::failed(format!("a port base is at most {last}")));
        }
        Ok(Self { base })
    }

    /// Ports that are free on this machine now: a test must not use a node of a user.
    ///
    /// # Errors
    /// [`Error::Failed`] when no ports are free.
    pub fn free() -> Result<Self> {
        let all = TEST_BASES.step_by(TEST_STEP).map(|base| Self { base });
        let mut free = all.filter(|ports| ports.first_in_use(NODES_MAX).is_none());
        free.next().ok_or_else(|| Error::failed("no free ports for a cluster"))
    }

    /// The offset.
    #[must_use]
    pub const fn base(self) -> u16 {
        self.base
    }

    /// The port for clients.
    #[must_use]
    pub const fn native(self) -> u16 {
        NATIVE + self.base
    }

    /// The port for other nodes.
    #[must_use]
    pub const fn storage(self) -> u16 {
        STORAGE + self.base
    }

    /// The port of a node's management, on 127.0.0.1 alone.
    #[must_use]
    pub fn jmx(self, number: usize) -> u16 {
        let above = u16::try_from(number.clamp(1, NODES_MAX) - 1).unwrap_or_default();
        JMX + self.base + above
    }

    /// The first address that is in use already.
    pub(crate) fn first_in_use(self, nodes: usize) -> Option<SocketAddr> {
        (1..=nodes).find_map(|number| self.first_in_use_of(number))
    }

    /// The first address of one node that is in use already.
    pub(crate) fn first_in_use_of(self, number: usize) -> Option<SocketAddr> {
        let own = address(number);
        let taken = [(own, self.native()), (own, self.storage()), (Ipv4Addr::LOCALHOST, self.jmx(number))];
        let at = |(host, port): (Ipv4Addr, u16)| SocketAddr::V4(SocketAddrV4::new(host, port));
        taken.into_iter().map(at).find(|at| TcpListener::bind(at).is_err())
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
    fn ports_in_use_are_found_and_avoided() {
        let ports = CassandraPorts::free().unwrap();
        let taken = TcpListener::bind(("127.0.0.2", ports.storage())).unwrap();
        assert_eq!(ports.first_in_use(1), None);
        assert_eq!(ports.first_in_use(2), Some(taken.local_addr().unwrap()));
        assert_ne!(CassandraPorts::free().unwrap(), ports);
    }

    #[test]
    fn all_ports_have_one_offset() {
        let ports = CassandraPorts::at(10_000).unwrap();
        assert_eq!((ports.native(), ports.storage(), ports.jmx(1), ports.jmx(3)), (19_042, 17_000, 17_199, 17_201));
        assert!(CassandraPorts::at(60_000).is_err());
    }
}
