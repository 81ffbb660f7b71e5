//! `tls self-signed`: a certificate for trying encrypted listeners. It takes no server.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_kv_admin::frame::AdminAnswer;
use rcgen::{CertificateParams, DnType, KeyPair, KeyUsagePurpose};
use rustix::fs::OFlags;

/// The words of the command, which the server also lists.
pub(crate) const COMMAND: [&str; 2] = ["tls", "self-signed"];

const USAGE: &str = "tls self-signed <directory> [host ...]";
/// The names of every certificate.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const VALID_FOR: Duration = Duration::from_secs(365 * 86_400);
/// The certificate is valid before it is made: the clock of a client may be behind.
const VALID_BEFORE: Duration = Duration::from_secs(3_600);

/// Runs the command with the arguments after its words.
pub(crate) fn run(args: &[String]) -> AdminAnswer {
    let Some((directory, hosts)) = args.split_first() else { return AdminAnswer::usage(USAGE) };
    let names: Vec<String> =
        LOOPBACK_NAMES.iter().map(|name| (*name).to_owned()).chain(hosts.iter().cloned()).collect();
    #[expect(clippy::disallowed_methods, reason = "the command runs once, at the time of its user")]
    let pair = match SelfSignedPair::make(names.clone(), SystemTime::now()) {
        Ok(pair) => pair,
        Err(error) => return AdminAnswer::failed(format!("certificate not made: {error}")),
    };
    match pair.write(Path::new(directory)) {
        Ok(folder) => AdminAnswer::done(text(&folder, &names)),
        Err(error) => AdminAnswer::failed(format!("certificate not written: {error}")),
    }
}

fn text(folder: &Path, names: &[String]) -> String {
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    let (certificate, key) = (certificate.display(), key.display());
    format!(
        "{certificate}\n{key}\nFor {}, valid for a year. Start the server with it:\n  \
         larder --https 127.0.0.1:8443 --tls-cert {certificate} --tls-key {key}\n\
         Its clients trust the certificate:\n  curl --cacert {certificate} https://localhost:8443/ping",
        names.join(", ")
    )
}

/// A certificate and its key, both PEM.
struct SelfSignedPair {
    certificate: String,
    key: String,
}

impl SelfSignedPair {
    fn make(names: Vec<String>, now: SystemTime) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.push(DnType::CommonName, "Larder, self-signed");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.not_before = (now - VALID_BEFORE).into();
        parameters.not_after = (now + VALID_FOR).into();
        let certificate = parameters.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Writes both files, and returns the whole path of their folder. A file that is there is never replaced.
    fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        let owner = owner_for(directory)?;
        fs::create_dir_all(directory)?;
        let folder = directory.canonicalize()?;
        for (name, text, mode) in [(KEY, &self.key, 0o600), (CERTIFICATE, &self.certificate, 0o644)] {
            let path = folder.join(name);
            let shown = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).map_err(shown)?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(shown)?;
            give(&file, owner)?;
        }
        // Last, and not by name: its owner could put a link in the place of a file that root then gives away.
        let opened = OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&folder)?;
        give(&opened, owner)?;
        Ok(folder)
    }
}

/// Gives an open file to the owner of the server's folder, who must read a key that root made there.
fn give(file: &File, owner: Option<(u32, u32)>) -> io::Result<()> {
    owner.map_or(Ok(()), |(user, group)| fchown(file, Some(user), Some(group)))
}

/// The user and group that get what root makes: those of the nearest folder that is there.
fn owner_for(directory: &Path) -> io::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let directory = std::path::absolute(directory)?;
    let nearest = directory.ancestors().find_map(|folder| fs::metadata(folder).ok());
    Ok(nearest.map(|folder| (folder.uid(), folder.gid())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_was_valid_for_two_thousand_years() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let names = vec!["localhost".to_owned(), "::1".to_owned()];
        let key = KeyPair::generate().unwrap();
        assert!(SelfSignedPair::make(names, now).unwrap().certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        let mut parameters = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        (parameters.not_before, parameters.not_after) = ((now - VALID_BEFORE).into(), (now + VALID_FOR).into());
        assert!(parameters.self_signed(&key).is_ok());
        assert_eq!((parameters.not_after - parameters.not_before).whole_days(), 365);
    }

    #[test]
    fn a_relative_folder_is_made_and_named_whole_and_nothing_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let args = [folder.to_str().unwrap().to_owned(), "example.com".to_owned()];
        let answer = run(&args);
        assert_eq!(answer.exit, 0, "{answer:?}");
        let whole = folder.canonicalize().unwrap();
        assert!(answer.stdout.starts_with(&format!("{}/cert.pem\n{}/key.pem\n", whole.display(), whole.display())));
        assert!(answer.stdout.contains("For localhost, 127.0.0.1, ::1, example.com,"), "{}", answer.stdout);
        let again = run(&args);
        assert!(again.exit == 1 && again.stderr.contains("key.pem: File exists"), "{again:?}");
        assert_eq!(run(&[]).exit, 1);
    }
}
