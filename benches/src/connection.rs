//! A connection to a server: plain, or with TLS where its endpoint has it.

use anyhow::{Context, Result};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::endpoint::Endpoint;

/// A stream of bytes.
pub(crate) enum Connection {
    /// Over TCP.
    Plain(TcpStream),
    /// With TLS over it.
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Connects, and ends the handshake of TLS.
    ///
    /// # Errors
    ///
    /// When no server answers there, or its certificate is not that of the endpoint.
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self> {
        let address = endpoint.address;
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        let Some(tls) = &endpoint.tls else { return Ok(Self::Plain(stream)) };
        let name = ServerName::IpAddress(address.ip().into());
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await;
        Ok(Self::Encrypted(Box::new(stream.with_context(|| format!("TLS with {address}"))?)))
    }

    /// Sends all bytes.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Encrypted(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Receives bytes; 0 at the end.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into).await,
            Self::Encrypted(stream) => stream.read(into).await,
        }
    }
}
