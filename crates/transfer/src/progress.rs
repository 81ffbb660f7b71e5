//! How far a transfer has come.

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A store is written into a folder.
    Export,
    /// A folder is written into a store.
    Import,
    /// A store is compared with a folder.
    Verify,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Which table, or `blobs`.
    pub table: &'static str,
    /// Rows so far.
    pub rows: u64,
    /// Blobs so far.
    pub blobs: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// How much of all that is, from 0 to 1, where it is known.
    pub fraction: Option<f64>,
}

/// Who is told.
pub(crate) type Tell<'a> = &'a (dyn Fn(Progress) + Send + Sync);

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
