//! Classes of I/O errors: a missing file, transient ones, and those of a full disk.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The value, or `None` when the file or folder does not exist.
///
/// # Errors
/// Every other error.
pub(crate) fn if_there<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
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

/// Why a data directory was not opened. The text is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another server", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// It holds foreign files.
    #[error("{} is not empty and no data directory: it holds {found}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// The name of one foreign file.
        found: String,
    },
    /// It is in a format that this build does not know.
    #[error("{} has data format {found}, written by {writer}; this is {program}, which reads formats 2 and 3; `kv-admin export` with that program and `import` with this one carries the data over", dir.display())]
    UnknownFormat {
        /// The data directory.
        dir: PathBuf,
        /// The format found.
        found: String,
        /// The program that wrote it.
        writer: String,
        /// This program.
        program: &'static str,
    },
    /// The journal has lost writes that were synced and answered.
    #[error(
        "the journal in {} is damaged: {what}; restore a backup, or accept the loss with accept_damaged_journal",
        dir.display()
    )]
    DamagedJournal {
        /// The data directory.
        dir: PathBuf,
        /// The file and the missing groups.
        what: String,
    },
    /// Something other than the journal is damaged.
    #[error("the data in {} is damaged: {what}; nothing was changed: put the file back, or see `larder check` and `larder repair`", dir.display())]
    Damaged {
        /// The data directory.
        dir: PathBuf,
        /// The file and its damage.
        what: String,
    },
    /// The operating system refused a call.
    #[error("{} cannot be opened: {what}", dir.display())]
    Io {
        /// The data directory.
        dir: PathBuf,
        /// The call and its error.
        what: String,
    },
}

impl OpenError {
    /// The error of a refused call; `what` names the step.
    pub(crate) fn io(dir: &Path, what: &str, error: &std::io::Error) -> Self {
        Self::Io { dir: dir.to_owned(), what: format!("{what}: {error}") }
    }
}
