//! Reads an HTTP/1.1 response: the head, and the end of its body.
//!
//! Pure: bytes in, answers out. It reads only the fields that the generator needs: status, length or chunks, `Connection`, the
//! ETag, and Riak's causal context.

use std::ops::Range;

use anyhow::{Context, Result, bail};

/// The head of one response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    /// The status code.
    pub(crate) status: u16,
    /// Bytes of the head, with the empty line.
    pub(crate) head_bytes: usize,
    /// The framing of the body.
    pub(crate) body: BodyFraming,
    /// Whether the server will close the connection.
    pub(crate) closes: bool,
    /// The range of `X-Riak-Vclock` in the head.
    pub(crate) vclock: Option<Range<usize>>,
    /// The range of `ETag` in the head, quotes included.
    pub(crate) etag: Option<Range<usize>>,
}

/// The end of a body.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum BodyFraming {
    /// After this many bytes.
    Length(u64),
    /// With a chunk of no bytes.
    Chunked,
}

impl ResponseHead {
    /// Parses the head at the start of `input`; `None` when it is not complete yet.
    ///
    /// # Errors
    ///
    /// A head that is not HTTP/1.1, or one without the length of its body.
    pub(crate) fn parse(input: &[u8]) -> Result<Option<Self>> {
        let Some((status_line, mut at)) = line(input, 0) else {
            return Ok(None);
        };
        let mut head = Self {
            status: status(status_line)?,
            head_bytes: 0,
            body: BodyFraming::Length(0),
            closes: false,
            vclock: None,
            etag: None,
        };
        let mut framed = matches!(head.status, 204 | 304);
        loop {
            let Some((text, next)) = line(input, at) else {
                return Ok(None);
            };
            if text.is_empty() {
                head.head_bytes = next;
                break;
            }
            framed |= head.header(text, at)?;
            at = next;
        }
        if !framed {
            bail!("status {} without Content-Length or chunks", head.status);
        }
        Ok(Some(head))
    }

    /// Reads one header line; returns whether it frames the body.
    fn header(&mut self, text: &[u8], at: usize) -> Result<bool> {
        let colon = memchr::memchr(b':', text).context("a header line without a colon")?;
        let (name, value) = (&text[..colon], &text[colon + 1..]);
        let lead = value.iter().take_while(|byte| **byte == b' ').count();
        let value = value[lead..].trim_ascii_end();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.body = BodyFraming::Length(decimal(value).context("a Content-Length that is no number")?);
            return Ok(true);
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.body = BodyFraming::Chunked;
            return Ok(true);
        }
        let start = at + colon + 1 + lead;
        if name.eq_ignore_ascii_case(b"connection") {
            self.closes = value.eq_ignore_ascii_case(b"close");
        } else if name.eq_ignore_ascii_case(b"x-riak-vclock") {
            self.vclock = Some(start..start + value.len());
        } else if name.eq_ignore_ascii_case(b"etag") {
            self.etag = Some(start..start + value.len());
        }
        Ok(false)
    }
}

/// Follows a chunked body over reads of any size.
#[derive(Debug, Default)]
pub(crate) struct ChunkedReader {
    state: ChunkState,
    size: u64,
    /// Bytes of the body seen so far, without the framing.
    pub(crate) body_bytes: u64,
    /// The bytes of the body, if they are kept.
    pub(crate) kept: Option<Vec<u8>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Extension,
    Data,
    DataEnd,
    Trailer,
    TrailerLine,
    Done,
}

impl ChunkedReader {
    /// The start of a body whose bytes are kept, or only counted.
    pub(crate) fn keeping(keeps: bool) -> Self {
        Self { kept: keeps.then(Vec::new), ..Self::default() }
    }

