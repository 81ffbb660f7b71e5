//! Where the heads of a connection's requests lie, to refuse lines that end without CR.
//!
//! hyper takes a bare LF for the end of a line, as RFC 9112 §2.2 allows. A proxy in front may take it for a part of a header,
//! and so see other requests than the server. hyper has no setting for it and shows no raw head, so the bytes are followed here,
//! before hyper gets them.

use memchr::memchr;

/// Bytes that a line which frames a body never has.
const LINE_BYTES_MAX: usize = 1024;
/// Bytes kept of a line whose end has not arrived: too many for a line that frames a body, also without CR.
const KEPT_BYTES_MAX: usize = LINE_BYTES_MAX + 1;
/// A byte that no line of a head may have: hyper answers 400 and closes the connection.
const REFUSED_BYTE: u8 = 0;

/// Follows the requests of one connection through their framing, as hyper reads it (RFC 9112 §6).
#[derive(Debug, Default)]
pub(crate) struct RequestFraming {
    part: MessagePart,
    /// The begin of a line whose end has not arrived.
    begun_line: Vec<u8>,
    body: BodyLength,
    /// Bytes of a head whose end has not arrived.
    head_bytes: u64,
    /// Whether the end of a refused head was given.
    is_ended: bool,
}

/// The part of a request that the next byte belongs to.
#[derive(Debug, Default, Clone, Copy)]
enum MessagePart {
    /// The request line; empty lines may come before it.
    #[default]
    RequestLine,
    /// A header, or the empty line after the last.
    Header,
    /// This many bytes of a body.
    Body(u64),
    /// The line with the size of a chunk.
    ChunkSize,
    /// This many bytes of a chunk and its line's end.
    Chunk(u64),
    /// A trailer, or the empty line after the last.
    Trailer,
    /// Bytes after a line that hyper refuses: there is no other request.
    Refused,
}

/// The length of a request's body, by the headers so far.
#[derive(Debug, Default, Clone, Copy)]
struct BodyLength {
    content_length: u64,
    is_chunked: bool,
}

impl RequestFraming {
    /// Looks at the bytes that arrived next. Puts a byte that hyper refuses in place of the first bare LF of a head.
    pub(crate) fn refuse_bare_line_feeds(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let (was_head, was_header) = (self.is_in_head(), matches!(self.part, MessagePart::Header));
            let taken = match self.part {
                MessagePart::Refused => return,
                MessagePart::Body(left) => self.skip(left, bytes.len(), MessagePart::Body, MessagePart::RequestLine),
                MessagePart::Chunk(left) => self.skip(left, bytes.len(), MessagePart::Chunk, MessagePart::ChunkSize),
                MessagePart::RequestLine | MessagePart::Header | MessagePart::ChunkSize | MessagePart::Trailer => {
                    self.take_line(bytes)
                }
            };
            let has_ended = was_header && !matches!(self.part, MessagePart::Header);
            self.head_bytes = if was_head && !has_ended { self.head_bytes + taken as u64 } else { 0 };
            bytes = &mut bytes[taken..];
        }
    }

    /// Bytes of the head that has begun and not ended.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    fn is_in_head(&self) -> bool {
        matches!(self.part, MessagePart::RequestLine | MessagePart::Header)
    }

    /// The end of a head after the byte that hyper refuses, once: hyper looks for that byte when a head is whole.
    pub(crate) fn end_of_refused(&mut self) -> Option<&'static [u8]> {
        let is_due = matches!(self.part, MessagePart::Refused) && !self.is_ended;
        self.is_ended |= is_due;
        is_due.then_some(b"\r\n\r\n")
    }

    /// Skips bytes without lines, of which `left` remain; `part` are fewer of them, `next` follows the last.
    fn skip(&mut self, left: u64, arrived: usize, part: fn(u64) -> MessagePart, next: MessagePart) -> usize {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(arrived);
        let left = left - taken as u64;
        self.part = if left == 0 { next } else { part(left) };
        taken
    }

    /// Takes bytes up to the end of a line; returns how many.
    fn take_line(&mut self, bytes: &mut [u8]) -> usize {
        let Some(end) = memchr(b'\n', bytes) else {
            // Bound: a client may send a line without end.
            let room = KEPT_BYTES_MAX.saturating_sub(self.begun_line.len());
            self.begun_line.extend_from_slice(&bytes[..bytes.len().min(room)]);
            // The last byte tells whether a CR is before the LF.
            if let (true, Some(last)) = (bytes.len() > room, bytes.last()) {
                self.begun_line.truncate(KEPT_BYTES_MAX - 1);
                self.begun_line.push(*last);
            }
            return bytes.len();
        };
        let mut begun_line = std::mem::take(&mut self.begun_line);
        let line = if begun_line.is_empty() {
            &bytes[..end]
        } else {
            begun_line.extend_from_slice(&bytes[..end]);
            &begun_line
        };
        self.part = match line.strip_suffix(b"\r") {
            Some(line) => self.part_after(line),
            None => MessagePart::Refused,
        };
        if matches!(self.part, MessagePart::Refused) {
            bytes[end] = REFUSED_BYTE;
        }
        end + 1
    }

    /// The part after a whole line.
    fn part_after(&mut self, line: &[u8]) -> MessagePart {
        match (self.part, line) {
            (MessagePart::RequestLine, b"") => MessagePart::RequestLine,
            (MessagePart::RequestLine, _) => {
                self.body = BodyLength::default();
                MessagePart::Header
            }
            (MessagePart::Header, b"") => match self.body {
                BodyLength { is_chunked: true, .. } => MessagePart::ChunkSize,
                BodyLength { content_length: 0, .. } => MessagePart::RequestLine,
                BodyLength { content_length, .. } => MessagePart::Body(content_length),
            },
            (MessagePart::Header, header) => match self.body.with_header(header) {
                Some(body) => {
                    self.body = body;
                    MessagePart::Header
                }
                None => MessagePart::Refused,
            },
            (MessagePart::ChunkSize, line) => match chunk_size(line) {
                Some(0) => MessagePart::Trailer,
                // CR and LF follow the bytes of a chunk.
                Some(size) => size.checked_add(2).map_or(MessagePart::Refused, MessagePart::Chunk),
                None => MessagePart::Refused,
            },
            (MessagePart::Trailer, b"") => MessagePart::RequestLine,
            (part, _) => part,
        }
    }
}

