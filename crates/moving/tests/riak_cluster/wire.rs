//! The bytes of the stand-in: answers to reads of keys, and elements of queues.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_core::rules::external_term::TermWriter;
use larder_moving::SourceAnswer;
use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};

use super::Place;
use super::objects::{ClusterObject, ClusterValue, StandInClock};
use crate::stand_in::{found, key_headers, plain};

/// Time between the year 0 and 1970, in seconds.
const YEAR_0: u64 = 62_167_219_200;

fn clock_term(clock: &StandInClock) -> Vec<u8> {
    let mut term = TermWriter::default();
    term.list(clock.len(), |term| {
        for (actor, count) in clock {
            term.tuple(2);
            term.binary(actor);
            term.tuple(2);
            term.integer((*count).into());
            term.integer((YEAR_0 + 1_800_000_000 + count).into());
        }
    });
    term.finish()
}

/// A clock as headers have it.
pub(super) fn clock_text(clock: &StandInClock) -> String {
    // Riak's own compression gives other bytes than the server's.
    STANDARD.encode(compress_to_vec(&clock_term(clock), 1))
}

/// The answer to a read of a key.
pub(super) fn object(object: Option<&ClusterObject>, breaks_off: bool) -> SourceAnswer {
    let Some(object) = object else { return plain(404, "not found") };
    let clock = clock_text(&object.clock);
    let date =
        |value: &ClusterValue| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(value.modified / 1_000_000));
    if !object.is_live() {
        let headers = key_headers(&[("X-Riak-Vclock", &clock), ("X-Riak-Deleted", "true")]);
        return found(headers, 404, b"not found".to_vec(), false);
    }
    if let [value] = &object.values[..] {
        let headers = key_headers(&[
            ("X-Riak-Vclock", &clock),
            ("Content-Type", "text/plain"),
            ("ETag", &format!("\"{}\"", value.vtag)),
            ("Last-Modified", &date(value)),
            ("x-riak-index-f_bin", &value.text),
        ]);
        return found(headers, 200, value.text.clone().into_bytes(), breaks_off);
    }
    let headers = key_headers(&[("X-Riak-Vclock", &clock), ("Content-Type", "multipart/mixed; boundary=B")]);
    let part = |value: &ClusterValue| {
        let own = match value.is_deleted {
            true => "Content-Type: application/octet-stream\r\nX-Riak-Deleted: true".to_owned(),
            false => format!("Content-Type: text/plain\r\nx-riak-index-f_bin: {}", value.text),
        };
        let (vtag, date) = (&value.vtag, date(value));
        format!("\r\n--B\r\n{own}\r\nEtag: {vtag}\r\nLast-Modified: {date}\r\n\r\n{}", value.text)
    };
    let body = object.values.iter().map(part).collect::<String>() + "\r\n--B--\r\n";
    found(headers, 300, body.into_bytes(), breaks_off)
}

/// The answer of a queue with an element.
pub(super) fn element(place: &Place, object: &ClusterObject, is_compressed: bool) -> Vec<u8> {
    let bytes = object_v1(object);
    let (flags, bytes) = if is_compressed { (0x18, compress_to_vec_zlib(&bytes, 1)) } else { (0x10, bytes) };
    answer(place, object, flags, &bytes)
}

/// The same, of which the last term is cut, with the right checksum.
pub(super) fn cut_element(place: &Place, object: &ClusterObject) -> Vec<u8> {
    let bytes = object_v1(object);
    answer(place, object, 0x10, &bytes[..bytes.len() - 7])
}

fn answer(place: &Place, object: &ClusterObject, flags: u8, body: &[u8]) -> Vec<u8> {
    let (bucket, key) = place;
    let mut rest = vec![flags];
    for name in ["", bucket, key] {
        sized(&mut rest, name.as_bytes());
    }
    rest.extend(body);
    let mut answer = vec![1, u8::from(!object.is_live())];
    if !object.is_live() {
        sized(&mut answer, &clock_term(&object.clock));
    }
    answer.extend(crc32fast::hash(&rest).to_be_bytes());
    answer.extend(rest);
    answer
}

fn object_v1(object: &ClusterObject) -> Vec<u8> {
    let mut out = vec![53, 1];
    sized(&mut out, &clock_term(&object.clock));
    out.extend((object.values.len() as u32).to_be_bytes());
    for value in &object.values {
        sized(&mut out, &[&[1], value.text.as_bytes()].concat());
        sized(&mut out, &metadata(value));
    }
    out
}

fn metadata(value: &ClusterValue) -> Vec<u8> {
    let mut out = Vec::new();
    for part in [value.modified / 1_000_000_000_000, value.modified / 1_000_000 % 1_000_000, value.modified % 1_000_000]
    {
        out.extend((part as u32).to_be_bytes());
    }
    out.push(value.vtag.len() as u8);
    out.extend(value.vtag.bytes());
    out.push(u8::from(value.is_deleted));
    let mut terms = TermWriter::default();
    let index = usize::from(!value.is_deleted);
    terms.list(index, |terms| {
        terms.tuple(2);
        terms.binary(b"f_bin");
        terms.binary(value.text.as_bytes());
    });
    member(&mut out, "index", &terms.finish());
    let mut dot = TermWriter::default();
    dot.tuple(2);
    dot.binary(&value.dot.0);
    dot.tuple(2);
    dot.integer(value.dot.1.into());
    dot.integer((YEAR_0 + 1_800_000_000).into());
    member(&mut out, "dot", &dot.finish());
    if !value.is_deleted {
        member(&mut out, "content-type", b"\x83k\0\x0atext/plain");
        member(&mut out, "X-Riak-Meta", b"\x83j");
        member(&mut out, "Links", b"\x83j");
    }
    out
}

fn member(out: &mut Vec<u8>, name: &str, term: &[u8]) {
    sized(out, &[&[1], name.as_bytes()].concat());
    sized(out, &[&[0], term].concat());
}

fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}
