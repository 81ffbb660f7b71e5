//! The trees by name.

use larder_store::{Layout, Table};

/// One `T` for each tree, in the order of [`TreeId::ALL`].
pub(crate) type PerTree<T> = [T; TreeId::ALL.len()];

/// One of the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TreeId {
    /// A partition is one entry; large ones are separated from their keys.
    Packed,
    /// A row is one entry; large ones are separated from their keys.
    Wide,
    /// Large values, separated from their keys.
    Bulk,
    /// The server's own rows once more, see [`crate::mirror`].
    Mirror,
}

impl TreeId {
    /// Every tree.
    pub(crate) const ALL: [Self; 4] = [Self::Packed, Self::Wide, Self::Bulk, Self::Mirror];

    /// The trees of a directory with a mirror, or of one from before it.
    pub(crate) fn in_directory(has_mirror: bool) -> &'static [Self] {
        let count = Self::ALL.len() - usize::from(!has_mirror);
        &Self::ALL[..count]
    }

    /// The tree of a table's rows.
    pub(crate) fn for_table(table: Table) -> Self {
        match table.layout() {
            Layout::Packed => Self::Packed,
            Layout::Wide => Self::Wide,
        }
    }

    /// Whether a new one separates large values from their keys.
    pub(crate) fn separates(self) -> bool {
        matches!(self, Self::Packed | Self::Wide | Self::Bulk)
    }

    /// The name of the tree and of its directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Wide => "wide",
            Self::Bulk => "bulk",
            Self::Mirror => "mirror",
        }
    }
}
