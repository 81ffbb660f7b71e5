//! Keys of the trees as addresses that an operator knows.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::BlobOwner;

use crate::entry;
use crate::tree_id::TreeId;

/// The address of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAddress {
    tree_id: TreeId,
    key: Bytes,
    owner: Option<BlobOwner>,
}

/// Keys that damage hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostKeys {
    /// One key.
    Key(KeyAddress),
    /// Any keys in a range.
    Range {
        /// The name of the tree's directory.
        tree: &'static str,
        /// The beginning of the range.
        from: Bound<KeyAddress>,
        /// The end of the range.
        to: Bound<KeyAddress>,
    },
}

impl KeyAddress {
    pub(crate) fn new(tree_id: TreeId, key: &[u8]) -> Self {
        Self { tree_id, key: Bytes::copy_from_slice(key), owner: None }
    }

    /// The address of a blob, with the row that owns it if that is known.
    pub(crate) fn of_blob(id: BlobId, owner: Option<BlobOwner>) -> Self {
        Self { tree_id: TreeId::Bulk, key: entry::bulk_key(&id.0), owner }
    }

    /// The same address with the row that owns the body.
    pub(crate) fn owned_by(self, owner: Option<BlobOwner>) -> Self {
        Self { owner, ..self }
    }

    /// The name of the tree, and the encoded key.
    #[must_use]
    pub fn raw(&self) -> (&'static str, &Bytes) {
        (self.tree_id.name(), &self.key)
    }
}

impl LostKeys {
    pub(crate) fn range(tree_id: TreeId, from: &Bound<Bytes>, to: &Bound<Bytes>) -> Self {
        let address = |key: &Bytes| KeyAddress::new(tree_id, key);
        Self::Range { tree: tree_id.name(), from: from.as_ref().map(address), to: to.as_ref().map(address) }
    }
}

impl fmt::Display for KeyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tree_id == TreeId::Bulk {
            let id = self.key.get(1..).and_then(|id| id.try_into().ok()).map(BlobId);
            return match (id, &self.owner) {
                (Some(id), None) => write!(f, "blob {}", id.hex()),
                (Some(id), Some(owner)) => {
                    let partition = owner.partition.describe();
                    write!(f, "blob {} of {partition}, row {}", id.hex(), owner.row.escape_ascii())
                }
                (None, _) => write!(f, "blob row {}", self.key.escape_ascii()),
            };
        }
        match entry::split_key(&self.key) {
            Ok((partition, name)) if name.is_empty() => f.write_str(&partition.describe()),
            Ok((partition, name)) => write!(f, "{}, row {}", partition.describe(), name.escape_ascii()),
            Err(_) => write!(f, "{}", self.key.escape_ascii()),
        }
    }
}

impl fmt::Display for LostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "{key}"),
            Self::Range { tree, from, to } => {
                write!(f, "any keys of {tree} ")?;
                match from {
                    Bound::Included(key) => write!(f, "from {key}")?,
                    Bound::Excluded(key) => write!(f, "after {key}")?,
                    Bound::Unbounded => f.write_str("from the first one")?,
                }
                match to {
                    Bound::Included(key) => write!(f, " to {key}"),
                    Bound::Excluded(key) => write!(f, " before {key}"),
                    Bound::Unbounded => f.write_str(" to the last one"),
                }
            }
        }
    }
}
