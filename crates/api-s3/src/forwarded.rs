//! Where a request came from: the peer, or what a proxy that is trusted says of it.

use std::net::{IpAddr, SocketAddr};

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
    /// Reads `X-Forwarded-For` and `X-Forwarded-Proto` when `peer` is one of the `proxies`. Of several addresses the last one
    /// that is no proxy itself counts: what stands before it anybody can have written, so it is not even looked at. Where that
    /// place holds no address, the last proxy that is known stands for the client.
    pub(crate) fn of(peer: IpAddr, headers: &HeaderMap, proxies: &[IpAddr]) -> Self {
        let peer = peer.to_canonical();
        if !proxies.contains(&peer) {
            return Self { source: peer, secure: false };
        }
        let mut source = peer;
        let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        for named in lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
            let Some(address) = address(named) else { break };
            source = address;
            if !proxies.contains(&source) {
                break;
            }
        }
        let said = headers.get_all("x-forwarded-proto").iter().next_back();
        let secure = said.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"https"));
        Self { source, secure }
    }
}

/// An address as proxies write it: some add the port.
fn address(named: &[u8]) -> Option<IpAddr> {
    let named = std::str::from_utf8(named).ok()?.trim();
    let address = named.parse().ok().or_else(|| named.parse().ok().map(|socket: SocketAddr| socket.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

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

    #[test]
    fn what_the_client_wrote_before_the_proxy_is_never_its_address() {
        let proxies: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let of = |lines: &[&[u8]]| {
            let line = |line: &&[u8]| ("x-forwarded-for".parse().unwrap(), HeaderValue::from_bytes(line).unwrap());
            let headers: HeaderMap = lines.iter().map(line).collect();
            Origin::of("10.0.0.1".parse().unwrap(), &headers, &proxies).source.to_string()
        };
        assert_eq!(of(&[b"6.6.6.6, junk, 1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"\xff, 1.2.3.4, 10.0.0.2"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6", b"1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6", b"1.2.3.4:567"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6, ::ffff:1.2.3.4"]), "1.2.3.4");
        // Somebody in between who does not say who asked: whoever stands before is not believed.
        assert_eq!(of(&[b"6.6.6.6, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(of(&[b""]), "10.0.0.1");
    }
}
