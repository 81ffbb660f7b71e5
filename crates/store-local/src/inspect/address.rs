//! Keys of the trees as addresses that an operator knows.
//!
//! Unreadable ranges of tables, and the keys that may have lost a newer version there.
//!
//! The keys of a damaged block are unknown. If a repair copied an older version of such a key from elsewhere, a removed key
//! would come back. A found version is certainly the newest when
//! - it is newer than every entry of the damaged table, or
//! - the Bloom filter of the damaged table excludes the key, or
//! - it is in a level above the damaged table, or in the same run, whose tables do not overlap, or
//! - it is in the journal, and every later group is whole: a later version would be there, too.
//!
//! Groups lost from the journal name no keys: they make no key doubtful, and the report names the groups.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::BlobOwner;
use lsm_tree::Table;
use lsm_tree::table::filter::standard_bloom::Builder;

use super::tables::KeyBounds;
use crate::entry;
use crate::tree_id::TreeId;
use crate::version_file::TablePlace;

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
    pub(crate) fn from_blob(id: BlobId, owner: Option<BlobOwner>) -> Self {
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

/// The place where a version was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionOrigin {
    /// In the journal.
    Journal {
        /// Whether every later group is whole, so that no later version can be lost.
        is_last: bool,
    },
    /// In a table.
    Table(Option<TablePlace>),
}

/// A range of keys in an unreadable part of a table.
pub(super) struct UnreadableRange {
    /// The table.
    pub(super) path: PathBuf,
    /// The bounds of the keys.
    pub(super) bounds: KeyBounds,
    /// The greatest sequence number in the table, if known.
    pub(super) newest: Option<u64>,
    /// The table's place in its tree.
    pub(super) place: Option<TablePlace>,
    /// The table, if its filter can be read.
    pub(super) table: Option<Table>,
}

impl UnreadableRange {
    /// Whether a newer version of this key, which lies in the bounds, may be lost.
    fn can_hide_newer(&self, key: &[u8], seqno: u64, origin: VersionOrigin) -> bool {
        let is_newer = self.newest.is_some_and(|newest| seqno > newest);
        let is_above = match (origin, self.place) {
            (VersionOrigin::Journal { is_last }, _) => is_last,
            (VersionOrigin::Table(Some(place)), Some(lost)) => place.level < lost.level || place == lost,
            (VersionOrigin::Table(_), _) => false,
        };
        !is_newer && !is_above && self.can_have_held(key)
    }

    fn can_have_held(&self, key: &[u8]) -> bool {
        let filter = self.table.as_ref().and_then(|table| table.pinned_filter_block.as_ref());
        let Some(filter) = filter else { return true };
        // A damaged filter excludes no key.
        filter.maybe_contains_hash(Builder::get_hash(key)).unwrap_or(true)
    }

    fn has_begun_at(&self, key: &[u8]) -> bool {
        is_within(self.bounds.0.as_ref(), Bound::Unbounded, key)
    }

    fn contains(&self, key: &[u8]) -> bool {
        is_within(self.bounds.0.as_ref(), self.bounds.1.as_ref(), key)
    }
}

/// All unreadable ranges of a tree, searched with ascending keys.
pub(super) struct UnreadableRanges<'a> {
    /// Sorted by their beginnings, the last one first.
    upcoming: Vec<&'a UnreadableRange>,
    current: Vec<&'a UnreadableRange>,
}

impl<'a> UnreadableRanges<'a> {
    pub(super) fn new(unreadable: &'a [UnreadableRange]) -> Self {
        let mut upcoming = unreadable.iter().collect::<Vec<_>>();
        upcoming.sort_by(|a, b| begin(b).cmp(&begin(a)));
        Self { upcoming, current: Vec::new() }
    }

    /// The damaged table in which a newer version of this key may have been.
    pub(super) fn find(&mut self, key: &[u8], seqno: u64, origin: VersionOrigin) -> Option<&'a UnreadableRange> {
        while let Some(range) = self.upcoming.pop_if(|range| range.has_begun_at(key)) {
            self.current.push(range);
        }
        self.current.retain(|range| range.contains(key));
        self.current.iter().find(|range| range.can_hide_newer(key, seqno, origin)).copied()
    }
}

fn is_within(from: Bound<&Bytes>, to: Bound<&Bytes>, key: &[u8]) -> bool {
    RangeBounds::<[u8]>::contains(&(from.map(|from| &from[..]), to.map(|to| &to[..])), key)
}

fn begin(range: &UnreadableRange) -> (&[u8], bool) {
    match &range.bounds.0 {
        Bound::Included(from) => (from, false),
        Bound::Excluded(from) => (from, true),
        Bound::Unbounded => (&[], false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: Bound<&'static str>, to: Bound<&'static str>) -> UnreadableRange {
        let bounds = (from.map(Bytes::from), to.map(Bytes::from));
        let place = Some(TablePlace { level: 2, run: 0 });
        UnreadableRange { path: PathBuf::new(), bounds, newest: Some(10), place, table: None }
    }

    fn in_doubt(unreadable: &[UnreadableRange], keys: &[&'static str]) -> Vec<&'static str> {
        let mut all = UnreadableRanges::new(unreadable);
        let origin = VersionOrigin::Table(Some(TablePlace { level: 3, run: 0 }));
        keys.iter().copied().filter(|key| all.find(key.as_bytes(), 5, origin).is_some()).collect()
    }

    #[test]
    fn only_keys_inside_the_bounds_are_doubtful() {
        let unreadable = [
            range(Bound::Excluded("b"), Bound::Included("d")),
            range(Bound::Included("f"), Bound::Excluded("h")),
            range(Bound::Excluded("x"), Bound::Unbounded),
        ];
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "x", "y"];
        assert_eq!(in_doubt(&unreadable, &keys), ["c", "d", "f", "g", "y"]);
        assert_eq!(in_doubt(&[range(Bound::Unbounded, Bound::Excluded("b"))], &keys), ["a"]);
    }

    #[test]
    fn a_version_that_cannot_be_older_than_the_lost_one_is_certain() {
        let unreadable = [range(Bound::Unbounded, Bound::Unbounded)];
        let of = |seqno, origin| UnreadableRanges::new(&unreadable).find(b"k", seqno, origin).is_some();
        let table = |level, run| VersionOrigin::Table(Some(TablePlace { level, run }));
        assert!(of(10, table(3, 0)) && of(10, table(2, 1)) && of(10, VersionOrigin::Table(None)));
        assert!(of(10, VersionOrigin::Journal { is_last: false }));
        assert!(!of(11, table(3, 0)) && !of(10, table(2, 0)) && !of(10, table(1, 0)));
        assert!(!of(10, VersionOrigin::Journal { is_last: true }));
    }
}
