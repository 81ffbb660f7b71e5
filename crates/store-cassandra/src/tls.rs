//! Encrypted connections to the nodes.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session::TlsContext;

use crate::options::TlsOptions;

/// What the driver needs to encrypt.
///
/// # Errors
/// One line that names the file.
pub(crate) fn context(options: &TlsOptions) -> Result<TlsContext, String> {
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
    Ok(TlsContext::Rustls023(Arc::new(config)))
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("{}: {error}", path.display());
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() {
        return Err(format!("{}: there is no certificate in it", path.display()));
    }
    Ok(all)
}
