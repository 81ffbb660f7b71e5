//! The rows of indexes: their names, and those that a write of an object adds and removes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_rows::codec::{DecodeError, put_ordered, take_ordered};
use larder_rows::content::Term;
use larder_rows::limits::INDEX_ROW_BYTES;
use larder_rows::{Change, Row, Timestamp};

use super::term::{StoredTerm, TermKind};
use crate::rules::causality::{KeyWrite, Sibling};

/// The name of an index row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRowName {
    /// The term.
    pub term: StoredTerm,
    /// The key of the object.
    pub key: Bytes,
    /// The name of the object's row.
    pub object_row: Bytes,
}

/// The terms of a row that a write supersedes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededTerms {
    /// The name of the row.
    pub name: Bytes,
    /// The stamp of the row: an index row that is newer stays.
    pub clock: Timestamp,
    /// Its terms.
    pub terms: Vec<Term>,
}

impl SupersededTerms {
    /// The terms of a version that a read showed.
    #[must_use]
    pub fn from_sibling(sibling: &Sibling) -> Self {
        Self { name: sibling.name.clone(), clock: sibling.dot.clock, terms: sibling.content.terms.clone() }
    }
}

impl IndexRowName {
    /// The stored form. It sorts by term, then by key.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        row_name(&self.term, &self.key, &self.object_row)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] for a name of another form.
    pub fn decode(name: &Bytes) -> Result<Self, DecodeError> {
        let (term, rest) = take_ordered(name)?;
        let (key, rest) = take_ordered(rest)?;
        let object_row = name.slice(name.len() - rest.len()..);
        Ok(Self { term: StoredTerm(term.into()), key: key.into(), object_row })
    }
}

/// The name of the index row of a term for the object row `object_row` of `key`.
pub(super) fn row_name(term: &StoredTerm, key: &[u8], object_row: &[u8]) -> Bytes {
    let mut name = Vec::with_capacity(term.0.len() + key.len() + object_row.len() + 8);
    put_ordered(&mut name, &term.0);
    put_ordered(&mut name, key);
    name.extend_from_slice(object_row);
    name.into()
}

/// The terms of an object that have index rows, each once, by field: special fields have none.
pub fn indexed_terms(terms: &[Term]) -> BTreeSet<(&Bytes, StoredTerm)> {
    let stored = |term: &Term| TermKind::from_field(&term.field).map(|kind| kind.store(&term.value));
    terms.iter().filter_map(|term| Some((&term.field, stored(term)?))).collect()
}

/// Bytes of index that the terms of `key` take, which [`larder_rows::limits::INDEX_BYTES_MAX`] limits: field and value of each, or a
/// third of its row where that is more.
#[must_use]
pub fn index_bytes(terms: &[Term], key: &[u8]) -> usize {
    let bytes = |term: &Term| {
        let text = term.field.len() + term.value.len();
        text.max((text + key.len() + INDEX_ROW_BYTES) / 3)
    };
    terms.iter().filter(|term| TermKind::from_field(&term.field).is_some()).map(bytes).sum()
}

