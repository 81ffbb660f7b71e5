//! The address of a server.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::ClientConfig;

/// A server's address, and its name in requests.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// The address to connect to.
    pub(crate) address: SocketAddr,
    /// The value of the `Host` header.
    pub(crate) host: String,
    /// The settings of TLS, if it is spoken there.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Endpoint {
    /// The endpoint of `http://host:port`, or of `http://host` and this port.
    ///
    /// # Errors
    ///
    /// Another scheme, a path, or a name without an address.
    pub(crate) fn from_url(url: &str, port: u16) -> Result<Self> {
        let rest = url.strip_prefix("http://").with_context(|| format!("{url}: only http:// is supported"))?;
        let host = rest.trim_end_matches('/');
        if host.is_empty() || host.contains('/') {
            bail!("{url}: expected http://HOST:PORT");
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        let address = host.to_socket_addrs()?.next().with_context(|| format!("{host}: no address"))?;
        Ok(Self { address, host, tls: None })
    }

    /// The endpoint of an address.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), tls: None }
    }

    /// A loopback address with a free port.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub(crate) fn free() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
        Ok(Self::at(listener.local_addr()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_an_address() {
        let endpoint = Endpoint::from_url("http://127.0.0.1:8099/", 80).unwrap();
        assert_eq!(endpoint.address.to_string(), "127.0.0.1:8099");
        assert_eq!(endpoint.host, "127.0.0.1:8099");
        assert_eq!(Endpoint::from_url("http://127.0.0.1", 8098).unwrap().address.port(), 8098);
    }

    #[test]
    fn other_urls_are_refused() {
        for url in ["https://127.0.0.1:8098", "127.0.0.1:8098", "http://", "http://127.0.0.1:1/riak"] {
            assert!(Endpoint::from_url(url, 80).is_err(), "{url}");
        }
    }
}
