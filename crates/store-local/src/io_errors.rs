//! Classes of I/O errors: transient ones, and those of a full disk.

use std::io;

use rustix::io::Errno;

/// Whether the disk or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the error may pass by itself: the disk is full, or descriptors or memory are used up.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let used_up = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    is_full(error) || error.raw_os_error().is_some_and(|code| used_up.iter().any(|errno| errno.raw_os_error() == code))
}
