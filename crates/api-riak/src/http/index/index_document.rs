//! The document of a query of several conditions.
//!
//! ```text
//! {"all": [CONDITION,…]} or {"any": [CONDITION,…]}, with "max_results", "continuation", "count", "timeout"
//! CONDITION   {"field":F,"value":V}    {"field":F,"from":A,"to":B}    {"field":F,"prefix":P}
//! ```

use std::time::Duration;

use bytes::Bytes;
use larder_core::rules::repeated_member::repeated_member;
use larder_core::rules::riak_json;
use larder_kv::rules::index::{
    ContinuationError, IndexCondition, IndexPosition, IndexQuery, IndexScope, for_any_combination,
    for_every_combination,
};
use larder_rows::address::BucketAddress;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Most bytes of a document.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 256 * 1024;

/// Most conditions: each object of a page is compared with all of them.
const CONDITIONS_MAX: usize = 64;

type QueryJson = Map<String, Value>;

/// A query with its options.
#[derive(Debug)]
pub(super) struct IndexDocument {
    /// The queries whose results follow each other.
    pub(super) queries: Vec<IndexQuery>,
    /// The end of the page before, in the first of them.
    pub(super) after: Option<IndexPosition>,
    /// Most results.
    pub(super) max_results: Option<usize>,
    /// Whether the answer is the number of results alone.
    pub(super) count: bool,
    /// The time of the whole query; `None` is no limit.
    pub(super) timeout: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentFields {
    all: Option<Vec<QueryJson>>,
    any: Option<Vec<QueryJson>>,
    max_results: Option<std::num::NonZeroUsize>,
    continuation: Option<String>,
    #[serde(default)]
    count: bool,
    timeout: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionFields {
    field: String,
    value: Option<ConditionTerm>,
    from: Option<ConditionTerm>,
    to: Option<ConditionTerm>,
    prefix: Option<String>,
}

/// A term: an integer beyond 64 bits is text.
#[derive(Deserialize)]
#[serde(untagged)]
enum ConditionTerm {
    Number(i64),
    Text(String),
}

impl IndexDocument {
    /// Decodes a document.
    ///
    /// # Errors
    /// The text of the 400 that names its first fault.
    pub(super) fn parse(bucket: BucketAddress, document: &[u8]) -> Result<Self, String> {
        let document = &*riak_json::standard(document);
        if let Some(name) = repeated_member(document) {
            return Err(invalid(&format!("an object has the member \"{name}\" twice")));
        }
        let document: QueryJson = serde_json::from_slice(document).map_err(|error| invalid(&error.to_string()))?;
        let DocumentFields { all, any, max_results, continuation, count, timeout } = parse_fields(document)?;
        let mut queries = match (all, any) {
            (Some(all), None) => for_every_combination(&bucket, conditions(all)?),
            (None, Some(any)) => for_any_combination(&bucket, conditions(any)?),
            _ => return Err(invalid("it has either \"all\" or \"any\"")),
        };
        if count && (max_results.is_some() || continuation.is_some()) {
            return Err(invalid("\"count\" takes no \"max_results\" and no \"continuation\""));
        }
        let after = continuation.map(|text| continued(&mut queries, &text)).transpose()?;
        let timeout = timeout.filter(|millis| *millis > 0).map(Duration::from_millis);
        Ok(Self { queries, after, max_results: max_results.map(Into::into), count, timeout })
    }
}

/// The fields of an object. An array of values without names, which `serde` would take for one, is none.
fn parse_fields<T: DeserializeOwned>(object: QueryJson) -> Result<T, String> {
    serde_json::from_value(object.into()).map_err(|error| invalid(&error.to_string()))
}

fn conditions(fields: Vec<QueryJson>) -> Result<Vec<IndexCondition>, String> {
    if fields.is_empty() || fields.len() > CONDITIONS_MAX {
        return Err(invalid(&format!("it has 1 to {CONDITIONS_MAX} conditions")));
    }
    fields.into_iter().map(condition).collect()
}

fn condition(fields: QueryJson) -> Result<IndexCondition, String> {
    let ConditionFields { field, value, from, to, prefix } = parse_fields(fields)?;
    let field = Bytes::from(field);
    let (scope, is_equality) = match (value, from, to, prefix) {
        (Some(value), None, None, None) => {
            let value = value.text();
            (IndexScope::range(&field, &value, &value), true)
        }
        (None, Some(from), Some(to), None) => (IndexScope::range(&field, &from.text(), &to.text()), false),
        (None, None, None, Some(prefix)) => {
            let scope = IndexScope::prefix(&field, &prefix.into()).transpose();
            (scope.ok_or_else(|| invalid("\"prefix\" is of a _bin field or of $key"))?, false)
        }
        _ => return Err(invalid("a condition has \"value\", \"from\" and \"to\", or \"prefix\"")),
    };
    Ok(IndexCondition { scope: scope.map_err(|error| invalid(&error.erlang()))?, is_equality })
}

impl ConditionTerm {
    fn text(self) -> Bytes {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Text(text) => text.into(),
        }
    }
}

/// The place of a continuation; the queries before its own have given their results.
fn continued(queries: &mut Vec<IndexQuery>, text: &str) -> Result<IndexPosition, String> {
    let mut refusal = ContinuationError::Foreign;
    for at in 0..queries.len() {
        match IndexPosition::decode(text.as_bytes(), &queries[at]) {
            Ok(position) => {
                queries.drain(..at);
                return Ok(position);
            }
            Err(error) => refusal = error,
        }
    }
    Err(format!("Invalid \"continuation\". {refusal}\n"))
}

fn invalid(fault: &str) -> String {
    format!("Invalid query: {fault}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(document: &str) -> Result<IndexDocument, String> {
        let bucket = BucketAddress::new("default".into(), "b".into()).unwrap();
        IndexDocument::parse(bucket, document.as_bytes())
    }

    #[test]
    fn a_document_is_refused_by_the_name_of_its_fault() {
        for (document, fault) in [
            ("[]", "invalid type"),
            ("{}", "either"),
            (r#"{"all":[]}"#, "1 to 64 conditions"),
            (r#"{"all":[{"field":"a_bin","value":"x"}],"any":[]}"#, "either"),
            (r#"{"all":[{"field":"a_bin","value":"x"}],"sort":true}"#, "unknown field `sort`"),
            (
                r#"{"any":[{"field":"a_int","value":1}],"max_results":1,"max_results":2}"#,
                "member \"max_results\" twice",
            ),
            (r#"{"all":[{"field":"a_bin","value":"x","value":"y"}]}"#, "member \"value\" twice"),
            (r#"{"all":[["a_bin","x",null,null,null]]}"#, "invalid type"),
            (r#"{"all":[{"field":"a_bin"}]}"#, "a condition has"),
            (r#"{"all":[{"field":"a_bin","value":"x","prefix":"y"}]}"#, "a condition has"),
            (r#"{"all":[{"field":"a_bin","from":"x"}]}"#, "a condition has"),
            (r#"{"all":[{"field":"a","value":"x"}]}"#, "unknown_field_type"),
            (r#"{"all":[{"field":"a_int","value":"x"}]}"#, "field_parsing_failed"),
            (r#"{"all":[{"field":"a_int","prefix":"1"}]}"#, "of a _bin field or of $key"),
            (r#"{"any":[{"field":"a_int","value":1}],"max_results":0}"#, "nonzero"),
            (r#"{"any":[{"field":"a_int","value":1}],"count":true,"max_results":1}"#, "takes no"),
            (r#"{"any":[{"field":"a_int","value":1}],"continuation":"AAAA"}"#, "not issued by this server"),
        ] {
            let refused = parsed(document).unwrap_err();
            assert!(refused.contains(fault), "{document}: {refused}");
        }
    }

    #[test]
    fn a_continuation_goes_on_in_the_query_that_gave_it() {
        let document =
            r#"{"any":[{"field":"a_int","value":1},{"field":"a_int","value":"2"},{"field":"$key","prefix":"k"}]}"#;
        let queries = parsed(document).unwrap().queries;
        assert_eq!(queries.len(), 3);
        let position = IndexPosition { key: "key".into(), ..IndexPosition::default() };
        let continued = document.replace("]}", &format!("],\"continuation\":\"{}\"}}", position.encode(&queries[1])));
        let IndexDocument { queries, after, .. } = parsed(&continued).unwrap();
        assert_eq!((queries.len(), after), (2, Some(position)));
    }
}
