//! Errors of a transfer.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a transfer.
pub type Result<T> = std::result::Result<T, Error>;

/// An error, named after the operator's next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine failed repeatedly: repair it, then give the same command again.
    #[error("{what}: {source}")]
    Store {
        /// The operation.
        what: &'static str,
        /// The engine's error.
        source: larder_store::Error,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file's bytes are not those written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// The transfer is not allowed; it wrote nothing.
    #[error("{0}")]
    Refused(String),
    /// The store differs from the export: one line for each table.
    #[error("{}", .0.join("\n"))]
    Differs(Vec<String>),
}

impl Error {
    /// A file that could not be read or written.
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// A file with damaged bytes.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// Whether a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Store { source, .. } if crate::retry::is_transient(source.kind))
    }

    /// Stored bytes that cannot be decoded.
    pub(crate) fn unreadable(what: &'static str, error: impl std::fmt::Display) -> Self {
        let source = larder_store::Error::new(larder_store::Kind::Damaged, error.to_string());
        Self::Store { what, source }
    }
}
