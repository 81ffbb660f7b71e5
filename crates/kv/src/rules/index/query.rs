//! A query of an index as a range of row names.
//!
//! A query of several conditions at once.
//!
//! ```text
//! all   the rows of one condition are read; a hit stays if its object meets the others
//! any   the rows of each are read, one condition after the other; a hit stays if its object meets none before
//! ```
//! So a page is one of a single condition, and its continuation names that condition's query.
//!
//! The place where the next page of a query begins, as opaque text for a client.
//!
//! ```text
//! base64 of: version u8 | hash of the query u64 | term | key | crc32 of all before it
//! ```

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_rows::address::BucketAddress;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::hash;

use super::row::{IndexRowName, row_name};
use super::scope::{IndexScope, name_after_prefix};
use super::term::{StoredTerm, TermKind, TermRegex};
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

/// A condition of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexCondition {
    /// The terms or keys that meet it.
    pub scope: IndexScope,
    /// Whether it is one value.
    pub is_equality: bool,
}

/// The query of objects that meet all conditions. Their number is above 0.
#[must_use]
pub fn for_every_combination(bucket: &BucketAddress, mut conditions: Vec<IndexCondition>) -> Vec<IndexQuery> {
    // One value of a field has few rows as a rule; of others nothing is known.
    let is_narrow = |condition: &IndexCondition| condition.is_equality && condition.scope.field().is_some();
    let first = conditions.iter().position(is_narrow).unwrap_or(0);
    if first >= conditions.len() {
        return Vec::new();
    }
    let IndexCondition { scope, is_equality } = conditions.remove(first);
    let all = conditions.into_iter().map(|condition| condition.scope).collect();
    let filter = ObjectFilter { all, none: Vec::new() };
    vec![IndexQuery { is_equality, filter, ..IndexQuery::new(bucket.clone(), scope) }]
}

/// The queries of objects that meet any of the conditions, one after the other.
#[must_use]
pub fn for_any_combination(bucket: &BucketAddress, conditions: Vec<IndexCondition>) -> Vec<IndexQuery> {
    let mut before = Vec::new();
    let queries = conditions.into_iter().map(|IndexCondition { scope, is_equality }| {
        let filter = ObjectFilter { all: Vec::new(), none: before.clone() };
        before.push(scope.clone());
        IndexQuery { is_equality, filter, ..IndexQuery::new(bucket.clone(), scope) }
    });
    queries.collect()
}

const VERSION: u8 = 1;
const CHECK_BYTES: usize = 4;

/// The last hit of a page: the next page begins after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexPosition {
    /// Its term; empty for a query of keys.
    pub term: StoredTerm,
    /// Its key.
    pub key: Bytes,
}

/// A continuation that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContinuationError {
    /// The text is damaged, or no server of Larder made it.
    #[error("The continuation was not issued by this server or is damaged")]
    Foreign,
    /// It is one of another query.
    #[error("The continuation belongs to another query")]
    OtherQuery,
}

impl IndexPosition {
    /// The position of a hit.
    #[must_use]
    pub fn from_hit(hit: &IndexHit) -> Self {
        Self { term: hit.term.clone(), key: hit.key.clone() }
    }

    /// The text for a client, bound to `query`.
    #[must_use]
    pub fn encode(&self, query: &IndexQuery) -> String {
        let mut out = FieldEncoder::versioned(VERSION, 24 + self.term.0.len() + self.key.len());
        out.u64(query.id());
        out.bytes(&self.term.0);
        out.bytes(&self.key);
        let check = crc32fast::hash(out.written());
        out.raw(&check.to_be_bytes());
        STANDARD.encode(out.finish())
    }

    /// Reads the text that a client sent with `query`.
    ///
    /// # Errors
    /// [`ContinuationError`].
    pub fn decode(text: &[u8], query: &IndexQuery) -> Result<Self, ContinuationError> {
        let bytes = Bytes::from(STANDARD.decode(text).map_err(|_| ContinuationError::Foreign)?);
        let fields = bytes.len().checked_sub(CHECK_BYTES).ok_or(ContinuationError::Foreign)?;
        if crc32fast::hash(&bytes[..fields]).to_be_bytes() != bytes[fields..] {
            return Err(ContinuationError::Foreign);
        }
        let (id, position) = Self::parse(bytes.slice(..fields)).map_err(|_| ContinuationError::Foreign)?;
        if id == query.id() { Ok(position) } else { Err(ContinuationError::OtherQuery) }
    }

    fn parse(bytes: Bytes) -> Result<(u64, Self), DecodeError> {
        let mut rest = FieldDecoder::versioned(bytes, VERSION)?;
        let id = rest.u64()?;
        let position = Self { term: StoredTerm(rest.bytes()?), key: rest.bytes()? };
        rest.finish()?;
        Ok((id, position))
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

#[cfg(test)]
mod continuation_tests {
    use super::*;
    use larder_rows::address::BucketAddress;
    use proptest::prelude::*;

    fn query(bucket: &'static str, from: &'static str) -> IndexQuery {
        let bucket = BucketAddress::new("t".into(), bucket.into()).unwrap();
        IndexQuery::range(bucket, &"f_bin".into(), &from.into(), &"z".into()).unwrap()
    }

    proptest! {
        #[test]
        fn continuations_decode_to_themselves_and_for_their_query_alone(term: Vec<u8>, key: Vec<u8>) {
            let position = IndexPosition { term: StoredTerm(term.into()), key: key.into() };
            let text = position.encode(&query("b", "a"));
            prop_assert_eq!(IndexPosition::decode(text.as_bytes(), &query("b", "a")), Ok(position));
            for other in [query("c", "a"), query("b", "b")] {
                prop_assert_eq!(IndexPosition::decode(text.as_bytes(), &other), Err(ContinuationError::OtherQuery));
            }
        }

        #[test]
        fn random_and_damaged_texts_are_refused(bytes: Vec<u8>, at: usize, bit in 0..7_u8) {
            let query = query("b", "a");
            prop_assert_eq!(IndexPosition::decode(&bytes, &query), Err(ContinuationError::Foreign));
            let mut text = IndexPosition::default().encode(&query).into_bytes();
            let at = at % text.len();
            text[at] ^= 1 << bit;
            prop_assert!(IndexPosition::decode(&text, &query).is_err());
        }
    }

    /// Continuations that clients may hold.
    #[test]
    fn the_golden_continuation_stays() {
        let position = IndexPosition { term: StoredTerm("m".into()), key: "k".into() };
        let golden = "AQWMXGwgSXNMAW0Bay1ddWU=";
        assert_eq!(position.encode(&query("b", "a")), golden);
        assert_eq!(IndexPosition::decode(golden.as_bytes(), &query("b", "a")), Ok(position));
    }
}
