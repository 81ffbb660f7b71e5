//! An authority that signs the certificates of servers and clients, and revokes them.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The settings of a client that trusts this certificate alone, and shows one of its own if it has one.
pub fn client_trusting(
    trusted: CertificateDer<'static>,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    Arc::new(match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
    })
}

/// An authority with its certificate in a file.
pub struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    file: PathBuf,
    signed: Cell<u64>,
}

/// A certificate of an authority, and its key.
pub struct SignedPair {
    certificate: rcgen::Certificate,
    key: KeyPair,
    serial: u64,
}

/// The same in files.
pub struct SignedFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TestAuthority {
    /// A new one, whose certificate is `ca.pem` in this directory.
    pub fn make(directory: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority");
        let certificate = params.self_signed(&key).unwrap();
        let file = directory.join("ca.pem");
        fs::write(&file, certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), der: certificate.der().clone(), file, signed: Cell::new(0) }
    }

    /// The file of its certificate.
    pub fn file(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// A certificate for this machine with this common name.
    pub fn sign(&self, common_name: &str) -> SignedPair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let serial = self.signed.get() + 1;
        self.signed.set(serial);
        params.serial_number = Some(SerialNumber::from(serial));
        SignedPair { certificate: params.signed_by(&key, &self.issuer).unwrap(), key, serial }
    }

    /// The settings of a client that trusts this authority, and shows a certificate if it has one.
    pub fn client(&self, own: Option<&SignedPair>) -> Arc<ClientConfig> {
        let own = own.map(|own| {
            let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
            (own.certificate.der().clone(), key)
        });
        client_trusting(self.der.clone(), own)
    }

    /// The list of its revoked certificates (PEM), valid until the end of a year.
    pub fn revocations(&self, revoked: &[&SignedPair], last_year: i32) -> String {
        let revoked = revoked.iter().map(|pair| RevokedCertParams {
            serial_number: SerialNumber::from(pair.serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(last_year, 12, 31),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

impl SignedPair {
    /// Writes both to files of this name.
    pub fn write(&self, directory: &Path, name: &str) -> SignedFiles {
        let [certificate, key] = ["pem", "key"].map(|end| directory.join(format!("{name}.{end}")));
        fs::write(&certificate, self.certificate.pem()).unwrap();
        fs::write(&key, self.key.serialize_pem()).unwrap();
        SignedFiles { certificate, key }
    }
}

impl SignedFiles {
    /// The arguments of a server with this certificate.
    pub fn args(&self) -> [&str; 4] {
        ["--tls-cert", self.certificate.to_str().unwrap(), "--tls-key", self.key.to_str().unwrap()]
    }
}
