//! Encryption of a listener: the certificate that clients see, and its replacement while connections run.
//!
//! Tools that renew certificates write the files one after the other. A pair that does not fit is refused, so the old one
//! serves until both files are there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use larder_admission::{ClientAccount, HeldMemory};
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::client_socket::{ClientSocket, HTTP2};

/// Memory of an encrypted connection beyond that of a plain one.
pub(crate) const ENCRYPTION_BYTES_HELD: u64 = 96 * 1024;
/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The older protocol of the HTTP listeners, by its name in the handshake. Clients of protocol buffers ask for none.
const HTTP1: &[u8] = b"http/1.1";
static ALL_VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
static NEW_VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// The files and rules of an encrypted listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its chain (PEM).
    pub certificate: PathBuf,
    /// The key of the certificate (PEM).
    pub key: PathBuf,
    /// Authorities (PEM): a client needs a certificate of one of them. `None`: clients need none.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists (PEM) of those authorities. `None`: no certificate is revoked.
    pub client_crl: Option<PathBuf>,
    /// Whether TLS 1.2 is refused.
    pub requires_tls13: bool,
}

/// The bytes of the files.
#[derive(PartialEq, Eq)]
struct TlsMaterial {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    client_crl: Option<Vec<u8>>,
}

/// The encryption of listeners. Clones are the same.
#[derive(Clone)]
pub struct ServerTls(Arc<SharedTls>);

struct SharedTls {
    files: TlsFiles,
    loaded: Mutex<LoadedTls>,
}

struct LoadedTls {
    /// The files as they were last read, whether they fit or not.
    read: TlsMaterial,
    config: Arc<ServerConfig>,
    /// The same for clients that began in clear: they may show a certificate, and need none.
    started: Arc<ServerConfig>,
    /// When the first certificate of the chain ends, in seconds since 1970.
    ends: Option<u64>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A line that names the file and what is wrong with it.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let read = TlsMaterial::read(&files)?;
        let (config, started) = (read.config(&files, true)?, read.config(&files, false)?);
        let ends = read.ends(&files);
        Ok(Self(Arc::new(SharedTls { files, loaded: Mutex::new(LoadedTls { read, config, started, ends }) })))
    }

    /// Reads the files again, and takes what they hold for new connections if it changed; `false`: it did not.
    ///
    /// # Errors
    /// A line as from [`Self::load`]; the old certificate stays in use. The same files give their error once.
    pub fn reload(&self) -> Result<bool, String> {
        let SharedTls { files, loaded } = &*self.0;
        let read = TlsMaterial::read(files)?;
        if loaded.lock().read == read {
            return Ok(false);
        }
        let configs = read.config(files, true).and_then(|config| Ok((config, read.config(files, false)?)));
        let ends = read.ends(files);
        let mut loaded = loaded.lock();
        loaded.read = read;
        (loaded.config, loaded.started) = configs?;
        loaded.ends = ends;
        Ok(true)
    }

    /// The seconds since 1970 at which the first certificate of the chain in use ends; `None`: none can be read.
    #[must_use]
    pub fn ends(&self) -> Option<u64> {
        self.0.loaded.lock().ends
    }

    /// Makes a connection encrypted, as its server.
    ///
    /// # Errors
    /// The client offers nothing that fits, shows no certificate where it needs one, or takes too long.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<ClientSocket> {
        let config = Arc::clone(&self.0.loaded.lock().config);
        handshake(config, stream).await
    }

    /// Makes a connection encrypted that began in clear. It draws the memory of an encrypted one from the client's account.
    ///
    /// # Errors
    /// As for a connection that begins encrypted, but the client needs no certificate; or its memory is spent, or it is encrypted
    /// already.
    pub async fn start(&self, socket: ClientSocket, account: &ClientAccount) -> io::Result<(ClientSocket, HeldMemory)> {
        let ClientSocket::Plain(stream) = socket else { return Err(io::ErrorKind::InvalidInput.into()) };
        let held = account.try_draw(ENCRYPTION_BYTES_HELD).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let config = Arc::clone(&self.0.loaded.lock().started);
        Ok((handshake(config, stream).await?, held))
    }
}

async fn handshake(config: Arc<ServerConfig>, stream: TcpStream) -> io::Result<ClientSocket> {
    let handshake = TlsAcceptor::from(config).accept(stream);
    // Bound: a client that never ends its handshake holds a place among the connections.
    let stream = tokio::time::timeout(HANDSHAKE_MAX, handshake).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(ClientSocket::Encrypted(Box::new(stream)))
}

