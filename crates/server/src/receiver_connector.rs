//! Connections to other servers, to receivers of notices and to sources of moves: in clear, or over TLS with a certificate that an
//! authority signed.

use std::error::Error;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

/// Where systems keep the authorities that they trust.
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Time to connect, before TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type BoxedError = Box<dyn Error + Send + Sync>;

/// Connects to receivers and sources.
#[derive(Clone)]
pub(crate) struct ReceiverConnector {
    http: HttpConnector,
    /// `None`: the machine names no authority.
    tls: Option<TlsConnector>,
}

impl ReceiverConnector {
    /// A connector that trusts the authorities of this file (PEM); `None`: those of the system.
    ///
    /// # Errors
    /// One line that names the file. A system without authorities is none: only https fails then.
    pub(crate) fn new(authorities: Option<&Path>) -> Result<Self, String> {
        let mut http = HttpConnector::new();
        // It would refuse the addresses with https that are wrapped here.
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_nodelay(true);
        let tls = match authorities {
            Some(file) => Some(tls_connector(roots(file)?)?),
            None => {
                let found = SYSTEM_ROOTS.iter().find_map(|file| roots(Path::new(file)).ok());
                found.map(tls_connector).transpose()?
            }
        };
        Ok(Self { http, tls })
    }
}

/// The authorities in a file. Those that cannot be read are left out; one at least is needed.
fn roots(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("{}: {error}", file.display());
    let all: Vec<_> = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(all).0 {
        0 => Err(format!("{}: there is no certificate in it", file.display())),
        _ => Ok(roots),
    }
}

fn tls_connector(roots: RootCertStore) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Service<Uri> for ReceiverConnector {
    type Response = ReceiverStream;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<ReceiverStream, BoxedError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxedError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (connecting, tls) = (self.http.call(uri), self.tls.clone());
        Box::pin(async move {
            let stream = connecting.await?;
            if !is_https {
                return Ok(ReceiverStream::Clear(stream));
            }
            let tls = tls.ok_or("this machine trusts no certificate authority: name some with --webhook-ca")?;
            let encrypted = tls.connect(ServerName::try_from(host)?, stream.into_inner()).await?;
            Ok(ReceiverStream::Encrypted(Box::new(TokioIo::new(encrypted))))
        })
    }
}

/// A connection to a receiver, or a source.
pub(crate) enum ReceiverStream {
    Clear(TokioIo<TcpStream>),
    Encrypted(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for ReceiverStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for ReceiverStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Write for ReceiverStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use bytes::Bytes;
    use larder_core::WebhookRequest;
    use larder_core::rules::props::WebhookUrl;
    use rcgen::{Certificate, CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;
    use crate::webhook_client::webhook_client;

    /// A certificate that signed itself, for this host.
    pub(crate) fn self_signed(host: &str) -> (KeyPair, Certificate) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
        (key, certificate)
    }

    /// A server with this certificate, which answers one request that has this end; returns the request.
    pub(crate) fn tls_server(
        listener: TcpListener,
        (key, certificate): &(KeyPair, Certificate),
        end: &'static [u8],
        answer: &'static [u8],
    ) -> thread::JoinHandle<String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config =
            Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap());
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
            let mut request = Vec::new();
            let mut piece = [0; 1024];
            while !request.ends_with(end) {
                match stream.read(&mut piece) {
                    Ok(count) if count > 0 => request.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer).and_then(|()| stream.flush());
            String::from_utf8(request).unwrap()
        })
    }

    #[tokio::test]
    async fn a_receiver_whose_certificate_nobody_signed_gets_nothing() {
        let certified = self_signed("localhost");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        fs::write(&file, certified.1.pem()).unwrap();
        for (authorities, host, is_received) in
            [(Some(file.as_path()), "localhost", true), (Some(&*file), "127.0.0.1", false), (None, "localhost", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("https://{host}:{}/", listener.local_addr().unwrap().port());
            let received = tls_server(listener, &certified, b"{}", b"HTTP/1.1 204 No Content\r\n\r\n");
            let (url, body) = (WebhookUrl::parse(&url).unwrap(), Bytes::from_static(b"{}"));
            let request = WebhookRequest { url: &url, id: "i", authorization: None, body };
            let sent = webhook_client(authorities).unwrap().post(request).await;
            assert_eq!(sent.is_ok(), is_received, "{host}: {sent:?}");
            assert_eq!(received.join().unwrap().starts_with("POST / "), is_received, "{host}");
        }
        assert!(webhook_client(Some(&dir.path().join("absent"))).is_err_and(|error| error.contains("absent")));
    }
}
