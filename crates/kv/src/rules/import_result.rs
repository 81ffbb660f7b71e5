//! What became of an import, and how a key differs from its state at the source.

/// What became of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The key has the values of the source, and those of clients beside them.
    Imported,
    /// It has what a client wrote here.
    Kept,
    /// It is deleted as at the source, as far as it was imported.
    Deleted,
}

/// How a key here differs from its state at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportComparison {
    /// Not at all.
    Equal,
    /// A client wrote or deleted it here.
    ChangedHere,
    /// A client of the source wrote it there after it went back.
    ChangedThere,
    /// In its values, although no client changed it here.
    Differs,
}