    /// Reads the next bytes; returns whether the body has ended.
    ///
    /// # Errors
    ///
    /// Framing that is not chunked encoding, or bytes after its end.
    pub(crate) fn feed(&mut self, mut input: &[u8]) -> Result<bool> {
        while let Some((&byte, rest)) = input.split_first() {
            if self.state == ChunkState::Data {
                let taken = self.size.min(input.len() as u64);
                self.size -= taken;
                self.body_bytes += taken;
                let (data, rest) = input.split_at(usize::try_from(taken)?);
                if let Some(kept) = &mut self.kept {
                    kept.extend_from_slice(data);
                }
                input = rest;
                if self.size == 0 {
                    self.state = ChunkState::DataEnd;
                }
                continue;
            }
            self.state = self.step(byte)?;
            input = rest;
        }
        Ok(self.state == ChunkState::Done)
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState> {
        Ok(match (self.state, byte) {
            (ChunkState::Size | ChunkState::Extension, b'\n') if self.size == 0 => ChunkState::Trailer,
            (ChunkState::Size | ChunkState::Extension, b'\n') => ChunkState::Data,
            (ChunkState::Size, b'\r') => ChunkState::Size,
            (ChunkState::Size, b';') | (ChunkState::Extension, _) => ChunkState::Extension,
            (ChunkState::Size, digit) => {
                let digit = char::from(digit).to_digit(16).context("a chunk size that is no number")?;
                self.size = self.size.checked_mul(16).context("a chunk too large")? + u64::from(digit);
                ChunkState::Size
            }
            (ChunkState::DataEnd, b'\n') => ChunkState::Size,
            (ChunkState::DataEnd, b'\r') => ChunkState::DataEnd,
            (ChunkState::Trailer, b'\r') => ChunkState::Trailer,
            (ChunkState::Trailer, b'\n') => ChunkState::Done,
            (ChunkState::TrailerLine, b'\n') => ChunkState::Trailer,
            (ChunkState::Trailer | ChunkState::TrailerLine, _) => ChunkState::TrailerLine,
            (ChunkState::DataEnd | ChunkState::Data, _) => bail!("a chunk longer than it said"),
            (ChunkState::Done, _) => bail!("bytes after the last chunk"),
        })
    }
}

/// The line at `from` without its end, and the start of the next line.
fn line(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let end = memchr::memchr(b'\n', rest)?;
    let text = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    Some((text, from + end + 1))
}

fn status(line: &[u8]) -> Result<u16> {
    let digits = line.strip_prefix(b"HTTP/1.1 ").context("not an HTTP/1.1 answer")?;
    let code = digits.get(..3).and_then(decimal).context("a status line without a code")?;
    Ok(u16::try_from(code)?)
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_only_when_complete() {
        let input = b"HTTP/1.1 200 OK\r\nX-Riak-Vclock:  a85hYGBg\r\netag: \"x\"\r\ncontent-length: 5\r\n\r\nhello";
        for cut in 0..input.len() - 5 {
            assert_eq!(ResponseHead::parse(&input[..cut]).unwrap(), None, "cut at {cut}");
        }
        let head = ResponseHead::parse(input).unwrap().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.body, BodyFraming::Length(5));
        assert_eq!(&input[head.head_bytes..], b"hello");
        assert_eq!(&input[head.vclock.unwrap()], b"a85hYGBg");
        assert_eq!(&input[head.etag.unwrap()], b"\"x\"");
        assert!(!head.closes);
    }

    #[test]
    fn an_answer_without_content_needs_no_length() {
        let head = ResponseHead::parse(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap().unwrap();
        assert_eq!((head.status, head.body, head.closes), (204, BodyFraming::Length(0), true));
    }

    #[test]
    fn broken_heads_are_refused() {
        for input in [
            &b"HTTP/1.0 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 2x0 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n",
        ] {
            assert!(ResponseHead::parse(input).is_err(), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn chunks_end_wherever_the_reads_are_cut() {
        let input = b"5\r\nhello\r\n1a;x=y\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nTrailer: t\r\n\r\n";
        for cut in 0..=input.len() {
            let mut chunks = ChunkedReader::keeping(true);
            let first = chunks.feed(&input[..cut]).unwrap();
            assert_eq!(first, cut == input.len());
            assert!(chunks.feed(&input[cut..]).unwrap());
            assert_eq!(chunks.body_bytes, 31);
            assert_eq!(chunks.kept.unwrap(), b"helloabcdefghijklmnopqrstuvwxyz");
        }
    }

    #[test]
    fn chunks_longer_than_their_size_are_refused() {
        assert!(ChunkedReader::default().feed(b"2\r\nabc\r\n").is_err());
        assert!(ChunkedReader::default().feed(b"zz\r\n").is_err());
        assert!(ChunkedReader::default().feed(b"0\r\n\r\nmore").is_err());
    }
}
