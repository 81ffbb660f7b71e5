//! Link walking: an answer in parts, one part for each kept step, and in it a part for each object.
//!
//! ```text
//! --A                                             the answer
//! Content-Type: multipart/mixed; boundary=B
//!
//! --B                                             a kept step
//! X-Riak-Vclock: …                                an object
//! Location: /buckets/b/keys/k
//! Content-Type: text/plain
//!
//! value
//! --B--
//!
//! --A--
//! ```
//! Objects are read as they are sent: a walk of any size takes the memory of its addresses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use hyper::header::{CONTENT_TYPE, EXPIRES};
use hyper::{Method, StatusCode};
use larder_core::Error;
use larder_core::body::GetBody;
use larder_kv::rules::links::{LinkFilter, LinkStep};
use larder_kv::{FetchedObject, Gateway, KvGet, Quorums};
use larder_mapreduce::{LinkWalk, LinkWalkError, LinkWalker};
use larder_net::{ArrivingBody, break_off};
use larder_rows::Timestamp;
use larder_rows::address::Address;
use larder_rows::limits::{LINK_STEPS_MAX, LINK_WALK_BYTES_MAX};

use super::accept;
use super::body::{self, BodyPieces, RiakBody, read_pieces};
use super::call::RiakCall;
use super::errors::RiakFault;
use super::headers::{http_date, insert};
use super::links::{LinkContext, LinkStyle};
use super::multipart::{add_head, line};
use super::path::{name, quote_form};
use super::reply::{RiakResponse, empty, not_found_page, with_body};
use super::routes::PathPart;

/// Seconds for which a browser may keep the answer.
const EXPIRES_SECONDS: u64 = 600;
/// An answer of fewer bytes goes out with its length.
const SHORT_BYTES: usize = 64 * 1024;

/// Bytes of memory of a walk: the addresses of its answer, of a step and of the next one, and the objects that are read at once.
const WALK_MEMORY: u64 = 4 * LINK_WALK_BYTES_MAX as u64;

