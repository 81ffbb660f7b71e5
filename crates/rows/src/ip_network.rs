//! A network of addresses, as settings and policies write it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: the addresses with the same leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u32,
}

impl IpNetwork {
    /// `10.0.0.0/8`, `2001:db8::/32`, or one address. Bits after the prefix count for nothing, and are not kept.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then(|| Self { address: first_address(address, most - bits), bits })
    }

    /// The number of leading bits that its addresses share.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Whether the address is one of them; an IPv4 address may be written as IPv6.
    #[must_use]
    pub fn contains(self, other: IpAddr) -> bool {
        // A shift by all bits gives no number in Rust; here it means that no bit may differ.
        let differ =
            |left: u128, right: u128, most: u32| (left ^ right).checked_shr(most - self.bits).unwrap_or(0) != 0;
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(left), IpAddr::V4(right)) => {
                !differ(u128::from(left.to_bits()), u128::from(right.to_bits()), 32)
            }
            (IpAddr::V6(left), IpAddr::V6(right)) => !differ(left.to_bits(), right.to_bits(), 128),
            _ => false,
        }
    }

    /// Whether it is narrow enough for AWS not to count as public: at least 8 bits of IPv4, or 32 of IPv6.
    pub fn is_narrow(self) -> bool {
        self.bits >= if self.address.is_ipv4() { 8 } else { 32 }
    }
}

/// The address with its last `free` bits cleared.
fn first_address(address: IpAddr, free: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let kept = u32::MAX.checked_shl(free).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & kept).into()
        }
        IpAddr::V6(address) => {
            let kept = u128::MAX.checked_shl(free).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & kept).into()
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_exactly_their_addresses() {
        let contains = |net: &str, address: &str| IpNetwork::parse(net).unwrap().contains(address.parse().unwrap());
        for (net, address) in [
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.1.2.3/8", "10.9.9.9"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3", "::ffff:10.1.2.3"),
            ("0.0.0.0/0", "1.2.3.4"),
            ("::/0", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::"),
            ("::1", "::1"),
        ] {
            assert!(contains(net, address), "{net} {address}");
        }
        for (net, address) in [
            ("10.0.0.0/8", "11.0.0.0"),
            ("10.1.2.3/32", "10.1.2.2"),
            ("10.1.2.3/31", "10.1.2.1"),
            ("0.0.0.0/0", "::1"),
            ("::/0", "1.2.3.4"),
            ("2001:db8::/32", "2001:db9::"),
        ] {
            assert!(!contains(net, address), "{net} {address}");
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "a", "10.0.0.0/8/8"] {
            assert_eq!(IpNetwork::parse(bad), None, "{bad}");
        }
    }
}
