//! Keys of which a newer version may be lost.
//!
//! A damaged block held versions that nobody can name. Where an older version of such a key is found elsewhere, it must not
//! come back as if it were the newest: a removed key would be there again. A found version is certain when
//! - it is newer than every entry of the damaged table, or
//! - the damaged table's filter says that the key was never in it, or
//! - it is in a level above the damaged table, or in the same run of tables, which have no keys in common, or
//! - it is in the journal, and every group behind it is whole: a later version would be there, too.
//!
//! Groups that are lost from the journal name no keys; they make no key doubtful, and the report says which groups they were.

use std::ops::Bound;
use std::path::PathBuf;

use lsm_tree::Table;
use lsm_tree::table::filter::standard_bloom::Builder;

use super::tables::KeyBounds;
use crate::version_file::TablePlace;

/// Where a version was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the journal; `is_last`: every group behind it is whole.
    Journal {
        /// No later version can be lost.
        is_last: bool,
    },
    /// In a table.
    Table(Option<TablePlace>),
}

/// Keys that were in a part of a table that cannot be read.
pub(super) struct Doubt {
    /// The table.
    pub(super) path: PathBuf,
    /// Where the keys lie.
    pub(super) bounds: KeyBounds,
    /// The greatest sequence number in the table, if that is known.
    pub(super) newest: Option<u64>,
    /// Where the table is in its tree.
    pub(super) place: Option<TablePlace>,
    /// The table, when its filter can be read.
    pub(super) table: Option<Table>,
}

impl Doubt {
    /// Whether a newer version of this key, found in the bounds, may be lost.
    fn covers(&self, key: &[u8], seqno: u64, origin: Origin) -> bool {
        let is_newer = self.newest.is_some_and(|newest| seqno > newest);
        let is_above = match (origin, self.place) {
            (Origin::Journal { is_last }, _) => is_last,
            (Origin::Table(Some(found)), Some(lost)) => found.level < lost.level || found == lost,
            (Origin::Table(_), _) => false,
        };
        !is_newer && !is_above && self.may_have_held(key)
    }

    fn may_have_held(&self, key: &[u8]) -> bool {
        let filter = self.table.as_ref().and_then(|table| table.pinned_filter_block.as_ref());
        let Some(filter) = filter else { return true };
        filter.maybe_contains_hash(Builder::get_hash(key)).unwrap_or(true)
    }

    fn begins_by(&self, key: &[u8]) -> bool {
        match &self.bounds.0 {
            Bound::Included(from) => from[..] <= *key,
            Bound::Excluded(from) => from[..] < *key,
            Bound::Unbounded => true,
        }
    }

    fn goes_on_to(&self, key: &[u8]) -> bool {
        match &self.bounds.1 {
            Bound::Included(to) => *key <= to[..],
            Bound::Excluded(to) => *key < to[..],
            Bound::Unbounded => true,
        }
    }
}

/// All doubts of a tree, asked with ascending keys.
pub(super) struct Doubts<'a> {
    /// By their beginnings, the last one first.
    ahead: Vec<&'a Doubt>,
    here: Vec<&'a Doubt>,
}

impl<'a> Doubts<'a> {
    pub(super) fn new(doubts: &'a [Doubt]) -> Self {
        let mut ahead = doubts.iter().collect::<Vec<_>>();
        ahead.sort_by(|a, b| begin(b).cmp(&begin(a)));
        Self { ahead, here: Vec::new() }
    }

    /// The damaged table in which a newer version of this key may have been.
    pub(super) fn of(&mut self, key: &[u8], seqno: u64, origin: Origin) -> Option<&'a Doubt> {
        while let Some(doubt) = self.ahead.pop_if(|doubt| doubt.begins_by(key)) {
            self.here.push(doubt);
        }
        self.here.retain(|doubt| doubt.goes_on_to(key));
        self.here.iter().find(|doubt| doubt.covers(key, seqno, origin)).copied()
    }
}

fn begin(doubt: &Doubt) -> (&[u8], bool) {
    match &doubt.bounds.0 {
        Bound::Included(from) => (from, false),
        Bound::Excluded(from) => (from, true),
        Bound::Unbounded => (&[], false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn doubt(from: Bound<&'static str>, to: Bound<&'static str>) -> Doubt {
        let bounds = (from.map(Bytes::from), to.map(Bytes::from));
        let place = Some(TablePlace { level: 2, run: 0 });
        Doubt { path: PathBuf::new(), bounds, newest: Some(10), place, table: None }
    }

    fn in_doubt(doubts: &[Doubt], keys: &[&'static str]) -> Vec<&'static str> {
        let mut all = Doubts::new(doubts);
        let found = Origin::Table(Some(TablePlace { level: 3, run: 0 }));
        keys.iter().copied().filter(|key| all.of(key.as_bytes(), 5, found).is_some()).collect()
    }

    #[test]
    fn only_keys_inside_the_bounds_are_doubtful() {
        let doubts = [
            doubt(Bound::Excluded("b"), Bound::Included("d")),
            doubt(Bound::Included("f"), Bound::Excluded("h")),
            doubt(Bound::Excluded("x"), Bound::Unbounded),
        ];
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "x", "y"];
        assert_eq!(in_doubt(&doubts, &keys), ["c", "d", "f", "g", "y"]);
        assert_eq!(in_doubt(&[doubt(Bound::Unbounded, Bound::Excluded("b"))], &keys), ["a"]);
    }

    #[test]
    fn what_cannot_be_older_than_the_loss_is_certain() {
        let doubts = [doubt(Bound::Unbounded, Bound::Unbounded)];
        let of = |seqno, origin| Doubts::new(&doubts).of(b"k", seqno, origin).is_some();
        let table = |level, run| Origin::Table(Some(TablePlace { level, run }));
        assert!(of(10, table(3, 0)) && of(10, table(2, 1)) && of(10, Origin::Table(None)));
        assert!(of(10, Origin::Journal { is_last: false }));
        assert!(!of(11, table(3, 0)) && !of(10, table(2, 0)) && !of(10, table(1, 0)));
        assert!(!of(10, Origin::Journal { is_last: true }));
    }
}