impl BodyLength {
    /// The length after one more header; `None` for a header that hyper refuses.
    fn with_header(self, line: &[u8]) -> Option<Self> {
        // Most headers have another first letter, and end the look here.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            return Some(self);
        }
        let Some(colon) = memchr(b':', line) else { return Some(self) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is_length = name.eq_ignore_ascii_case(b"content-length");
        if !is_length && !name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Some(self);
        }
        if line.len() >= LINE_BYTES_MAX {
            return None;
        }
        if is_length {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let content_length = str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()?;
            return Some(Self { content_length, ..self });
        }
        let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        Some(Self { is_chunked: last.trim_ascii().eq_ignore_ascii_case(b"chunked"), ..self })
    }
}

/// The size in the first line of a chunk; `None` where hyper refuses it.
fn chunk_size(line: &[u8]) -> Option<u64> {
    if line.len() >= LINE_BYTES_MAX {
        return None;
    }
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    u64::from_str_radix(str::from_utf8(&line[..end]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str =
        "POST /c HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5;x=\r\n\n\n\n\n\n\r\n0\r\nA: b\r\n\r\n";

    /// The bytes that hyper gets of `pieces`.
    fn passed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut framing = RequestFraming::default();
        let pass = |piece: &[u8]| {
            let mut piece = piece.to_vec();
            framing.refuse_bare_line_feeds(&mut piece);
            piece
        };
        pieces.into_iter().flat_map(pass).collect()
    }

    /// Passes text in pieces of each length.
    #[track_caller]
    fn assert_passes_as(text: &str, expected: &str) {
        for length in 1..=text.len() {
            let passed = passed(text.as_bytes().chunks(length));
            assert_eq!(String::from_utf8_lossy(&passed), expected, "in pieces of {length} bytes");
        }
    }

    #[test]
    fn bodies_keep_their_line_feeds() {
        let put = "PUT / HTTP/1.1\r\ncontent-LENGTH: \t3 \r\nX: y\r\n\r\n\n\n\n";
        let all = format!("{put}\r\n{CHUNKED}{put}GET / HTTP/1.1\r\n\r\n{put}");
        assert_passes_as(&all, &all);
    }

    #[test]
    fn a_body_that_came_with_its_head_was_counted_as_one() {
        let mut framing = RequestFraming::default();
        let mut head_bytes = |text: &str| {
            framing.refuse_bare_line_feeds(&mut text.as_bytes().to_vec());
            framing.head_bytes()
        };
        assert_eq!(head_bytes(&format!("PUT / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n{}", "x".repeat(8000))), 0);
        assert_eq!(head_bytes(&"x".repeat(1000)), 0);
        assert_eq!(head_bytes("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nA"), 17, "the begin of the next head alone");
        assert_eq!(head_bytes(&"a".repeat(100)), 117);
        assert_eq!(head_bytes(": b\r\nC: d\r\n"), 128);
        assert_eq!(head_bytes("\r\n"), 0);
        assert_eq!(head_bytes(CHUNKED), 0);
    }

    #[test]
    fn a_bare_line_feed_of_a_head_becomes_a_byte_that_is_refused() {
        for head in ["\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nA: b\n", "GET / HTTP/1.1\r\nA: b\r\n\n"] {
            let refused = head.replace("\r\n", "\r\r").replace('\n', "\0").replace("\r\r", "\r\n");
            assert_passes_as(&format!("{CHUNKED}{head}\n"), &format!("{CHUNKED}{refused}\n"));
        }
    }

    #[test]
    fn a_body_whose_length_is_unclear_is_refused() {
        let long = format!("Content-Length: {}5", "0".repeat(LINE_BYTES_MAX));
        let lengths = [
            "Content-Length: +5",
            "Content-Length:",
            "Content-Length: 5, 5",
            "Content-Length: 99999999999999999999",
            &long,
        ];
        for length in lengths {
            let head = format!("PUT / HTTP/1.1\r\n{length}\r");
            assert_passes_as(&format!("{head}\n\r\n\n"), &format!("{head}\0\r\n\n"));
        }
        for size in [String::new(), "x".to_owned(), "f".repeat(17), "0".repeat(LINE_BYTES_MAX) + "5"] {
            let head = format!("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r");
            assert_passes_as(&format!("{head}\n\r\n\n"), &format!("{head}\0\r\n\n"));
        }
    }
}
