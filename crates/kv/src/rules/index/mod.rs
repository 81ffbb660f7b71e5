//! Secondary indexes: the terms of objects as rows, and queries over them.
//!
//! ```text
//! table index    partition  type, bucket, field, epoch, shard of the key
//!                row        ordered(term) · ordered(key) · name of the object's row   @ stamp of the object's row
//! query          equality or range of terms ──> a range of row names in each shard, merged in the order (term, key)
//! $key, $bucket  the same over the `$key` view
//! ```
//! An index row carries the name and the stamp of the object's row, so a write adds and removes exactly the rows of the
//! versions that it adds and replaces. `term` is the stored form of a term, whose bytes sort as its values do, `row` the names
//! of rows and the changes of a write, `scope` a part of an index as a range of names, `query` a query of one or
//! several conditions, and the place where its next page begins. `term` also has the filter of terms.

mod query;
mod row;
mod scope;
mod term;

pub use query::{
    ContinuationError, IndexCondition, IndexHit, IndexPosition, IndexQuery, ObjectFilter, for_any_combination,
    for_every_combination,
};
pub use row::{IndexRowName, SupersededTerms, index_bytes, index_changes, indexed_terms};
pub use scope::IndexScope;
pub use term::{RegexError, StoredTerm, TermKind, TermRegex};
