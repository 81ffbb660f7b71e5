//! The parts of a `multipart/mixed` answer: the siblings of a key.

use bytes::Bytes;
use memchr::memmem;

use super::source_headers::{SourceHeaders, ValueError};

/// Most parts of an answer.
const PARTS_MAX: usize = 10_000;

/// A part: its headers and its bytes.
pub(super) type MultipartPart = (SourceHeaders, Bytes);

/// The parts of a body, cut at the boundary that its content type names.
///
/// # Errors
/// [`ValueError`] when it has no boundary, or no end.
pub(super) fn parts(body: &Bytes, content_type: &[u8]) -> Result<Vec<MultipartPart>, ValueError> {
    let boundary = boundary(content_type).ok_or(ValueError::Form("boundary"))?;
    let delimiter = [b"\r\n--", boundary].concat();
    // The first delimiter may stand at the very beginning.
    let first = body.strip_prefix(&delimiter[2..]).map(|rest| body.len() - rest.len());
    let mut at = match first {
        Some(at) => at,
        None => memmem::find(body, &delimiter).ok_or(ValueError::Form("parts"))? + delimiter.len(),
    };
    let mut parts = Vec::new();
    loop {
        if body[at..].starts_with(b"--") {
            return Ok(parts);
        }
        let end = memmem::find(&body[at..], &delimiter).ok_or(ValueError::Truncated)? + at;
        parts.push(part(body.slice(at..end))?);
        if parts.len() > PARTS_MAX {
            return Err(ValueError::TooMany);
        }
        at = end + delimiter.len();
    }
}

fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let at = memmem::find(content_type, b"boundary=")? + b"boundary=".len();
    let rest = content_type[at..].trim_ascii();
    let rest = rest.split(|byte| *byte == b';').next()?;
    let rest = rest.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(rest);
    (!rest.is_empty()).then_some(rest)
}

fn part(bytes: Bytes) -> Result<MultipartPart, ValueError> {
    let head = bytes.strip_prefix(b"\r\n").ok_or(ValueError::Form("part"))?;
    let skipped = bytes.len() - head.len();
    let end = memmem::find(head, b"\r\n\r\n").ok_or(ValueError::Form("part"))?;
    let mut headers = SourceHeaders::default();
    for line in head[..end].split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(ValueError::Form("header of a part"))?;
        headers.add(&line[..colon], line[colon + 1..].trim_ascii());
    }
    Ok((headers, bytes.slice(skipped + end + 4..)))
}
