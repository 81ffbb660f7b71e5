//! The reasons why a data directory is not opened.

use std::path::{Path, PathBuf};

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
