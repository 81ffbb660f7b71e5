//! The file with the master keys of encryption: that of `--encryption-keys`, or one in the data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_encryption::key_ring::{KeyRing, KeyRingPlace};
use larder_store_local::backup::KEY_RING_FILE;

use crate::failure::ServerFailure;
use crate::private::readable_by_all;
use crate::settings::{EngineKind, ServerSettings};

/// The master keys of this server.
///
/// # Errors
/// A line that names the file that cannot be read, or its line that is no key: a start must not look like one without keys.
pub(crate) fn open(settings: &ServerSettings) -> Result<Arc<KeyRing>, ServerFailure> {
    let given = settings.encryption_keys.as_deref();
    let (path, place): (_, Arc<dyn KeyRingPlace>) = match (given, settings.engine) {
        // Every gateway has a copy: one that adds a key alone would write objects that the others cannot read.
        (Some(path), EngineKind::Cassandra) => (path.to_owned(), Arc::new(SharedKeys)),
        (Some(path), _) => (path.to_owned(), Arc::new(KeyFile(path.to_owned()))),
        (None, EngineKind::Cassandra) => return parse("", Path::new(""), Arc::new(SharedKeys)),
        (None, EngineKind::Memory) => return Ok(Arc::new(KeyRing::in_memory())),
        (None, EngineKind::Local) => {
            let path = settings.data_dir.join(KEY_RING_FILE);
            (path.clone(), Arc::new(KeyFile(path)))
        }
    };
    match fs::read_to_string(&path) {
        Ok(text) => {
            if let Some(warning) = readable_by_all(&path) {
                tracing::warn!("{warning}");
            }
            parse(&text, &path, place)
        }
        // The first encrypted write makes it. What is no directory is refused by its engine.
        Err(error) if given.is_none() && is_absent(&error) => parse("", &path, place),
        Err(error) => Err(ServerFailure(format!("cannot read the encryption keys in {}: {error}", path.display()))),
    }
}

/// The master keys for an inspection of a data directory: of this file, else of the one there, if any.
///
/// # Errors
/// A line that names the file that cannot be read, or its line that is no key.
pub(crate) fn read_for(given: Option<&Path>, data_dir: &Path) -> Result<Arc<KeyRing>, ServerFailure> {
    let path = given.map_or_else(|| data_dir.join(KEY_RING_FILE), Path::to_owned);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text, &path, Arc::new(SharedKeys)),
        Err(error) if given.is_none() && is_absent(&error) => parse("", &path, Arc::new(SharedKeys)),
        Err(error) => Err(ServerFailure(format!("cannot read the encryption keys in {}: {error}", path.display()))),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn parse(text: &str, path: &Path, place: Arc<dyn KeyRingPlace>) -> Result<Arc<KeyRing>, ServerFailure> {
    let ring = KeyRing::parse(text, place);
    ring.map(Arc::new).map_err(|bad| ServerFailure(format!("encryption keys in {}: {bad}", path.display())))
}

/// Keys that the operator hands to all gateways of a cluster.
struct SharedKeys;

impl KeyRingPlace for SharedKeys {
    fn add(&self, _line: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file of keys that this server may add to.
struct KeyFile(PathBuf);

impl KeyRingPlace for KeyFile {
    /// Replaces the file by one with a further line; a kill leaves the one or the other.
    fn add(&self, line: &str) -> io::Result<()> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => HEADING.to_owned(),
            Err(error) => return Err(error),
        };
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        // Behind the whole name: an operator's `keys.next` beside `keys.txt` is another file.
        let mut next = self.0.clone().into_os_string();
        next.push(".next");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(format!("{text}{end}{line}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, &self.0)?;
        File::open(self.0.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// The first lines of a file that a server makes.
const HEADING: &str = "\
# Master keys. Without this file encrypted data cannot be read: keep a copy away from the data.
# The last key encrypts what is new, the others open what is older.
";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_made_private_and_grows_by_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_RING_FILE);
        let file = KeyFile(path.clone());
        file.add("one").unwrap();
        file.add("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADING}one\ntwo\n"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let beside = path.with_extension("txt");
        fs::write(path.with_extension("next"), "another file").unwrap();
        KeyFile(beside.clone()).add("one").unwrap();
        assert_eq!(fs::read_to_string(path.with_extension("next")).unwrap(), "another file");
        fs::remove_file(path.with_extension("next")).unwrap();
        fs::remove_file(beside).unwrap();
        // One that an operator wrote without a last newline.
        fs::write(&path, "one").unwrap();
        file.add("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_line_that_is_no_key_stops_the_start() {
        let failure = parse("tea\n", Path::new("/keys"), Arc::new(SharedKeys)).unwrap_err();
        assert_eq!(failure.to_string(), "encryption keys in /keys: line 1: not a new key of 32 bytes in base64");
    }
}
