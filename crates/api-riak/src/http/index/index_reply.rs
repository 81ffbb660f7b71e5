//! The answer to a query: one JSON object, or a part for each page.

use std::io;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, VARY};
use larder_core::Error;

use crate::http::body::RiakBody;
use crate::http::headers::insert;
use crate::http::listing::{aborted, failure, write_name};
use crate::http::reply::{JSON, RiakResponse, VARY_ENCODING, json, with_body};
use crate::index::{IndexPager, ShownHits};

/// The answer without results.
pub(super) fn nothing() -> RiakResponse {
    json(StatusCode::OK, r#"{"keys":[]}"#)
}

/// The number of results.
pub(super) fn counted(count: u64) -> RiakResponse {
    json(StatusCode::OK, format!("{{\"count\":{count}}}"))
}

/// All results in one object. Its array is sent as pages arrive; a short one goes out whole.
///
/// # Errors
/// The gateway's error for the first page.
pub(super) async fn whole(mut pager: IndexPager) -> Result<RiakResponse, Error> {
    let first = pager.next().await?;
    let begin = open(pager.shows_terms);
    if first.is_last {
        return Ok(json(StatusCode::OK, [begin, items(&first, pager.shows_terms), close(&first)].concat()));
    }
    let memory = pager.memory();
    let mut reply = with_body(StatusCode::OK, pieces(pager, begin, first).with_extra_memory(memory));
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    Ok(reply)
}

fn pieces(pager: IndexPager, begin: Vec<u8>, first: ShownHits) -> RiakBody {
    let state = Some((pager, begin, Some(first), false));
    let pieces = stream::try_unfold(state, |state| async move {
        let Some((mut pager, mut piece, page, mut wrote)) = state else { return Ok(None) };
        let page = match page {
            Some(page) => page,
            None => pager.next().await.map_err(aborted)?,
        };
        // Pages may be empty, most of all the last one, so a comma stands only between results.
        if wrote && !page.hits.is_empty() {
            piece.push(b',');
        }
        wrote |= !page.hits.is_empty();
        piece.extend(items(&page, pager.shows_terms));
        if page.is_last {
            piece.extend(close(&page));
            return Ok(Some((Bytes::from(piece), None)));
        }
        Ok(Some((Bytes::from(piece), Some((pager, Vec::new(), None, wrote)))))
    });
    // A piece without bytes would end the body of a chunked answer.
    let filled = pieces.filter(|piece: &io::Result<Bytes>| {
        let is_empty = piece.as_ref().is_ok_and(Bytes::is_empty);
        async move { !is_empty }
    });
    RiakBody::pieces(Box::pin(filled), None)
}

/// A part for each page with results, then one with the continuation, if there is one.
pub(super) fn stream(pager: IndexPager, boundary: &str) -> RiakResponse {
    let media = format!("multipart/mixed;boundary={boundary}");
    let memory = pager.memory();
    let state = Some((pager, boundary.to_owned()));
    let parts = stream::unfold(state, |state| async move {
        let (mut pager, boundary) = state?;
        let page = match pager.next().await {
            Ok(page) => page,
            Err(error) => return Some((last_parts(&boundary, Some(&failure(&error))), None)),
        };
        let mut parts = Vec::new();
        if !page.hits.is_empty() {
            let results = [open(pager.shows_terms), items(&page, pager.shows_terms), b"]}".to_vec()].concat();
            parts.push(part(&boundary, &results));
        }
        if !page.is_last {
            return Some((parts, Some((pager, boundary))));
        }
        let continuation = page.continuation.map(|text| format!("{{\"continuation\":\"{text}\"}}"));
        parts.extend(last_parts(&boundary, continuation.as_ref().map(String::as_bytes)));
        Some((parts, None))
    });
    let mut reply = with_body(StatusCode::OK, RiakBody::documents(parts).with_extra_memory(memory));
    insert(reply.headers_mut(), CONTENT_TYPE, media);
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

fn part(boundary: &str, body: &[u8]) -> Bytes {
    [format!("\r\n--{boundary}\r\nContent-Type: application/json\r\n\r\n").as_bytes(), body].concat().into()
}

/// The last part, if there is one, and the end.
fn last_parts(boundary: &str, body: Option<&[u8]>) -> Vec<Bytes> {
    let end = format!("\r\n--{boundary}--\r\n").into();
    body.map(|body| part(boundary, body)).into_iter().chain([end]).collect()
}

fn open(shows_terms: bool) -> Vec<u8> {
    if shows_terms { br#"{"results":["#.to_vec() } else { br#"{"keys":["#.to_vec() }
}

/// The results as the items of a JSON array.
fn items(page: &ShownHits, shows_terms: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.hits.iter().map(|(term, key)| term.len() + key.len() + 8).sum());
    for (position, (term, key)) in page.hits.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        if shows_terms {
            out.push(b'{');
            write_name(term, &mut out);
            out.push(b':');
            write_name(key, &mut out);
            out.push(b'}');
        } else {
            write_name(key, &mut out);
        }
    }
    out
}

fn close(page: &ShownHits) -> Vec<u8> {
    match &page.continuation {
        Some(text) => format!("],\"continuation\":\"{text}\"}}").into_bytes(),
        None => b"]}".to_vec(),
    }
}
