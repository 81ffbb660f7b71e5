//! Encrypted connections to the nodes.

use std::io::ErrorKind;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::options::TlsOptions;

/// The driver's TLS configuration.
///
/// # Errors
/// One line that names the file.
pub(crate) fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&options.ca)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", options.ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let config = match &options.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
            let config = config.with_client_auth_cert(chain, private);
            config.map_err(|error| format!("{}: {error}", certificate.display()))?
        }
    };
    Ok(Arc::new(config))
}

/// The TLS alert with which a node ends connections; `None` if there is none, or the node is unreachable.
///
/// In TLS 1.3 the client finishes its handshake before the server checks its certificate (RFC 8446 §2). The alert comes
/// later, and a client that sends data in between may fail with another error. This function sends nothing and reads
/// the alert.
pub(crate) async fn refusal(config: Arc<ClientConfig>, contact_point: &str) -> Option<String> {
    let address = lookup_host(contact_point).await.ok()?.next()?;
    let stream = TcpStream::connect(address).await.ok()?;
    let connecting = TlsConnector::from(config).connect(ServerName::IpAddress(address.ip().into()), stream);
    let ended = match connecting.await {
        Ok(mut stream) => stream.read_u8().await.err()?,
        Err(error) => error,
    };
    // Errors of other kinds come from the connection, not from TLS.
    (ended.kind() == ErrorKind::InvalidData).then(|| ended.to_string())
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("{}: {error}", path.display());
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() {
        return Err(format!("{}: there is no certificate in it", path.display()));
    }
    Ok(all)
}
