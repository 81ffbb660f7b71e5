//! A query of several conditions at once.
//!
//! ```text
//! all   the rows of one condition are read; a hit stays if its object meets the others
//! any   the rows of each are read, one condition after the other; a hit stays if its object meets none before
//! ```
//! So a page is one of a single condition, and its continuation names that condition's query.

use larder_rows::address::BucketAddress;

use super::query::{IndexQuery, ObjectFilter};
use super::scope::IndexScope;

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
pub fn all_of(bucket: &BucketAddress, mut conditions: Vec<IndexCondition>) -> Vec<IndexQuery> {
    // One value of a field has few rows as a rule; of others nothing is known.
    let is_narrow = |one: &IndexCondition| one.is_equality && one.scope.field().is_some();
    let first = conditions.iter().position(is_narrow).unwrap_or(0);
    if first >= conditions.len() {
        return Vec::new();
    }
    let IndexCondition { scope, is_equality } = conditions.remove(first);
    let all = conditions.into_iter().map(|one| one.scope).collect();
    let filter = ObjectFilter { all, none: Vec::new() };
    vec![IndexQuery { is_equality, filter, ..IndexQuery::new(bucket.clone(), scope) }]
}

/// The queries of objects that meet any of the conditions, one after the other.
#[must_use]
pub fn any_of(bucket: &BucketAddress, conditions: Vec<IndexCondition>) -> Vec<IndexQuery> {
    let mut before = Vec::new();
    let queries = conditions.into_iter().map(|IndexCondition { scope, is_equality }| {
        let filter = ObjectFilter { all: Vec::new(), none: before.clone() };
        before.push(scope.clone());
        IndexQuery { is_equality, filter, ..IndexQuery::new(bucket.clone(), scope) }
    });
    queries.collect()
}
