//! The part of an index that a query reads, as a range of row names.

use std::collections::BTreeSet;

use bytes::Bytes;
use larder_rows::codec::{prefix_successor, put_ordered};

use super::term::{StoredTerm, TermKind};
use crate::rules::object_row::view_row_prefix;
use crate::rules::terms::{TermError, parse};

/// Bytes that end an ordered value in a row name.
const END_MARK_BYTES: usize = 2;

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
    /// Terms of a field of bytes that begin so.
    FieldPrefix {
        /// The field, in lower case.
        field: Bytes,
        /// The begin.
        prefix: Bytes,
    },
    /// `$key`: keys.
    Keys {
        /// The first key.
        from: Bytes,
        /// The last key.
        to: Bytes,
    },
    /// `$key`: keys that begin so.
    KeyPrefix {
        /// The begin.
        prefix: Bytes,
    },
    /// `$bucket`: all keys.
    AllKeys,
}

impl IndexScope {
    /// All values of a field from `from` to `to`. The values of `$bucket` mean nothing.
    ///
    /// # Errors
    /// [`TermError`]: the field has no known kind, or a value is not of it.
    pub fn range(field: &Bytes, from: &Bytes, to: &Bytes) -> Result<Self, TermError> {
        let field = Bytes::from(field.to_ascii_lowercase());
        let (first, last) = (parse(&field, from)?, parse(&field, to)?);
        Ok(match (TermKind::from_field(&field), &field[..]) {
            (Some(kind), _) => {
                let (from, to) = (kind.store(&first.value), kind.store(&last.value));
                Self::Field { field, kind, from, to }
            }
            (None, b"$bucket") => Self::AllKeys,
            (None, _) => Self::Keys { from: from.clone(), to: to.clone() },
        })
    }

    /// All values of a field that begin with `prefix`; `None` for integers and `$bucket`, which have no begin.
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn prefix(field: &Bytes, prefix: &Bytes) -> Result<Option<Self>, TermError> {
        let field = Bytes::from(field.to_ascii_lowercase());
        if TermKind::from_field(&field) == Some(TermKind::Integer) {
            return Ok(None);
        }
        Ok(match Self::range(&field, prefix, prefix)? {
            Self::Field { .. } => Some(Self::FieldPrefix { field, prefix: prefix.clone() }),
            Self::Keys { .. } => Some(Self::KeyPrefix { prefix: prefix.clone() }),
            Self::FieldPrefix { .. } | Self::KeyPrefix { .. } | Self::AllKeys => None,
        })
    }

    /// The field whose terms it has; `None` for keys.
    #[must_use]
    pub fn field(&self) -> Option<&Bytes> {
        match self {
            Self::Field { field, .. } | Self::FieldPrefix { field, .. } => Some(field),
            Self::Keys { .. } | Self::KeyPrefix { .. } | Self::AllKeys => None,
        }
    }

    /// The names of its rows in each shard: the first, and the first beyond; `None` is no end.
    #[must_use]
    pub fn row_names(&self) -> (Bytes, Option<Bytes>) {
        match self {
            Self::Field { from, to, .. } => (ordered(&from.0), Some(name_after_prefix(ordered(&to.0)))),
            Self::Keys { from, to } => (view_row_prefix(from), Some(name_after_prefix(view_row_prefix(to)))),
            Self::FieldPrefix { prefix, .. } => names_with_prefix(&ordered(prefix)),
            Self::KeyPrefix { prefix } => names_with_prefix(&view_row_prefix(prefix)),
            Self::AllKeys => (Bytes::new(), None),
        }
    }

    /// Whether an object with this key and these terms is in it.
    #[must_use]
    pub fn includes(&self, key: &Bytes, terms: &BTreeSet<(&Bytes, StoredTerm)>) -> bool {
        match self {
            Self::Field { field, from, to, .. } => {
                terms.iter().any(|(of, term)| *of == field && (from..=to).contains(&term))
            }
            Self::FieldPrefix { field, prefix } => {
                terms.iter().any(|(of, term)| *of == field && term.0.starts_with(prefix))
            }
            Self::Keys { from, to } => (from..=to).contains(&key),
            Self::KeyPrefix { prefix } => key.starts_with(prefix),
            Self::AllKeys => true,
        }
    }

    /// Its kind and its parts, for a hash of the query.
    pub(super) fn parts(&self) -> (&[u8], [&[u8]; 3]) {
        match self {
            Self::Field { field, from, to, .. } => (b"field", [field, &from.0, &to.0]),
            Self::FieldPrefix { field, prefix } => (b"field prefix", [field, prefix, b""]),
            Self::Keys { from, to } => (b"key", [b"", from, to]),
            Self::KeyPrefix { prefix } => (b"key prefix", [b"", prefix, b""]),
            Self::AllKeys => (b"bucket", [b"", b"", b""]),
        }
    }
}

/// The begin of the names of rows with this term.
fn ordered(term: &[u8]) -> Bytes {
    let mut name = Vec::with_capacity(term.len() + END_MARK_BYTES);
    put_ordered(&mut name, term);
    name.into()
}

/// The names that begin with an ordered value, or with a longer one that begins with it.
fn names_with_prefix(ordered: &Bytes) -> (Bytes, Option<Bytes>) {
    // Each byte of a value is written by itself, so a longer value differs behind the last byte at the earliest.
    let begin = ordered.slice(..ordered.len().saturating_sub(END_MARK_BYTES));
    let end = prefix_successor(&begin);
    (begin, end)
}

/// The first name after all that begin with an ordered value: the value ends in 00 01.
pub(super) fn name_after_prefix(prefix: Bytes) -> Bytes {
    let mut name = prefix.to_vec();
    if let Some(last) = name.last_mut() {
        *last += 1;
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::row::row_name;
    use super::*;

    proptest! {
        #[test]
        fn the_rows_of_a_prefix_are_those_of_values_that_begin_with_it(prefix: Vec<u8>, suffix: Vec<u8>, other: Vec<u8>, cut: bool) {
            let other = if cut { [&prefix[..], &suffix].concat() } else { other };
            let (prefix, other) = (Bytes::from(prefix), Bytes::from(other));
            let holds = |scope: &IndexScope, name: &Bytes| {
                let (from, to) = scope.row_names();
                *name >= from && to.is_none_or(|to| *name < to)
            };
            let terms = IndexScope::prefix(&"F_Bin".into(), &prefix).unwrap().unwrap();
            let name = row_name(&StoredTerm(other.clone()), b"k", b"0123456789abcdef");
            prop_assert_eq!(holds(&terms, &name), other.starts_with(&prefix));
            let field = Bytes::from("f_bin");
            prop_assert_eq!(terms.includes(&"k".into(), &[(&field, StoredTerm(other.clone()))].into()), other.starts_with(&prefix));
            let keys = IndexScope::prefix(&"$key".into(), &prefix).unwrap().unwrap();
            let name = [&view_row_prefix(&other)[..], b"0123456789abcdef"].concat().into();
            prop_assert_eq!(holds(&keys, &name), other.starts_with(&prefix));
            prop_assert_eq!(keys.includes(&other, &BTreeSet::new()), other.starts_with(&prefix));
        }
    }

    #[test]
    fn integers_and_whole_buckets_have_no_prefix() {
        let prefix = |field: &'static str| IndexScope::prefix(&field.into(), &"1".into());
        assert_eq!([prefix("a_int"), prefix("$bucket")], [Ok(None), Ok(None)]);
        assert!(prefix("a").is_err());
    }
}