/// The changes that a write makes to the indexes of its bucket, by field.
#[must_use]
pub fn index_changes(write: &KeyWrite, key: &[u8]) -> BTreeMap<Bytes, Vec<Change>> {
    let mut changes = BTreeMap::<Bytes, Vec<Change>>::new();
    let mut named = BTreeSet::new();
    if let Some(row) = write.row.as_ref().filter(|_| !write.tombstone) {
        for (field, term) in indexed_terms(&write.terms) {
            let name = row_name(&term, key, &row.name);
            named.insert((field.clone(), name.clone()));
            // The stamp of the object's row: an older removal leaves the index row [invariant 29].
            let row = Row { name, value: Bytes::new(), stamp: row.stamp, expires: row.expires };
            changes.entry(field.clone()).or_default().push(Change::Put(row));
        }
    }
    for gone in &write.superseded_terms {
        for (field, term) in indexed_terms(&gone.terms) {
            let name = row_name(&term, key, &gone.name);
            // A batch names a row once, and the new row of a reused slot replaces the old one.
            if named.insert((field.clone(), name.clone())) {
                changes.entry(field.clone()).or_default().push(Change::Remove { name, stamp: gone.clock });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::causality::{ConflictPolicy, Slot};
    use crate::rules::object_row::ObjectRow;
    use larder_rows::ActorId;
    use larder_rows::content::KvContent;
    use proptest::prelude::*;

    fn term(field: &'static str, value: &'static str) -> Term {
        Term { field: field.into(), value: value.into() }
    }

    proptest! {
        #[test]
        fn names_decode_to_themselves_and_sort_by_term_then_key(a: (Vec<u8>, Vec<u8>), b: (Vec<u8>, Vec<u8>), row: [u8; 16]) {
            let name = |of: &(Vec<u8>, Vec<u8>)| IndexRowName {
                term: StoredTerm(of.0.clone().into()), key: of.1.clone().into(), object_row: Bytes::copy_from_slice(&row),
            };
            prop_assert_eq!(IndexRowName::decode(&name(&a).encode()), Ok(name(&a)));
            prop_assert_eq!(name(&a).encode().cmp(&name(&b).encode()), a.cmp(&b));
        }

        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = IndexRowName::decode(&bytes.into());
        }
    }

    /// Names of stored rows, byte for byte.
    #[test]
    fn the_golden_index_row_stays() {
        let slot = Slot { actor: ActorId(7), birth: Timestamp(100) };
        let name = IndexRowName {
            term: TermKind::Integer.store(&"42".into()),
            key: Bytes::from_static(b"k\0"),
            object_row: slot.row_name(),
        };
        let golden = b"\x02\x0242\0\x01k\0\xff\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x64";
        assert_eq!(name.encode().as_ref(), golden);
        assert_eq!(IndexRowName::decode(&Bytes::from_static(golden)), Ok(name));
    }

    #[test]
    fn a_write_adds_each_term_once_and_removes_those_of_the_row_it_replaces() {
        let slot = Slot { actor: ActorId(7), birth: Timestamp(100) };
        let content = KvContent {
            terms: vec![term("a_bin", "x"), term("a_bin", "x"), term("n_int", "1"), term("$key", "k")],
            ..KvContent::default()
        };
        let row = ObjectRow { tombstone: false, context_hash: 0, vector: Default::default(), content };
        let mut write = KeyWrite::put(ConflictPolicy::Siblings, slot, Timestamp(140), &row, Vec::new());
        let old = vec![term("a_bin", "x"), term("a_bin", "y"), term("n_int", "1")];
        write.superseded_terms = vec![SupersededTerms { name: slot.row_name(), clock: Timestamp(100), terms: old }];
        let changes = index_changes(&write, b"k");
        let of = |field: &'static str| changes[&Bytes::from(field)].clone();
        let name = |value: &'static str| row_name(&StoredTerm(value.into()), b"k", &slot.row_name());
        assert_eq!(changes.len(), 2, "{changes:?}");
        // The slot was used again: its row of the same term is overwritten, not removed.
        let put = Row { name: name("x"), value: Bytes::new(), stamp: Timestamp(140), expires: None };
        assert_eq!(of("a_bin"), [Change::Put(put), Change::Remove { name: name("y"), stamp: Timestamp(100) }]);
        assert!(matches!(of("n_int")[..], [Change::Put(_)]));
    }

    #[test]
    fn many_short_terms_count_by_their_rows() {
        let long = "012345678901234567890123456789012345678901234567890123456789";
        assert_eq!(index_bytes(&[term("a_bin", long)], b"k"), 65);
        let short = index_bytes(&[term("a_bin", "x")], b"k");
        assert!(short > 6 && short == (6 + 1 + INDEX_ROW_BYTES) / 3);
        assert_eq!(index_bytes(&[term("$bucket", "x")], b"k"), 0);
    }
}
