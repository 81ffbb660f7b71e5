//! Servers with security on, for clients that log in over TLS: each has the users `clients` and `others`, and grants for the
//! first one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Home, LarderNode};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Listeners for both protocols, with TLS.
const LISTENERS: &[&str] = &["--durability", "buffered", "--pb", "127.0.0.1:0", "--https", "127.0.0.1:0"];

/// Runs a script, which must succeed, against a server whose users have passwords. The script trusts its certificate.
#[track_caller]
pub(crate) fn check_with_password(script: &str, command: &mut Command) {
    let first = LarderNode::buffered();
    let directory = first.home().path().join("tls");
    first.admin().output(&["tls", "self-signed", directory.to_str().unwrap()]);
    let files = SignedFiles { certificate: directory.join("cert.pem"), key: directory.join("key.pem") };
    command.env("LARDER_CA", &files.certificate);
    check(first.into_home(), &files.args(), "password", script, command);
}

/// Runs a script, which must succeed, against a server whose users have certificates. The script trusts the authority, and has
/// the certificate of `clients` alone.
#[track_caller]
pub(crate) fn check_with_certificate(script: &str, command: &mut Command) {
    let home = Home::new();
    let authority = ClientAuthority::make(home.path());
    let server = authority.sign(home.path(), "localhost");
    let client = authority.sign(home.path(), "clients");
    let args = [vec!["--tls-client-ca", authority.file.to_str().unwrap()], server.args()].concat();
    command.env("LARDER_CA", &authority.file).env("LARDER_CERT", &client.certificate).env("LARDER_KEY", &client.key);
    check(home, &args, "certificate", script, command);
}

#[track_caller]
fn check(home: Home, args: &[&str], source: &str, script: &str, command: &mut Command) {
    let node = LarderNode::start_in(home, &[LISTENERS, args].concat());
    for line in [
        "add-user clients password=Test1234",
        "add-user others password=Other1234",
        &format!("add-source all 127.0.0.1/32 {source}"),
        &format!("add-source all ::1/128 {source}"),
        "grant riak_kv.get,riak_kv.put,riak_kv.list_keys on any to clients",
        "enable",
    ] {
        node.admin().output(&[&["security"][..], &line.split(' ').collect::<Vec<_>>()].concat());
    }
    command.env("LARDER_HTTP_PORT", node.https().port().to_string());
    crate::riak_clients::check_over(&node, script, command);
}

/// A certificate and its key, as PEM.
struct SignedFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl SignedFiles {
    /// The arguments of a server with this certificate.
    fn args(&self) -> Vec<&str> {
        vec!["--tls-cert", self.certificate.to_str().unwrap(), "--tls-key", self.key.to_str().unwrap()]
    }
}

/// An authority that signs the certificates of the server and of its clients.
struct ClientAuthority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl ClientAuthority {
    fn make(directory: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Authority");
        let file = directory.join("ca.pem");
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), file }
    }

    /// A certificate with this common name, in files of this name.
    fn sign(&self, directory: &Path, common_name: &str) -> SignedFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let [certificate_file, key_file] = ["pem", "key"].map(|end| directory.join(format!("{common_name}.{end}")));
        fs::write(&certificate_file, certificate.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        SignedFiles { certificate: certificate_file, key: key_file }
    }
}
