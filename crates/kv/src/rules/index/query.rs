//! A query of an index as a range of row names.

use std::collections::BTreeSet;

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use larder_rows::codec::DecodeError;
use larder_rows::hash;

use super::continuation::IndexPosition;
use super::row::{IndexRowName, row_name};
use super::scope::{IndexScope, name_after_prefix};
use super::term::{StoredTerm, TermKind};
use super::term_regex::TermRegex;
use crate::rules::object_row::{key_of_view_row, view_row_prefix};
use crate::rules::terms::TermError;

/// A query of one index of a bucket.
#[derive(Debug, Clone)]
pub struct IndexQuery {
    /// The bucket.
    pub bucket: BucketAddress,
    /// The rows that it reads.
    pub scope: IndexScope,
    /// Whether it asks for one value; a range may show the terms of its hits.
    pub is_equality: bool,
    /// The filter of terms, or of keys where there are no terms.
    pub regex: Option<TermRegex>,
    /// The filter of whole objects.
    pub filter: ObjectFilter,
}

/// A filter of objects by all of their terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectFilter {
    /// An object has a term, or a key, in each of these.
    pub all: Vec<IndexScope>,
    /// It has none in any of these.
    pub none: Vec<IndexScope>,
}

impl ObjectFilter {
    /// Whether every object passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.none.is_empty()
    }

    /// Whether an object with this key and these terms passes.
    #[must_use]
    pub fn passes(&self, key: &Bytes, terms: &BTreeSet<(&Bytes, StoredTerm)>) -> bool {
        let includes = |scope: &IndexScope| scope.includes(key, terms);
        self.all.iter().all(includes) && !self.none.iter().any(includes)
    }
}

/// One result of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexHit {
    /// The term; empty for a query of keys.
    pub term: StoredTerm,
    /// The key of the object.
    pub key: Bytes,
}

impl IndexQuery {
    /// The query of these rows.
    #[must_use]
    pub fn new(bucket: BucketAddress, scope: IndexScope) -> Self {
        Self { bucket, scope, is_equality: false, regex: None, filter: ObjectFilter::default() }
    }

    /// The query of one value of a field. The value of `$bucket` means nothing.
    ///
    /// # Errors
    /// [`TermError`]: the field has no known kind, or the value is not of it.
    pub fn equality(bucket: BucketAddress, field: &Bytes, value: &Bytes) -> Result<Self, TermError> {
        Ok(Self { is_equality: true, ..Self::range(bucket, field, value, value)? })
    }

    /// The query of all values from `from` to `to`.
    ///
    /// # Errors
    /// As [`Self::equality`].
    pub fn range(bucket: BucketAddress, field: &Bytes, from: &Bytes, to: &Bytes) -> Result<Self, TermError> {
        Ok(Self::new(bucket, IndexScope::range(field, from, to)?))
    }

    /// Whether its terms are integers, which no regular expression filters.
    #[must_use]
    pub fn is_of_integers(&self) -> bool {
        matches!(self.scope, IndexScope::Field { kind: TermKind::Integer, .. })
    }

    /// Whether a client that asks for terms gets them.
    #[must_use]
    pub fn has_terms(&self) -> bool {
        self.scope.field().is_some() && !self.is_equality
    }

    /// The term of a hit as a client sees it.
    ///
    /// # Errors
    /// [`DecodeError`] when the stored term is damaged.
    pub fn show_term(&self, hit: &IndexHit) -> Result<Bytes, DecodeError> {
        match &self.scope {
            IndexScope::Field { kind, .. } => kind.show(&hit.term),
            IndexScope::FieldPrefix { .. } => TermKind::Binary.show(&hit.term),
            IndexScope::Keys { .. } | IndexScope::KeyPrefix { .. } | IndexScope::AllKeys => Ok(Bytes::new()),
        }
    }

    /// The first row name after all rows of this hit.
    #[must_use]
    pub fn row_name_after(&self, position: &IndexPosition) -> Bytes {
        name_after_prefix(match self.scope.field() {
            Some(_) => row_name(&position.term, &position.key, &[]),
            None => view_row_prefix(&position.key),
        })
    }

