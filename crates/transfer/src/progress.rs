//! The progress of a transfer.

use crate::totals::Totals;

/// The phase of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Store to folder.
    Export,
    /// Folder to store.
    Import,
    /// Comparison of a store with a folder.
    Verify,
}

/// The progress of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferProgress {
    /// The phase.
    pub phase: Phase,
    /// The table being read, or `blobs`.
    pub table: &'static str,
    /// Rows so far.
    pub rows: u64,
    /// Blobs so far.
    pub blobs: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// The part of the whole that is done, from 0 to 1, where the whole is known.
    pub fraction: Option<f64>,
}

impl TransferProgress {
    /// The progress that these totals show.
    pub(crate) fn new(phase: Phase, table: &'static str, totals: &Totals, fraction: Option<f64>) -> Self {
        Self { phase, table, rows: totals.rows(), blobs: totals.blobs.count, bytes: totals.bytes(), fraction }
    }
}

/// The function that receives progress.
pub(crate) type ProgressCallback<'a> = &'a (dyn Fn(TransferProgress) + Send + Sync);

impl Phase {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Import => "import",
            Self::Verify => "verify",
        }
    }
}
