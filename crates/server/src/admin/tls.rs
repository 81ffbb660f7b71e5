//! `tls self-signed`: a certificate for trying encrypted listeners.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use larder_kv_admin::frame::AdminAnswer;
use rcgen::{CertificateParams, DnType, KeyPair, KeyUsagePurpose};

use super::command::{CommandCall, CommandResult};
use crate::settings::table;

/// The names of a certificate that asks for none.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

pub(super) async fn self_signed(call: CommandCall<'_>) -> CommandResult {
    let (directory, names) = (Path::new(call.args[0]), &call.args[1..]);
    if !directory.is_absolute() {
        return Err(AdminAnswer::failed("the directory is on the server's machine: give its whole path"));
    }
    let names: Vec<String> =
        if names.is_empty() { &OWN_NAMES[..] } else { names }.iter().copied().map(str::to_owned).collect();
    let pair = make(names).map_err(|error| AdminAnswer::failed(format!("certificate not made: {error}")))?;
    write(directory, &pair).map_err(|error| AdminAnswer::failed(format!("certificate not written: {error}")))?;
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    Ok(AdminAnswer::done(format!(
        "{}\n{}\nStart the server with it, and give its clients {CERTIFICATE} as the authority they trust:\n  \
         larder {} 127.0.0.1:8443 {} {} {} {}",
        certificate.display(),
        key.display(),
        table::HTTPS.flag(),
        table::TLS_CERT.flag(),
        certificate.display(),
        table::TLS_KEY.flag(),
        key.display()
    )))
}

/// A certificate and its key, both PEM.
struct SelfSignedPair {
    certificate: String,
    key: String,
}

fn make(names: Vec<String>) -> Result<SelfSignedPair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, "Larder, self-signed");
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let certificate = parameters.self_signed(&key)?;
    Ok(SelfSignedPair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Writes both files. One that is there is never replaced.
fn write(directory: &Path, pair: &SelfSignedPair) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (name, text) in [(KEY, &pair.key), (CERTIFICATE, &pair.certificate)] {
        let path = directory.join(name);
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let shown = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let mut file = opened.map_err(shown)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(shown)?;
    }
    Ok(())
}
