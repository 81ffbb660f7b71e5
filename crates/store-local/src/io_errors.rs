//! Classes of I/O errors: a missing file, transient ones, and those of a full disk.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use rustix::io::Errno;

/// The value, or `None` when the file or folder does not exist.
///
/// # Errors
/// Every other error.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes and syncs a file: a rename that follows never names a file without its bytes.
///
/// # Errors
/// Any I/O error.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Syncs a directory: the names in it are on disk once this returns.
///
/// # Errors
/// Any I/O error.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether the disk or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the error may pass by itself: the disk is full, or descriptors or memory are used up.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let used_up = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    is_full(error) || error.raw_os_error().is_some_and(|code| used_up.iter().any(|errno| errno.raw_os_error() == code))
}
