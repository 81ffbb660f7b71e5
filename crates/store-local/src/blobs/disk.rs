//! The disk calls of blob files as a port, so that tests can make them fail.

use std::fs::File;
use std::io::{self, Write};

use larder_store::{Error, Kind, Result};
use rustix::io::{Errno, ReadWriteFlags};

/// Writes and syncs of blob files.
pub(super) trait BlobDisk: Send + Sync {
    /// Appends all `bytes`.
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;

    /// Syncs a file or directory.
    fn sync(&self, file: &File) -> io::Result<()>;
}

/// The operating system's disk.
pub(super) struct SystemDisk;

impl BlobDisk for SystemDisk {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }
}

/// The store's error for an I/O error: `Full` without space, `Damaged` where bytes are missing, else `Io`.
pub(super) fn failed(context: impl std::fmt::Display, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
        io::ErrorKind::UnexpectedEof => Kind::Damaged,
        _ => Kind::Io,
    };
    Error::caused(kind, context, error)
}

/// The result of a task on a blocking thread; a task that panicked or never ran is an `Io` error.
pub(super) fn join_result<T>(answer: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    answer.unwrap_or_else(|error| Err(Error::caused(Kind::Io, "blob task", error)))
}

/// Runs file work on a blocking thread.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    join_result(tokio::task::spawn_blocking(work).await)
}

/// Reads from a file what is in memory, without a wait for the disk: the count of bytes from the front of the buffer, which may
/// be 0. `None`: the file system cannot tell.
pub(super) fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> Option<usize> {
    match rustix::io::preadv2(file, &mut [io::IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
        Ok(count) => Some(count),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => None,
        // The caller reads the bytes with a wait, and meets the error if there is one.
        Err(_) => Some(0),
    }
}

#[cfg(test)]
pub(super) mod faulty {
    //! A disk with injected faults.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{BlobDisk, File, SystemDisk, io};

    /// Fails writes after a number of bytes, and one chosen sync.
    pub(crate) struct FaultyDisk {
        /// Bytes that fit before `ENOSPC`.
        pub(crate) room: AtomicU64,
        /// Syncs that succeed before one fails.
        pub(crate) syncs: AtomicU64,
    }

    impl BlobDisk for Arc<FaultyDisk> {
        fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
            let room = self.room.load(Ordering::SeqCst);
            let fits = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            SystemDisk.write(file, &bytes[..fits])?;
            self.room.store(room - fits as u64, Ordering::SeqCst);
            if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            match self.syncs.fetch_sub(1, Ordering::SeqCst) {
                0 => Err(io::Error::other("sync refused")),
                _ => SystemDisk.sync(file),
            }
        }
    }
}