    /// The hit of a row, and the name of the object's row that it belongs to.
    ///
    /// # Errors
    /// [`DecodeError`] for a name of another form.
    pub fn hit(&self, name: &Bytes) -> Result<(IndexHit, Bytes), DecodeError> {
        match self.scope.field() {
            Some(_) => {
                let IndexRowName { term, key, object_row } = IndexRowName::decode(name)?;
                Ok((IndexHit { term, key }, object_row))
            }
            None => {
                let key = key_of_view_row(name)?;
                let object_row = name.slice(view_row_prefix(&key).len()..);
                Ok((IndexHit { term: StoredTerm::default(), key }, object_row))
            }
        }
    }

    /// Whether the filter lets a hit through.
    #[must_use]
    pub fn is_wanted(&self, hit: &IndexHit) -> bool {
        let Some(regex) = &self.regex else { return true };
        match self.scope.field() {
            Some(_) => regex.is_match(&hit.term.0),
            None => regex.is_match(&hit.key),
        }
    }

    /// A hash of the query: a continuation belongs to one.
    #[must_use]
    pub(super) fn id(&self) -> u64 {
        let BucketAddress { bucket_type, bucket } = &self.bucket;
        let (kind, parts) = self.scope.parts();
        let regex = self.regex.as_ref().map_or(&b""[..], |regex| regex.pattern().as_bytes());
        let mut all = vec![bucket_type, bucket, kind, parts[0], parts[1], parts[2], regex];
        // Ids of queries without a filter are as they were before there were filters: clients may hold continuations.
        for (word, scopes) in [(&b"all"[..], &self.filter.all), (b"none", &self.filter.none)] {
            for (kind, parts) in scopes.iter().map(IndexScope::parts) {
                all.extend([word, kind, parts[0], parts[1], parts[2]]);
            }
        }
        hash::id64(&all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn bucket() -> BucketAddress {
        BucketAddress::new("t".into(), "b".into()).unwrap()
    }

    fn holds(query: &IndexQuery, name: &Bytes) -> bool {
        let (from, to) = query.scope.row_names();
        *name >= from && to.is_none_or(|to| *name < to)
    }

    proptest! {
        #[test]
        fn a_range_of_terms_holds_the_rows_of_its_terms(
            from: Vec<u8>, to: Vec<u8>, term: Vec<u8>, key: Vec<u8>, row: [u8; 16],
        ) {
            let query = IndexQuery::range(bucket(), &"f_bin".into(), &from.clone().into(), &to.clone().into()).unwrap();
            for term in [&term, &from, &to] {
                let name = IndexRowName { term: StoredTerm(term.clone().into()), key: key.clone().into(), object_row: Bytes::copy_from_slice(&row) };
                prop_assert_eq!(holds(&query, &name.encode()), from <= *term && *term <= to);
                let (hit, object_row) = query.hit(&name.encode()).unwrap();
                prop_assert_eq!((&hit.term, &hit.key, &object_row), (&name.term, &name.key, &name.object_row));
                let after = query.row_name_after(&IndexPosition::from_hit(&hit));
                prop_assert!(name.encode() < after);
                let longer = IndexRowName { key: [&key[..], b"\0"].concat().into(), ..name };
                prop_assert!(longer.encode() >= after);
            }
        }
    }

    #[test]
    fn a_range_of_integers_is_one_of_numbers() {
        let query = IndexQuery::range(bucket(), &"Age_INT".into(), &"-3".into(), &"+10".into()).unwrap();
        for (number, held) in [("-4", false), ("-3", true), ("0", true), ("9", true), ("10", true), ("11", false)] {
            let name = row_name(&TermKind::Integer.store(&number.into()), b"k", b"0123456789abcdef");
            assert_eq!(holds(&query, &name), held, "{number}");
        }
        assert!(query.is_of_integers() && query.has_terms());
    }

    #[test]
    fn special_fields_read_keys() {
        let key = |scope: &'static str| IndexQuery::equality(bucket(), &scope.into(), &"k".into()).unwrap();
        assert_eq!(key("$key").scope, IndexScope::Keys { from: "k".into(), to: "k".into() });
        assert_eq!(key("$bucket").scope, IndexScope::AllKeys);
        let unknown = IndexQuery::equality(bucket(), &"$bogus".into(), &"a".into()).unwrap_err();
        assert_eq!(unknown.erlang(), "{unknown_field_type,<<\"$bogus\">>}");
    }
}
