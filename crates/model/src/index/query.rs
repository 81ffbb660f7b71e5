//! A query of an index as a range of row names.

use bytes::Bytes;

use super::continuation::IndexPosition;
use super::row::{IndexRowName, row_name};
use super::term::{StoredTerm, TermKind};
use super::term_regex::TermRegex;
use crate::address::BucketAddress;
use crate::codec::{DecodeError, put_ordered};
use crate::hash;
use crate::rows::{key_of_view_row, view_row_prefix};
use crate::terms::{TermError, parse};

/// The rows that a query reads. Both ends of a range are included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexScope {
    /// Terms of a field.
    Field {
        /// The field, in lower case.
        field: Bytes,
        /// The kind of its values.
        kind: TermKind,
        /// The first term.
        from: StoredTerm,
        /// The last term.
        to: StoredTerm,
    },
    /// `$key`: keys.
    Keys {
        /// The first key.
        from: Bytes,
        /// The last key.
        to: Bytes,
    },
    /// `$bucket`: all keys.
    AllKeys,
}

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
    /// The query of one value of a field. The value of `$bucket` means nothing.
    ///
    /// # Errors
    /// [`TermError`]: the field has no known kind, or the value is not of it.
    pub fn equality(bucket: BucketAddress, field: &Bytes, value: &Bytes) -> Result<Self, TermError> {
        let range = Self::range(bucket, field, value, value)?;
        Ok(Self { is_equality: true, ..range })
    }

    /// The query of all values from `from` to `to`.
    ///
    /// # Errors
    /// As [`Self::equality`].
    pub fn range(bucket: BucketAddress, field: &Bytes, from: &Bytes, to: &Bytes) -> Result<Self, TermError> {
        let field = Bytes::from(field.to_ascii_lowercase());
        let (first, last) = (parse(&field, from)?, parse(&field, to)?);
        let scope = match (TermKind::of(&field), &field[..]) {
            (Some(kind), _) => {
                let (from, to) = (kind.store(&first.value), kind.store(&last.value));
                IndexScope::Field { field, kind, from, to }
            }
            (None, b"$bucket") => IndexScope::AllKeys,
            (None, _) => IndexScope::Keys { from: from.clone(), to: to.clone() },
        };
        Ok(Self { bucket, scope, is_equality: false, regex: None })
    }

    /// Whether its terms are integers, which no regular expression filters.
    #[must_use]
    pub fn is_of_integers(&self) -> bool {
        matches!(self.scope, IndexScope::Field { kind: TermKind::Integer, .. })
    }

    /// Whether a client that asks for terms gets them.
    #[must_use]
    pub fn has_terms(&self) -> bool {
        matches!(self.scope, IndexScope::Field { .. }) && !self.is_equality
    }

    /// The term of a hit as a client sees it.
    ///
    /// # Errors
    /// [`DecodeError`] when the stored term is damaged.
    pub fn show_term(&self, hit: &IndexHit) -> Result<Bytes, DecodeError> {
        match &self.scope {
            IndexScope::Field { kind, .. } => kind.show(&hit.term),
            IndexScope::Keys { .. } | IndexScope::AllKeys => Ok(Bytes::new()),
        }
    }

    /// The names of the rows that it reads in each shard: the first, and the first beyond; `None` is no end.
    #[must_use]
    pub fn row_names(&self) -> (Bytes, Option<Bytes>) {
        match &self.scope {
            IndexScope::Field { from, to, .. } => (term_prefix(from), Some(name_after_prefix(term_prefix(to)))),
            IndexScope::Keys { from, to } => (view_row_prefix(from), Some(name_after_prefix(view_row_prefix(to)))),
            IndexScope::AllKeys => (Bytes::new(), None),
        }
    }

    /// The first row name after all rows of this hit.
    #[must_use]
    pub fn row_name_after(&self, position: &IndexPosition) -> Bytes {
        name_after_prefix(match &self.scope {
            IndexScope::Field { .. } => row_name(&position.term, &position.key, &[]),
            IndexScope::Keys { .. } | IndexScope::AllKeys => view_row_prefix(&position.key),
        })
    }

    /// The hit of a row, and the name of the object's row that it belongs to.
    ///
    /// # Errors
    /// [`DecodeError`] for a name of another form.
    pub fn hit(&self, name: &Bytes) -> Result<(IndexHit, Bytes), DecodeError> {
        match &self.scope {
            IndexScope::Field { .. } => {
                let IndexRowName { term, key, object_row } = IndexRowName::decode(name)?;
                Ok((IndexHit { term, key }, object_row))
            }
            IndexScope::Keys { .. } | IndexScope::AllKeys => {
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
        match &self.scope {
            IndexScope::Field { .. } => regex.is_match(&hit.term.0),
            IndexScope::Keys { .. } | IndexScope::AllKeys => regex.is_match(&hit.key),
        }
    }

    /// A hash of the query: a continuation belongs to one.
    #[must_use]
    pub(super) fn id(&self) -> u64 {
        let BucketAddress { bucket_type, bucket } = &self.bucket;
        let (kind, parts): (&[u8], [&[u8]; 3]) = match &self.scope {
            IndexScope::Field { field, from, to, .. } => (b"field", [field, &from.0, &to.0]),
            IndexScope::Keys { from, to } => (b"key", [b"", from, to]),
            IndexScope::AllKeys => (b"bucket", [b"", b"", b""]),
        };
        let regex = self.regex.as_ref().map_or(&b""[..], |regex| regex.pattern().as_bytes());
        hash::id64(&[bucket_type, bucket, kind, parts[0], parts[1], parts[2], regex])
    }
}

fn term_prefix(term: &StoredTerm) -> Bytes {
    let mut name = Vec::with_capacity(term.0.len() + 2);
    put_ordered(&mut name, &term.0);
    name.into()
}

/// The first name after all that begin with an ordered value: the value ends in 00 01.
fn name_after_prefix(prefix: Bytes) -> Bytes {
    let mut name = prefix.to_vec();
    if let Some(last) = name.last_mut() {
        *last += 1;
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn bucket() -> BucketAddress {
        BucketAddress::new("t".into(), "b".into()).unwrap()
    }

    fn holds(query: &IndexQuery, name: &Bytes) -> bool {
        let (from, to) = query.row_names();
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
                let after = query.row_name_after(&IndexPosition::of(&hit));
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
