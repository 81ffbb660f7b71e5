//! Why a transfer did not come to its end.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a transfer.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, by what the operator does about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine failed, again and again: look after it, then give the same command again.
    #[error("{what}: {source}")]
    Store {
        /// What was being done.
        what: &'static str,
        /// What the engine says.
        source: larder_store::Error,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what was written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// How.
        what: String,
    },
    /// It must not be done, and nothing was.
    #[error("{0}")]
    Refused(String),
    /// What is there is not what was exported: a line for each table that differs.
    #[error("{}", .0.join("\n"))]
    Differs(Vec<String>),
}

impl Error {
    /// A file that could not be read or written.
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// A file that is not what was written.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// Stored bytes that cannot be read.
    pub(crate) fn unreadable(what: &'static str, error: impl std::fmt::Display) -> Self {
        let source = larder_store::Error::new(larder_store::Kind::Damaged, error.to_string());
        Self::Store { what, source }
    }
}
