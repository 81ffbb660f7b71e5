//! Where a request came from: the peer, or what a proxy that is trusted says of it.

use std::net::IpAddr;

use hyper::header::HeaderMap;

/// Where a request came from, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The address.
    pub source: IpAddr,
    /// Whether over TLS.
    pub secure: bool,
}

impl Origin {
    /// Reads `X-Forwarded-For` and `X-Forwarded-Proto` when `peer` is one of the `proxies`: of several addresses the last one
    /// that is no proxy itself, for what stands before it anybody can have written.
    pub(crate) fn of(peer: IpAddr, headers: &HeaderMap, proxies: &[IpAddr]) -> Self {
        let peer = peer.to_canonical();
        if !proxies.contains(&peer) {
            return Self { source: peer, secure: false };
        }
        let lines = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let named: Vec<IpAddr> =
            lines.flat_map(|line| line.split(',')).map_while(|one| one.trim().parse().ok()).collect();
        let source = named.iter().rev().find(|address| !proxies.contains(address)).copied().unwrap_or(peer);
        let secure =
            headers.get("x-forwarded-proto").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"https"));
        Self { source, secure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_is_believed() {
        let proxies: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let headers: HeaderMap = [
            ("x-forwarded-for".parse().unwrap(), "6.6.6.6, 1.2.3.4, 10.0.0.2".parse().unwrap()),
            ("x-forwarded-proto".parse().unwrap(), "https".parse().unwrap()),
        ]
        .into_iter()
        .collect();
        let of = |peer: &str, headers| Origin::of(peer.parse().unwrap(), headers, &proxies);
        let (named, bare) = ("1.2.3.4".parse().unwrap(), "10.0.0.1".parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1", &headers), Origin { source: named, secure: true });
        assert_eq!(of("9.9.9.9", &headers), Origin { source: "9.9.9.9".parse().unwrap(), secure: false });
        assert_eq!(of("10.0.0.1", &HeaderMap::new()), Origin { source: bare, secure: false });
    }
}
