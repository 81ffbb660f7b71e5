//! Files that only the server's own user may read: data, secrets, sockets.
//!
//! Only the server's user can enter the data directory, which protects every file in it. A server does not close a directory
//! that it finds open: an operator may have opened it on purpose, and must decide.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::Mode;

use crate::failure::ServerFailure;

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;
/// The bit by which all may read. A group may share a key: services that renew certificates do.
const ALL_READ: u32 = 0o004;

/// Makes files and directories of this process private to its user from now on.
pub fn keep_private() {
    rustix::process::umask(Mode::from_bits_truncate(OTHERS));
}

/// Checks the data directory, and closes an empty one to other users. The engine creates a missing one, private by
/// [`keep_private`], and syncs its name before it relies on it.
///
/// # Errors
/// A line that says that others may read the directory, with the command that closes it.
pub(crate) fn check_private(dir: &Path) -> Result<(), ServerFailure> {
    let failed = |error: io::Error| ServerFailure(format!("cannot read the directory {}: {error}", dir.display()));
    // The engine reports a missing directory, or a file in its place.
    let Some(metadata) = fs::metadata(dir).ok().filter(fs::Metadata::is_dir) else { return Ok(()) };
    if let Some(warning) = foreign_owner(dir, metadata.uid()) {
        tracing::warn!("{warning}");
    }
    let mode = metadata.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    // Nothing in an empty directory can have been read yet.
    if fs::read_dir(dir).map_err(failed)?.next().is_none() {
        let closed = fs::set_permissions(dir, Permissions::from_mode(DIR_MODE));
        // A volume that another user mounted: only its owner may change its mode.
        return closed.map_err(|error| {
            let dir = dir.display();
            ServerFailure(format!(
                "cannot close {dir} to other users: {error}; name a folder below it as the data directory"
            ))
        });
    }
    let dir = dir.display();
    Err(ServerFailure(format!(
        "others may read {dir} (mode {:o}), which holds data and secrets: close it with `chmod -R go-rwx {dir}`",
        mode & 0o777
    )))
}

/// The warning about a directory of another user, who can change what the server relies on.
fn foreign_owner(dir: &Path, owner: u32) -> Option<String> {
    let user = rustix::process::geteuid().as_raw();
    (owner != user).then(|| {
        format!(
            "{} belongs to user {owner}, who can read and change it; this server runs as user {user}",
            dir.display()
        )
    })
}

/// The warning about a secret that every user of the machine may read.
pub(crate) fn readable_by_all(secret: &Path) -> Option<String> {
    let mode = fs::metadata(secret).ok()?.permissions().mode();
    let path = secret.display();
    (mode & ALL_READ != 0).then(|| {
        format!(
            "every user of this machine may read {path} (mode {:o}): close it with `chmod o-rwx {path}`",
            mode & 0o777
        )
    })
}

/// Creates or replaces a private file.
///
/// # Errors
/// An error of the system.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    // `open` sets the mode of a new file only.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn an_open_directory_with_data_is_refused_and_an_empty_one_is_closed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        check_private(&dir).unwrap();
        assert!(!dir.exists(), "the engine makes it");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        check_private(&dir).unwrap();
        assert_eq!(mode(&dir), DIR_MODE, "an empty one is closed");
        fs::write(dir.join("format"), "").unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o750)).unwrap();
        let refusal = check_private(&dir).unwrap_err().to_string();
        assert!(refusal.contains("chmod -R go-rwx") && refusal.contains("750"), "{refusal}");
        assert_eq!(mode(&dir), 0o750, "nothing was changed");
    }

    #[test]
    fn a_folder_of_another_user_and_an_open_secret_are_warned_about() {
        let dir = tempfile::tempdir().unwrap();
        let user = fs::metadata(dir.path()).unwrap().uid();
        assert_eq!(foreign_owner(dir.path(), user), None);
        let warning = foreign_owner(dir.path(), user + 1).unwrap();
        assert!(warning.contains(&format!("belongs to user {}", user + 1)), "{warning}");
        let key = dir.path().join("key.pem");
        assert_eq!(readable_by_all(&key), None);
        for (mode, is_open) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::write(&key, "").unwrap();
            fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
            assert_eq!(readable_by_all(&key).is_some(), is_open, "{mode:o}");
        }
    }

    #[test]
    fn a_secret_replaces_a_readable_file_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "old and longer").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "new").unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (FILE_MODE, "new"));
    }
}