impl TlsMaterial {
    fn read(files: &TlsFiles) -> Result<Self, String> {
        let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
            client_crl: files.client_crl.as_deref().map(read).transpose()?,
        })
    }

    fn ends(&self, files: &TlsFiles) -> Option<u64> {
        let chain = certificates(&files.certificate, &self.certificate).ok()?;
        let ends = chain.iter().filter_map(|certificate| {
            let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
            u64::try_from(parsed.validity().not_after.timestamp()).ok()
        });
        ends.min()
    }

    /// The settings in these bytes; `needs_certificate`: clients need one, where there are authorities.
    fn config(&self, files: &TlsFiles, needs_certificate: bool) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions = if files.requires_tls13 { NEW_VERSIONS } else { ALL_VERSIONS };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = match self.client_verifier(files, needs_certificate, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let chain = certificates(&files.certificate, &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| wrong(&files.key, &error))?;
        let mut config = builder.with_single_cert(chain, key).map_err(|error| wrong(&files.certificate, &error))?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(Arc::new(config))
    }

    /// The judge of clients' certificates; `None` without authorities.
    fn client_verifier(
        &self,
        files: &TlsFiles,
        needs_certificate: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        let (Some(path), Some(bytes)) = (&files.client_ca, &self.client_ca) else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for authority in certificates(path, bytes)? {
            roots.add(authority).map_err(|error| wrong(path, &error))?;
        }
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if let (Some(path), Some(bytes)) = (&files.client_crl, &self.client_crl) {
            // Every authority of a chain needs a list, and one that is still valid: a missing or old one may hide a revocation.
            verifier = verifier.with_crls(revocations(path, bytes)?).enforce_revocation_expiration();
        }
        let verifier = if needs_certificate { verifier } else { verifier.allow_unauthenticated() };
        // The lists are the only part that building can find wrong.
        let named = files.client_crl.as_ref().unwrap_or(path);
        Ok(Some(verifier.build().map_err(|error| wrong(named, &error))?))
    }
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    pem_items(path, bytes, "certificate")
}

fn revocations(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    pem_items(path, bytes, "revocation list")
}

/// The items of a kind; other kinds are passed over.
fn pem_items<T: PemObject>(path: &Path, bytes: &[u8], kind: &str) -> Result<Vec<T>, String> {
    let all: Vec<T> = T::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(|error| wrong(path, &error))?;
    if all.is_empty() { Err(format!("{}: there is no {kind} in it", path.display())) } else { Ok(all) }
}

/// OpenSSL's names of the ciphers that listeners offer, the preferred ones first. Those of TLS 1.3 begin with `TLS_`.
pub const CIPHER_NAMES: [&str; 9] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// A list of ciphers, sorted into those that listeners offer and all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CipherList<'a> {
    /// The names that listeners offer.
    pub offered: Vec<&'a str>,
    /// The names that they do not.
    pub others: Vec<&'a str>,
}

impl<'a> CipherList<'a> {
    /// Reads a list with colons.
    #[must_use]
    pub fn parse(list: &'a str) -> Self {
        let names = list.split(':').filter(|name| !name.is_empty());
        let (offered, others) = names.partition(|name| CIPHER_NAMES.contains(name));
        Self { offered, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sorted_into_offered_ciphers_and_others() {
        let list = CipherList::parse("RC4-SHA:ECDHE-RSA-AES256-GCM-SHA384::TLS_AES_128_GCM_SHA256");
        assert_eq!(list.offered, ["ECDHE-RSA-AES256-GCM-SHA384", "TLS_AES_128_GCM_SHA256"]);
        assert_eq!(list.others, ["RC4-SHA"]);
    }

    #[test]
    fn the_names_are_those_of_the_encryption() {
        // rustls calls a cipher of TLS 1.2 by the name of its registry: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384.
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let shown = |name: String| name.replace("TLS13", "TLS").replace("_WITH", "");
        let offered: Vec<String> =
            provider.cipher_suites.iter().map(|suite| shown(format!("{:?}", suite.suite()))).collect();
        let ours: Vec<String> = CIPHER_NAMES
            .iter()
            .map(|name| match name.starts_with("TLS_") {
                true => (*name).to_owned(),
                false => {
                    let name = name.replace("AES256", "AES_256").replace("AES128", "AES_128").replace('-', "_");
                    let mac = if name.ends_with("POLY1305") { "_SHA256" } else { "" };
                    format!("TLS_{name}{mac}")
                }
            })
            .collect();
        assert_eq!(offered, ours);
    }
}