/// GET, HEAD and POST of a link walk. A POST does nothing: it makes browsers drop what they keep.
///
/// # Errors
/// The steps are not valid, or the walk was not finished.
pub(super) async fn answer(
    call: &RiakCall<'_>,
    gateway: &Arc<Gateway>,
    arriving: ArrivingBody<'_>,
) -> Result<RiakResponse, RiakFault> {
    let steps = steps(call).ok_or_else(|| RiakFault::bad(INVALID))?;
    if *call.method == Method::POST {
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    accept::require(call.headers, &["multipart/mixed"])?;
    arriving.admit(WALK_MEMORY).await.map_err(body::busy)?;
    let walker = LinkWalker { kv: &gateway.kv, timeout: gateway.shared().context().config.timeout };
    let walk = match walker.walk(&call.address()?, &steps).await {
        Ok(walk) => walk,
        Err(LinkWalkError::NoStart) => return Ok(not_found_page()),
        Err(LinkWalkError::Gateway(error)) => return Err(error.into()),
        Err(refused @ (LinkWalkError::Function(_) | LinkWalkError::TooMany)) => {
            return Err(RiakFault::bad(format!("{refused}\n")));
        }
    };
    respond(gateway, walk, LinkContext::from_call(call).style).await
}

/// Checks the steps of a walk.
///
/// # Errors
/// 400: a segment is no step.
pub(super) fn check_form(call: &RiakCall<'_>) -> Result<(), RiakFault> {
    steps(call).map(drop).ok_or_else(|| RiakFault::bad(INVALID))
}

const INVALID: &str = "Invalid link walk query submitted. Valid link walk query format is: \
                       /riak/some_bucket/some_key/<bucket>,<riaktag>,0|1/...";

/// The steps of the path; `None`: a segment is no step.
fn steps(call: &RiakCall<'_>) -> Option<Vec<LinkStep>> {
    let from = call.route.place(PathPart::Rest)?;
    parse_steps(call.segments.rest(from).collect())
}

fn parse_steps(segments: Vec<&str>) -> Option<Vec<LinkStep>> {
    if segments.len() > LINK_STEPS_MAX {
        return None;
    }
    let last = segments.len() - 1;
    let mut steps = segments
        .iter()
        .enumerate()
        .map(|(at, segment)| step(segment, at == last))
        .collect::<Option<Vec<LinkStep>>>()?;
    // The only step is shown in any case: an answer without it would say nothing.
    if let [only] = steps.as_mut_slice() {
        only.keep = true;
    }
    Some(steps)
}

fn step(segment: &str, is_last: bool) -> Option<LinkStep> {
    let mut parts = segment.split(',').filter(|part| !part.is_empty());
    let (bucket, tag, keep) = (parts.next()?, parts.next()?, parts.next()?);
    let any = |part: &str| if part == "_" { None } else { Some(name(part)) };
    let keep = match keep {
        "1" => true,
        "0" => false,
        _ => is_last,
    };
    parts.next().is_none().then(|| LinkStep { filter: LinkFilter { bucket: any(bucket), tag: any(tag) }, keep })
}

/// One piece of the answer.
enum WalkPiece {
    Text(String),
    Object(Address, String),
}

async fn respond(gateway: &Arc<Gateway>, walk: LinkWalk, style: LinkStyle) -> Result<RiakResponse, RiakFault> {
    let boundary = gateway.context().new_request_id();
    let (pieces, memory) = plan(gateway, walk, &boundary);
    let shared = Arc::clone(gateway);
    let pieces = stream::iter(pieces).then(move |piece| {
        let gateway = Arc::clone(&shared);
        async move {
            read_piece(&gateway, piece, style)
                .await
                .map_err(|error| break_off("read of an object of a link walk", error))
        }
    });
    let mut pieces: BodyPieces = Box::pin(pieces.try_flatten());
    let mut begin = Vec::new();
    let mut ended = false;
    while !ended && begin.len() < SHORT_BYTES {
        match pieces.next().await {
            Some(Ok(piece)) => begin.extend_from_slice(&piece),
            Some(Err(error)) => return Err(first_error(error).into()),
            None => ended = true,
        }
    }
    let body = if ended {
        RiakBody::full(begin.into())
    } else {
        let begin = stream::once(async { Ok(Bytes::from(begin)) });
        RiakBody::pieces(Box::pin(begin.chain(pieces)), None).with_extra_memory(memory)
    };
    let mut reply = with_body(StatusCode::OK, body);
    insert(reply.headers_mut(), CONTENT_TYPE, format!("multipart/mixed; boundary={boundary}"));
    let expires = Timestamp(gateway.context().now().0.saturating_add(EXPIRES_SECONDS * 1_000_000));
    insert(reply.headers_mut(), EXPIRES, http_date(expires));
    Ok(reply)
}

/// The pieces of the answer in order, and the bytes of memory that they take.
fn plan(gateway: &Gateway, walk: LinkWalk, boundary: &str) -> (Vec<WalkPiece>, u64) {
    let (mut pieces, mut memory) = (Vec::new(), 0);
    for objects in walk.kept {
        let inner = gateway.context().new_request_id();
        let head = format!("\r\n--{boundary}\r\nContent-Type: multipart/mixed; boundary={inner}\r\n");
        pieces.push(WalkPiece::Text(head));
        for address in objects {
            memory += (address.bucket.bucket.len() + address.key.len() + 256) as u64;
            pieces.push(WalkPiece::Object(address, inner.clone()));
        }
        pieces.push(WalkPiece::Text(format!("\r\n--{inner}--\r\n")));
    }
    pieces.push(WalkPiece::Text(format!("\r\n--{boundary}--\r\n")));
    (pieces, memory)
}

async fn read_piece(gateway: &Gateway, piece: WalkPiece, style: LinkStyle) -> Result<BodyPieces, Error> {
    let (address, boundary) = match piece {
        WalkPiece::Text(text) => return Ok(Box::pin(stream::once(async { Ok(Bytes::from(text)) }))),
        WalkPiece::Object(address, boundary) => (address, boundary),
    };
    let timeout: Option<Duration> = None;
    let request = KvGet { address, quorums: Quorums::default(), bodies: true, timeout };
    let mut object = gateway.kv.get(request.clone()).await?;
    if object.versions.siblings.is_empty() {
        // The object was deleted since the walk passed it.
        return Ok(Box::pin(stream::empty()));
    }
    let head = Bytes::from(head(&request.address, &object, style, &boundary));
    let value = object.bodies.swap_remove(0);
    let length = value.length();
    let head = stream::once(async { Ok(head) });
    Ok(if length == 0 { Box::pin(head) } else { Box::pin(head.chain(read_value(value, length))) })
}

fn read_value(value: GetBody, length: u64) -> BodyPieces {
    read_pieces(value, 0, length)
}

/// The head of an object's part. Of siblings it shows the first, and names the tags of the others.
fn head(address: &Address, object: &FetchedObject, style: LinkStyle, boundary: &str) -> Vec<u8> {
    let mut out = format!("\r\n--{boundary}\r\n").into_bytes();
    line(&mut out, b"X-Riak-Vclock", STANDARD.encode(object.context.as_deref().unwrap_or_default()).as_bytes());
    let (bucket, siblings) = (&address.bucket.bucket, &object.versions.siblings);
    let [first, others @ ..] = siblings.as_slice() else { return out };
    let mut location = location(bucket, &address.key, style);
    if !others.is_empty() {
        location.extend_from_slice(b"?vtag=");
        location.extend_from_slice(first.vtag().as_bytes());
    }
    line(&mut out, b"Location", &location);
    if !others.is_empty() {
        let tags: Vec<String> = others.iter().map(|sibling| sibling.vtag().to_string()).collect();
        line(&mut out, b"X-Riak-Sibling-VTags", tags.join(",").as_bytes());
    }
    add_head(&mut out, first, &LinkContext { style, bucket: bucket.clone() });
    out
}

fn location(bucket: &[u8], key: &[u8], style: LinkStyle) -> Vec<u8> {
    let (before, between): (&[u8], &[u8]) = match style {
        LinkStyle::Buckets => (b"/buckets/", b"/keys/"),
        LinkStyle::Riak => (b"/riak/", b"/"),
    };
    let mut path = before.to_vec();
    quote_form(bucket, &mut path);
    path.extend_from_slice(between);
    quote_form(key, &mut path);
    path
}

/// The gateway's error of a piece that failed before anything was sent.
fn first_error(error: io::Error) -> Error {
    let text = error.to_string();
    match error.into_inner().and_then(|inner| inner.downcast::<Error>().ok()) {
        Some(error) => *error,
        None => Error::Internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &[(Option<&'static str>, Option<&'static str>, bool)]) {
        let bytes = |part: Option<&'static str>| part.map(Bytes::from);
        let step = |(bucket, tag, keep): &(Option<&'static str>, Option<&'static str>, bool)| LinkStep {
            filter: LinkFilter { bucket: bytes(*bucket), tag: bytes(*tag) },
            keep: *keep,
        };
        let steps: Vec<LinkStep> = expected.iter().map(step).collect();
        assert_eq!(parse_steps(path.split('/').collect()), Some(steps), "{path}");
    }

    #[test]
    fn the_last_step_is_kept_and_the_only_one_always() {
        check("_,_,_", &[(None, None, true)]);
        check("b,t,0", &[(Some("b"), Some("t"), true)]);
        check("b%2C,t+u,1", &[(Some("b,"), Some("t u"), true)]);
        check("_,next,_/_,_,_", &[(None, Some("next"), false), (None, None, true)]);
        check("_,_,1/_,_,0", &[(None, None, true), (None, None, false)]);
        check("_,_,x/*,_,x", &[(None, None, false), (Some("*"), None, true)]);
    }

    #[test]
    fn a_segment_that_is_no_step_is_refused() {
        let long = vec!["_,_,_"; LINK_STEPS_MAX + 1].join("/");
        for path in ["_,_", "_", ",,", "a,b,1,2", "_,_,_/_", long.as_str()] {
            assert_eq!(parse_steps(path.split('/').collect()), None, "{path}");
        }
    }
}
