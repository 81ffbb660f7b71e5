//! The causal past of a write.

use crate::rules::causality::{Context, SupersededRow, VersionVector};

/// The causal past of a write: the versions of the key that it knows and replaces.
#[derive(Default)]
pub(super) struct CausalBasis {
    /// The rows it replaces.
    pub(super) superseded: Vec<SupersededRow>,
    /// The slots that were superseded before.
    pub(super) vector: VersionVector,
    /// Hash of the dots in the context it was made with, 0 for none.
    pub(super) context_hash: u64,
}

impl CausalBasis {
    /// The past that a context names.
    pub(super) fn from_context(context: Context) -> Self {
        let (superseded, context_hash) = (SupersededRow::named_by(&context), context.dots_hash());
        Self { superseded, vector: context.vector, context_hash }
    }
}
