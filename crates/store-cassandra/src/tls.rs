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

/// What the driver needs to encrypt.
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

/// Why a node ends encrypted connections; `None`: it does not, or it could not be asked.
///
/// In TLS 1.3 a client has shaken hands before the server looks at its certificate (RFC 8446 §2), so the alert that refuses it
/// meets what the driver sends next, which then fails for another reason. Here nothing is sent, and the alert is read.
pub(crate) async fn refusal(config: Arc<ClientConfig>, contact_point: &str) -> Option<String> {
    let address = lookup_host(contact_point).await.ok()?.next()?;
    let stream = TcpStream::connect(address).await.ok()?;
    let connecting = TlsConnector::from(config).connect(ServerName::IpAddress(address.ip().into()), stream);
    let ended = match connecting.await {
        Ok(mut stream) => stream.read_u8().await.err()?,
        Err(error) => error,
    };
    // Other kinds are of the connection, not of TLS.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::{fs, thread};

    use rcgen::{CertificateParams, KeyPair};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::connect::connect;
    use crate::connect::tests::options;
    use crate::options::ConnectOptions;

    /// Lets nobody in who shows no certificate.
    fn node(listener: &TcpListener, certificate: CertificateDer<'static>, key: &KeyPair) {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
        let config = Arc::new(config);
        for mut stream in listener.incoming().map(Result::unwrap) {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_certificate_that_is_missed_is_said_whatever_the_driver_fails_of() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        fs::write(&ca, certificate.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let contact_points = vec![listener.local_addr().unwrap().to_string()];
        thread::spawn(move || node(&listener, certificate.der().clone(), &key));

        for _ in 0..20 {
            let tls = Some(TlsOptions { ca: ca.clone(), identity: None });
            let told = ConnectOptions { contact_points: contact_points.clone(), tls, ..options("larder") };
            let Err(error) = connect(told).await else { panic!("let in") };
            let text = error.to_string();
            assert!(text.contains("received fatal alert: CertificateRequired") && !text.contains('\n'), "{text}");
        }
    }
}
