//! Keys of the engine as addresses that an operator knows.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::BlobOwner;

use crate::keys;
use crate::spaces::Space;

/// The address of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAddress {
    space: Space,
    key: Bytes,
    owner: Option<BlobOwner>,
}

/// Keys that damage hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostKeys {
    /// One key.
    Key(KeyAddress),
    /// Any keys that lie there; `None`: from the first one, to the last one.
    Range {
        /// The tree, as its directory is named.
        tree: &'static str,
        /// Where the range begins.
        from: Bound<KeyAddress>,
        /// Where it ends.
        to: Bound<KeyAddress>,
    },
}

impl KeyAddress {
    pub(crate) fn new(space: Space, key: &[u8]) -> Self {
        Self { space, key: Bytes::copy_from_slice(key), owner: None }
    }

    /// A blob that is named by itself, or with the row it belongs to.
    pub(crate) fn of_blob(id: BlobId, owner: Option<BlobOwner>) -> Self {
        Self { space: Space::Bulk, key: keys::bulk_key(&id.0), owner }
    }

    /// The same with the row that a body belongs to.
    pub(crate) fn owned_by(self, owner: Option<BlobOwner>) -> Self {
        Self { owner, ..self }
    }

    /// The key as the engine keeps it, behind the name of its tree.
    #[must_use]
    pub fn raw(&self) -> (&'static str, &Bytes) {
        (self.space.name(), &self.key)
    }
}

impl LostKeys {
    pub(crate) fn range(space: Space, from: &Bound<Bytes>, to: &Bound<Bytes>) -> Self {
        let address = |key: &Bytes| KeyAddress::new(space, key);
        Self::Range { tree: space.name(), from: from.as_ref().map(address), to: to.as_ref().map(address) }
    }
}

impl fmt::Display for KeyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.space == Space::Bulk {
            let id = self.key.get(1..).and_then(|id| id.try_into().ok()).map(BlobId);
            return match (id, &self.owner) {
                (Some(id), None) => write!(f, "blob {}", id.hex()),
                (Some(id), Some(owner)) => {
                    let partition = owner.partition.address();
                    write!(f, "blob {} of {partition}, row {}", id.hex(), owner.row.escape_ascii())
                }
                (None, _) => write!(f, "blob row {}", self.key.escape_ascii()),
            };
        }
        match keys::split(&self.key) {
            Ok((partition, name)) if name.is_empty() => f.write_str(&partition.address()),
            Ok((partition, name)) => write!(f, "{}, row {}", partition.address(), name.escape_ascii()),
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
