//! What the machine's refusals mean: which pass by themselves, and which say that the disk is full.

use std::io;

use rustix::io::Errno;

/// Whether the disk, or what the user may have of it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether it passes by itself: the disk is full, or descriptors or memory are used up.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    let used_up = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    is_full(error) || error.raw_os_error().is_some_and(|code| used_up.iter().any(|errno| errno.raw_os_error() == code))
}
