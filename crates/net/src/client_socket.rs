//! The socket of a client, encrypted or not.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use crate::ServerTls;

/// HTTP/2, by its name in the handshake.
pub(crate) const HTTP2: &[u8] = b"h2";

/// The socket of a client.
#[derive(Debug)]
pub enum ClientSocket {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP; the box keeps plain connections small.
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl ClientSocket {
    /// Whether it is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }

    /// Whether the handshake chose HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        matches!(self, Self::Encrypted(stream) if stream.get_ref().1.alpn_protocol() == Some(HTTP2))
    }

    /// The common name in the client's certificate, which one of the listener's authorities signed; `None`: it showed none.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        let Self::Encrypted(stream) = self else { return None };
        let certificate = stream.get_ref().1.peer_certificates()?.first()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let mut names = parsed.subject().iter_common_name();
        // Two names would be two users.
        let name = names.next()?.as_str().ok()?.to_owned();
        names.next().is_none().then_some(name)
    }
}

/// Calls a method of the socket inside.
macro_rules! delegate {
    ($socket:expr, $method:ident $(, $argument:expr)*) => {
        match $socket.get_mut() {
            ClientSocket::Plain(stream) => Pin::new(stream).$method($($argument),*),
            ClientSocket::Encrypted(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, poll_write_vectored, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, poll_shutdown, cx)
    }
}

/// A bound listener, encrypted or not.
pub struct ClientListener {
    /// The socket.
    pub tcp: TcpListener,
    /// The encryption; `None`: clients speak plain TCP.
    pub tls: Option<ServerTls>,
}

impl From<TcpListener> for ClientListener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None }
    }
}
