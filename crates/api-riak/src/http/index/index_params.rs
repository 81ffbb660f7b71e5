//! The path and the parameters of a query.

use std::time::Duration;

use bytes::Bytes;
use larder_kv::rules::index::{IndexPosition, IndexQuery, IndexScope, TermKind, TermRegex};
use larder_kv::rules::terms::TermError;
use larder_rows::address::BucketAddress;

use crate::http::call::RiakCall;
use crate::http::errors::RiakFault;
use crate::http::params::{integer, printed};
use crate::http::path::{self, QueryParams};
use crate::http::routes::PathPart;

/// A query with its parameters.
#[derive(Debug)]
pub(super) struct IndexParams {
    /// The query; `None` for integers without a value, which has no results.
    pub(super) query: Option<IndexQuery>,
    /// The end of the page before.
    pub(super) after: Option<IndexPosition>,
    /// Most results.
    pub(super) max_results: Option<usize>,
    /// Whether results show their terms.
    pub(super) return_terms: bool,
    /// Whether the answer has a part for each page.
    pub(super) stream: bool,
    /// Whether the answer is the number of results alone.
    pub(super) count: bool,
    /// The time of the whole query; `None` is no limit.
    pub(super) timeout: Option<Duration>,
}

impl IndexParams {
    /// Decodes a request, in Riak's order.
    ///
    /// # Errors
    /// 400 with the text of the first invalid part.
    pub(super) fn from_call(call: &RiakCall<'_>) -> Result<Self, RiakFault> {
        let params = &call.query;
        // Results are always sorted, so the parameter is only checked.
        boolean(params, "pagination_sort")?;
        let return_terms = boolean(params, "return_terms")?;
        let max_results = max_results(params)?;
        let mut query = query(call)?;
        if let Some(query) = &mut query {
            query.regex = regex(params, query)?;
        }
        let timeout = timeout(params)?;
        let after = match (&query, params.get("continuation").filter(|text| !text.is_empty())) {
            (Some(query), Some(text)) => {
                let after = IndexPosition::decode(text, query);
                Some(after.map_err(|error| RiakFault::bad(format!("Invalid \"continuation\". {error}\n")))?)
            }
            _ => None,
        };
        let stream = params.get("stream").is_some_and(|value| value.eq_ignore_ascii_case(b"true"));
        let count = boolean(params, "count")?;
        let shapes = [
            ("max_results", max_results.is_some()),
            ("continuation", after.is_some()),
            ("stream", stream),
            ("return_terms", return_terms),
        ];
        if let Some((name, _)) = shapes.iter().find(|(_, is_given)| count && *is_given) {
            return Err(RiakFault::bad(format!("Invalid \"count\". A number of results takes no \"{name}\"\n")));
        }
        Ok(Self { query, after, max_results, return_terms, stream, count, timeout })
    }
}

/// The query in the path: a field, and no value, one, or two.
fn query(call: &RiakCall<'_>) -> Result<Option<IndexQuery>, RiakFault> {
    let bucket = call.bucket()?;
    // The field follows the word after the bucket.
    let place = call.route.place(PathPart::Bucket).map_or(0, |place| place + 2);
    let value = |number: usize| path::name(call.segments.raw(place + number));
    let field = Bytes::from(value(0).to_ascii_lowercase());
    let values = call.segments.count().saturating_sub(place + 1);
    if boolean(&call.query, "prefix")? {
        return prefix(bucket, &field, &value(1), values).map(Some);
    }
    let parsed = match values {
        0 if TermKind::from_field(&field) == Some(TermKind::Integer) => return Ok(None),
        0 => IndexQuery::equality(bucket, &field, &Bytes::new()),
        1 => IndexQuery::equality(bucket, &field, &value(1)),
        _ => IndexQuery::range(bucket, &field, &value(1), &value(2)),
    };
    parsed.map(Some).map_err(refused)
}

/// The query of all values that begin so.
fn prefix(bucket: BucketAddress, field: &Bytes, begin: &Bytes, values: usize) -> Result<IndexQuery, RiakFault> {
    let unfit = || RiakFault::bad("Invalid \"prefix\". It is of one value of a _bin field, or of $key\n");
    if values != 1 {
        return Err(unfit());
    }
    let scope = IndexScope::prefix(field, begin).map_err(refused)?.ok_or_else(unfit)?;
    Ok(IndexQuery::new(bucket, scope))
}

fn refused(error: TermError) -> RiakFault {
    RiakFault::bad(format!("Invalid query: {}\n", error.erlang()))
}

fn regex(params: &QueryParams<'_>, query: &IndexQuery) -> Result<Option<TermRegex>, RiakFault> {
    let Some(pattern) = params.get("term_regex") else { return Ok(None) };
    if query.is_of_integers() {
        return Err(RiakFault::bad("Can not use term regular expressions on integer queries"));
    }
    let refused = |error: larder_kv::rules::index::RegexError| {
        let text = format!("Invalid term regular expression {} : ", printed(pattern));
        RiakFault::bad(format!("{text}{}", error.erlang(text.chars().count())))
    };
    TermRegex::new(pattern).map(Some).map_err(refused)
}

fn boolean(params: &QueryParams<'_>, name: &str) -> Result<bool, RiakFault> {
    let Some(value) = params.get(name) else { return Ok(false) };
    match value.to_ascii_lowercase().as_slice() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(RiakFault::bad(format!("Invalid \"{name}\". {} is not a boolean", printed(value)))),
    }
}

fn max_results(params: &QueryParams<'_>) -> Result<Option<usize>, RiakFault> {
    let Some(value) = params.get("max_results") else { return Ok(None) };
    let refused = |shown: String| RiakFault::bad(format!("Invalid \"max_results\". {shown} is not a positive integer"));
    match integer(value) {
        Some(count @ 1..) => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
        Some(count) => Err(refused(count.to_string())),
        None => Err(refused(printed(value))),
    }
}

/// The `timeout` parameter: 0 is no limit.
fn timeout(params: &QueryParams<'_>) -> Result<Option<Duration>, RiakFault> {
    let Some(value) = params.get("timeout") else { return Ok(None) };
    match integer(value).and_then(|millis| u64::try_from(millis).ok()) {
        Some(0) => Ok(None),
        Some(millis) => Ok(Some(Duration::from_millis(millis))),
        None => {
            let text = format!("Bad timeout value {}. Must be a non-negative integer\n", printed(value));
            Err(RiakFault::bad(text))
        }
    }
}
