//! The certificate of a server under test, and the settings of clients that trust it alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rcgen::generate_simple_self_signed;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};

use crate::server::TlsPair;

/// Makes a pair for 127.0.0.1 in this folder, and a client's settings: no session is resumed, so that every handshake is whole.
///
/// # Errors
///
/// When a file cannot be written.
pub(crate) fn make(directory: &Path) -> Result<(TlsPair, Arc<ClientConfig>)> {
    let made = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let write = |name: &str, text: String| -> Result<PathBuf> {
        let path = directory.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    let pair = TlsPair {
        certificate: write("cert.pem", made.cert.pem())?,
        key: write("key.pem", made.signing_key.serialize_pem())?,
    };
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok((pair, Arc::new(config)))
}
