//! Queries of secondary indexes: code 25, in one frame or in a frame for each page (Riak KV protocol buffers reference).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_core::Error;
use larder_core::rules::erlang::binary;
use larder_kv::Gateway;
use larder_kv::rules::index::{IndexPosition, IndexQuery, RegexError, TermRegex};
use larder_rows::address::BucketAddress;
use prost::Message as _;

use super::fault::PbFault;
use super::fields::type_name;
use super::frame::{put_head, put_message};
use super::messages::{RpbIndexReq, RpbIndexResp, RpbPair};
use crate::index::{IndexPager, ShownHits};

const INDEX_RESP: u8 = 26;
const RANGE: i32 = 1;
/// Longest message with all results in one frame.
const WHOLE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A query under way.
pub(super) struct PbIndexAnswer {
    /// `None`: nothing was asked for.
    pager: Option<IndexPager>,
    /// The message so far, of an answer that goes out in one frame.
    whole: Option<BytesMut>,
    ended: bool,
}

impl PbIndexAnswer {
    /// Code 25.
    ///
    /// # Errors
    /// The query is incomplete or invalid.
    pub(super) fn new(gateway: &Arc<Gateway>, request: RpbIndexReq) -> Result<Self, PbFault> {
        let stream = request.stream == Some(true);
        let whole = (!stream).then(BytesMut::new);
        let mut query = index_query(&request)?;
        if let Some(pattern) = &request.term_regex {
            query.regex = Some(regex(pattern, &query)?);
        }
        // As Riak: no results are no query.
        if request.max_results == Some(0) {
            return Ok(Self { pager: None, whole, ended: false });
        }
        let after = match request.continuation.filter(|text| !text.is_empty()) {
            Some(text) => Some(IndexPosition::decode(&text, &query).map_err(|error| PbFault::Text(error.to_string()))?),
            None => None,
        };
        let timeout = request.timeout.filter(|millis| *millis > 0).map(|millis| Duration::from_millis(millis.into()));
        let max_results = request.max_results.map(|count| count as usize);
        let reader = gateway.kv.query_index(query, after, timeout);
        let pager = IndexPager::new(reader, max_results, request.return_terms == Some(true));
        Ok(Self { pager: Some(pager), whole, ended: false })
    }

    /// Bytes of memory that the query holds, besides a page.
    pub(super) fn memory(&self) -> u64 {
        let whole = self.whole.as_ref().map_or(0, |whole| 2 * whole.len() as u64);
        whole + self.pager.as_ref().map_or(0, IndexPager::memory)
    }

    /// Appends the next page, if it goes out by itself; `false` after the last frame.
    ///
    /// # Errors
    /// The gateway's; the error ends the answer.
    pub(super) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        if self.ended {
            return Ok(false);
        }
        let page = match &mut self.pager {
            Some(pager) => match pager.next().await {
                Err(Error::TimedOut) if self.whole.is_none() => return Err(PbFault::Text("{error,timeout}".into())),
                page => page.map_err(PbFault::from_bucket)?,
            },
            None => ShownHits { is_last: true, ..ShownHits::default() },
        };
        self.ended = page.is_last;
        let shows_terms = self.pager.as_ref().is_some_and(|pager| pager.shows_terms);
        let has_hits = !page.hits.is_empty();
        let mut message = index_message(page, shows_terms);
        let Some(whole) = &mut self.whole else {
            // The last frame has no results, as Riak's.
            let continuation = message.continuation.take();
            if has_hits {
                put_message(output, INDEX_RESP, &message);
            }
            if self.ended {
                put_message(output, INDEX_RESP, &RpbIndexResp { continuation, done: Some(true), ..Default::default() });
            }
            return Ok(true);
        };
        if whole.len() + message.encoded_len() > WHOLE_BYTES_MAX {
            return Err(PbFault::Text("Too many results for one answer: stream them, or set max_results".into()));
        }
        // Encoded at once: a list of short names takes many times the memory of its message.
        whole.extend_from_slice(&message.encode_to_vec());
        if self.ended {
            put_head(output, INDEX_RESP, whole.len());
            output.unsplit(std::mem::take(whole));
        }
        Ok(true)
    }
}

fn index_message(page: ShownHits, shows_terms: bool) -> RpbIndexResp {
    let mut message = RpbIndexResp { continuation: page.continuation.map(Bytes::from), ..Default::default() };
    match shows_terms {
        true => {
            let pair = |(term, key)| RpbPair { key: Some(term), value: Some(key) };
            message.results = page.hits.into_iter().map(pair).collect();
        }
        false => message.keys = page.hits.into_iter().map(|(_, key)| key).collect(),
    }
    message
}

fn index_query(request: &RpbIndexReq) -> Result<IndexQuery, PbFault> {
    let bucket = BucketAddress::new(type_name(request.r#type.clone()), request.bucket.clone().unwrap_or_default())?;
    let field = request.index.clone().unwrap_or_default();
    let parsed = if request.qtype == Some(RANGE) {
        let (Some(from), Some(to)) = (&request.range_min, &request.range_max) else {
            let (from, to) = (undefined_or(&request.range_min), undefined_or(&request.range_max));
            return Err(PbFault::Text(format!("Invalid range query: {from} -> {to}")));
        };
        IndexQuery::range(bucket, &field, from, to)
    } else {
        let Some(value) = &request.key else { return Err(PbFault::Text("Invalid equality query undefined".into())) };
        IndexQuery::equality(bucket, &field, value)
    };
    parsed.map_err(|error| PbFault::Text(error.erlang()))
}

fn undefined_or(value: &Option<Bytes>) -> String {
    value.as_ref().map_or_else(|| "undefined".into(), binary)
}

fn regex(pattern: &Bytes, query: &IndexQuery) -> Result<TermRegex, PbFault> {
    if query.is_of_integers() {
        return Err(PbFault::Text("Can not use term regular expression in integer query".into()));
    }
    let refused = |error: RegexError| {
        let text = format!("Invalid term regular expression {} : ", binary(pattern));
        PbFault::Text(format!("{text}{}", error.erlang(text.chars().count())))
    };
    TermRegex::new(pattern).map_err(refused)
}
