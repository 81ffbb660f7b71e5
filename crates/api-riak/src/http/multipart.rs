//! Siblings as `multipart/mixed` (Riak KV HTTP reference §2): a part for each value, with its own headers.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use larder_core::body::GetBody;
use larder_kv::FetchedObject;
use larder_kv::rules::causality::Sibling;

use super::body::{BodyPieces, RiakBody, read_pieces};
use super::headers::{encoding, http_date, insert, media_header};
use super::links::{self, LinkContext};
use super::reply::{RiakResponse, with_body};

/// Answers up to this length go out in one piece.
const WHOLE_BYTES_MAX: u64 = 64 * 1024;

/// An answer with a part for each value; without bodies it has only its length.
#[must_use]
pub(super) fn siblings(context: &LinkContext, object: FetchedObject, boundary: &str) -> RiakResponse {
    let heads: Vec<Bytes> = object.versions.siblings.iter().map(|sibling| head(sibling, context, boundary)).collect();
    let end = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let bodies: u64 = object.versions.siblings.iter().map(|sibling| sibling.content.body.length()).sum();
    let length = bodies + (heads.iter().map(Bytes::len).sum::<usize>() + end.len()) as u64;
    // A HEAD answers the length that a GET would have.
    let mut reply = if object.bodies.len() < heads.len() {
        let mut reply = with_body(StatusCode::OK, RiakBody::empty());
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        reply
    } else {
        with_body(StatusCode::OK, body(heads, object.bodies, end, length))
    };
    insert(reply.headers_mut(), CONTENT_TYPE, format!("multipart/mixed; boundary={boundary}"));
    reply
}

fn head(sibling: &Sibling, context: &LinkContext, boundary: &str) -> Bytes {
    let mut out = format!("\r\n--{boundary}\r\n").into_bytes();
    add_head(&mut out, sibling, context);
    out.into()
}

/// Appends the headers of a part with this value, and the empty line after them.
pub(super) fn add_head(out: &mut Vec<u8>, sibling: &Sibling, context: &LinkContext) {
    let content = &sibling.content;
    line(out, b"Content-Type", &media_header(content));
    if let Some(encoding) = encoding(content) {
        line(out, b"Content-Encoding", encoding);
    }
    line(out, b"Link", &links::render(&content.links, context.style, &context.bucket));
    line(out, b"Etag", sibling.vtag().as_bytes());
    line(out, b"Last-Modified", http_date(sibling.modified()).as_bytes());
    for (name, value) in &content.meta {
        line(out, name, value);
    }
    for term in &content.terms {
        line(out, &[b"x-riak-index-", term.field.as_ref()].concat(), &term.value);
    }
    out.extend_from_slice(b"\r\n");
}

/// A header line. Bytes that would break the line, which other protocols can store, leave it out.
pub(super) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let breaks = |bytes: &[u8]| bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if breaks(name) || breaks(value) || name.contains(&b':') {
        return;
    }
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn body(heads: Vec<Bytes>, bodies: Vec<GetBody>, end: Bytes, length: u64) -> RiakBody {
    let mut parts: VecDeque<GetBody> = VecDeque::with_capacity(2 * heads.len() + 1);
    for (head, body) in heads.into_iter().zip(bodies) {
        parts.extend([GetBody::Bytes(head), body]);
    }
    parts.push_back(GetBody::Bytes(end));
    if let Some(whole) = whole(&parts, length) {
        return RiakBody::full(whole);
    }
    // Heads and short bodies stay in memory until they are sent, so they count as held.
    let in_memory = |part: &GetBody| if let GetBody::Bytes(bytes) = part { bytes.len() as u64 } else { 0 };
    let memory = parts.iter().map(in_memory).sum();
    RiakBody::pieces(pieces(parts), Some(length)).with_extra_memory(memory)
}

/// All parts in one piece, if they are short and in memory.
fn whole(parts: &VecDeque<GetBody>, length: u64) -> Option<Bytes> {
    let mut whole = Vec::with_capacity(usize::try_from(length).ok().filter(|_| length <= WHOLE_BYTES_MAX)?);
    for part in parts {
        let GetBody::Bytes(bytes) = part else { return None };
        whole.extend_from_slice(bytes);
    }
    Some(whole.into())
}

fn pieces(parts: VecDeque<GetBody>) -> BodyPieces {
    let filled = parts.into_iter().filter(|part| part.length() > 0);
    let pieces = filled.map(|part| {
        let length = part.length();
        read_pieces(part, 0, length)
    });
    Box::pin(stream::iter(pieces.collect::<Vec<_>>()).flatten())
}
