//! What a disk may refuse, behind a port, so that tests can refuse them.

use std::fs::File;
use std::io::{self, Write};

use larder_store::{Error, Kind, Result};

/// What the files ask of the disk.
pub(super) trait Disk: Send + Sync {
    /// Appends all of `bytes`.
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;

    /// Waits until a file or directory is on disk.
    fn sync(&self, file: &File) -> io::Result<()>;
}

/// The machine's disk.
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }
}

/// The store's error for a failed call of the machine: `Full` without space, `Damaged` where bytes are missing, else `Io`.
pub(super) fn failed(context: impl std::fmt::Display, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
        io::ErrorKind::UnexpectedEof => Kind::Damaged,
        _ => Kind::Io,
    };
    Error::caused(kind, context, error)
}

/// The answer of a task on a blocking thread; a task that panicked or never ran is an `Io` error.
pub(super) fn landed<T>(answer: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    answer.unwrap_or_else(|error| Err(Error::caused(Kind::Io, "blob task", error)))
}

/// Runs file work on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    landed(tokio::task::spawn_blocking(work).await)
}

#[cfg(test)]
pub(super) mod faulty {
    //! A disk that fails when told to.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Disk, File, RealDisk, io};

    /// Fails writes behind a number of bytes, and one chosen sync.
    pub(crate) struct FaultyDisk {
        /// Bytes that fit before `ENOSPC`.
        pub(crate) room: AtomicU64,
        /// Syncs that work before one fails.
        pub(crate) syncs: AtomicU64,
    }

    impl Disk for Arc<FaultyDisk> {
        fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
            let room = self.room.load(Ordering::SeqCst);
            let fits = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            RealDisk.write(file, &bytes[..fits])?;
            self.room.store(room - fits as u64, Ordering::SeqCst);
            if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            match self.syncs.fetch_sub(1, Ordering::SeqCst) {
                0 => Err(io::Error::other("sync refused")),
                _ => RealDisk.sync(file),
            }
        }
    }
}
