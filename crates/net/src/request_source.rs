//! The client of a request. This is the one place that decides it: from the peer's address, a PROXY header, or a trusted proxy's
//! `X-Forwarded-For` and `X-Forwarded-Proto`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::HeaderMap;
use larder_rows::ip_network::IpNetwork;

/// Most entries of `X-Forwarded-For` that are read: each may be a trusted proxy, so a list of them has no end otherwise.
const HOPS_MAX: usize = 64;
const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The proxies whose statements about clients are believed. Clones share the list.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[IpNetwork]>);

impl TrustedProxies {
    /// The addresses of these networks.
    #[must_use]
    pub fn new(networks: &[IpNetwork]) -> Self {
        Self(networks.into())
    }

    /// Whether the address is a proxy.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

/// The address of a client, and whether it used TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSource {
    /// Its address; never an IPv4 address written as IPv6.
    pub address: IpAddr,
    /// Whether it encrypts: to this server, or to a trusted proxy.
    pub secure: bool,
}

impl RequestSource {
    /// A client that connects without TLS.
    #[must_use]
    pub fn plain(address: IpAddr) -> Self {
        Self { address: address.to_canonical(), secure: false }
    }

    /// The client that these headers name. `self`, which sends them, is one of the `proxies`. The client is the last address
    /// that is no proxy: addresses before it can be forged. If that position holds no address, the last known proxy stands for
    /// the client.
    pub(crate) fn forwarded(self, headers: &HeaderMap, proxies: &TrustedProxies) -> Self {
        let mut address = self.address;
        let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
        // The last entry is from the nearest proxy; a client can forge all before it.
        let entries = lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for text in entries.take(HOPS_MAX) {
            let Some(named) = parse_address(text) else { break };
            address = named;
            if !proxies.contains(address) {
                break;
            }
        }
        // As above, the last entry counts: the nearest proxy wrote it.
        let proto = headers.get_all(FORWARDED_PROTO).iter().next_back();
        let proto = proto.and_then(|line| line.as_bytes().rsplit(|byte| *byte == b',').next());
        let secure = match proto {
            Some(proto) => proto.trim_ascii().eq_ignore_ascii_case(b"https"),
            // Attack: a proxy that encrypts its own connection to here says nothing of a client that does not.
            None => self.secure && address == self.address,
        };
        Self { address, secure }
    }
}

/// Parses an address; some proxies append the port, or write IPv6 in brackets.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn proxies() -> TrustedProxies {
        TrustedProxies::new(&["10.0.0.0/30", "fd00::/64"].map(|text| IpNetwork::parse(text).unwrap()))
    }

    fn source(headers: &[(&'static str, &[u8])]) -> RequestSource {
        let pair =
            |(name, value): &(&'static str, &[u8])| (name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap());
        let headers: HeaderMap = headers.iter().map(pair).collect();
        RequestSource::plain("::ffff:10.0.0.1".parse().unwrap()).forwarded(&headers, &proxies())
    }

    #[test]
    fn forged_entries_before_the_proxys_own_are_ignored() {
        let of = |lines: &[&[u8]]| {
            let lines: Vec<_> = lines.iter().map(|line| (FORWARDED_FOR, *line)).collect();
            source(&lines).address.to_string()
        };
        assert_eq!(of(&[b"6.6.6.6, 1.2.3.4, 10.0.0.2"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6, junk, 1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"\xff, 1.2.3.4, 10.0.0.2"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6", b"1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6", b"1.2.3.4:567"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6, ::ffff:1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6, 2001:db8::1,fd00::7"]), "2001:db8::1");
        assert_eq!(of(&[b"[2001:db8::1]:80 , [fd00::7]"]), "2001:db8::1");
        // An intermediary hid its client; the entries before it can be forged.
        for hidden in [&b"6.6.6.6, unknown, 10.0.0.2"[..], b"6.6.6.6,, 10.0.0.2", b"6.6.6.6, [::1, 10.0.0.2"] {
            assert_eq!(of(&[hidden]), "10.0.0.2");
        }
        assert_eq!(of(&[b""]), "10.0.0.1");
        assert_eq!(of(&[b"10.0.0.2"]), "10.0.0.2", "all are proxies");
        let long = [&b"6.6.6.6, "[..], &b"10.0.0.2, ".repeat(500), b"10.0.0.3"].concat();
        assert_eq!(of(&[&long]), "10.0.0.2", "a list without end is read in part");
    }

    #[test]
    fn the_nearest_proxy_says_whether_the_client_encrypts() {
        let is_secure = |lines: &[&[u8]]| {
            let lines: Vec<_> = lines.iter().map(|line| (FORWARDED_PROTO, *line)).collect();
            source(&lines).secure
        };
        assert!(is_secure(&[b"https"]) && is_secure(&[b"http, HTTPS"]) && is_secure(&[b"http", b"https"]));
        assert!(!is_secure(&[]) && !is_secure(&[b"https, http"]) && !is_secure(&[b"https", b"junk"]));
    }

    #[test]
    fn a_proxy_that_encrypts_its_own_connection_does_not_make_its_client_secure() {
        let encrypted = RequestSource { secure: true, ..RequestSource::plain([10, 0, 0, 1].into()) };
        let is_secure = |headers: &[(&'static str, &'static str)]| {
            let pair =
                |(name, value): &(&'static str, &'static str)| (name.parse().unwrap(), HeaderValue::from_static(value));
            encrypted.forwarded(&headers.iter().map(pair).collect(), &proxies()).secure
        };
        assert!(is_secure(&[]) && !is_secure(&[(FORWARDED_FOR, "1.2.3.4")]));
        assert!(is_secure(&[(FORWARDED_FOR, "1.2.3.4"), (FORWARDED_PROTO, "https")]));
    }
}
