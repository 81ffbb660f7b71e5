//! Frames of Riak's protocol buffers and of Redis: requests that are built, answers that are read.
//!
//! Pure: bytes in, answers out. It knows the messages of the measured requests alone: get, put, ping.
//!
//! ```text
//! Riak   length of the rest (4 bytes, big endian) | code | message: fields by number
//! Redis  *2\r\n$3\r\nGET\r\n$1\r\nk\r\n           answers: $5\r\nvalue\r\n   $-1\r\n   +OK\r\n   -ERR text\r\n
//! ```

use std::ops::Range;

use anyhow::{Context, Result, bail};

use crate::client::ReplySummary;

/// Riak's codes of messages.
pub(crate) mod code {
    /// An error.
    pub(crate) const ERROR: u8 = 0;
    /// A ping, and its answer.
    pub(crate) const PING: [u8; 2] = [1, 2];
    /// A get, and its answer.
    pub(crate) const GET: [u8; 2] = [9, 10];
    /// A put, and its answer.
    pub(crate) const PUT: [u8; 2] = [11, 12];
}

/// The longest frame that is read.
const FRAME_BYTES_MAX: usize = 8 * 1_024 * 1_024;

/// The media type of every value.
const MEDIA_TYPE: &[u8] = b"application/octet-stream";

/// A protocol of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireProtocol {
    /// Riak's protocol buffers.
    Riak,
    /// Redis: keys without buckets, durability by the server's own setting.
    Redis,
}

/// The durability that a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteWait {
    /// A sync: the bucket's own `dw`.
    Disk,
    /// Memory only: `dw=0`.
    Memory,
}

/// A write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireWrite<'a> {
    /// The key.
    pub(crate) key: &'a [u8],
    /// The value.
    pub(crate) value: &'a [u8],
    /// The context; empty for none.
    pub(crate) vclock: &'a [u8],
    /// The durability that it waits for.
    pub(crate) wait: WriteWait,
}

/// An answer at the start of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireReply {
    /// Its meaning as HTTP would say it.
    pub(crate) summary: ReplySummary,
    /// Its bytes, framing included.
    pub(crate) bytes: usize,
    /// The range of its causal context; empty for none.
    pub(crate) vclock: Range<usize>,
}

impl WireProtocol {
    /// Adds a get to `out`.
    pub(crate) fn add_get(self, out: &mut Vec<u8>, bucket: &[u8], key: &[u8]) {
        match self {
            Self::Riak => add_frame(out, code::GET[0], |out| {
                add_field(out, 1, bucket);
                add_field(out, 2, key);
            }),
            Self::Redis => add_command(out, &[b"GET", key]),
        }
    }

    /// Adds a put to `out`.
    pub(crate) fn add_put(self, out: &mut Vec<u8>, bucket: &[u8], write: WireWrite<'_>) {
        match self {
            Self::Riak => add_frame(out, code::PUT[0], |out| {
                add_field(out, 1, bucket);
                add_field(out, 2, write.key);
                if !write.vclock.is_empty() {
                    add_field(out, 3, write.vclock);
                }
                let content = field_bytes(write.value.len()) + field_bytes(MEDIA_TYPE.len());
                out.push(4 << 3 | 2);
                add_varint(out, content as u64);
                add_field(out, 1, write.value);
                add_field(out, 2, MEDIA_TYPE);
                if write.wait == WriteWait::Memory {
                    out.extend_from_slice(&[6 << 3, 0]);
                }
            }),
            Self::Redis => add_command(out, &[b"SET", write.key, write.value]),
        }
    }

    /// Adds a ping to `out`.
    pub(crate) fn add_ping(self, out: &mut Vec<u8>) {
        match self {
            Self::Riak => add_frame(out, code::PING[0], |_| {}),
            Self::Redis => add_command(out, &[b"PING"]),
        }
    }

    /// The answer at the start of `input`; `None` when it is not complete yet.
    ///
    /// # Errors
    ///
    /// An error of the server, with its text; broken framing; an answer of another kind.
    pub(crate) fn reply(self, input: &[u8]) -> Result<Option<WireReply>> {
        match self {
            Self::Riak => riak_reply(input),
            Self::Redis => redis_reply(input),
        }
    }
}

/// A frame: its code, and the range of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RiakFrame {
    /// The code.
    pub(crate) code: u8,
    /// The range of the message in the input; the frame ends there.
    pub(crate) message: Range<usize>,
}

/// The frame at the start of `input`; `None` when it is not complete yet.
///
/// # Errors
///
/// A frame without a code, or one that is too long.
pub(crate) fn riak_frame(input: &[u8]) -> Result<Option<RiakFrame>> {
    let Some((length, rest)) = input.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > FRAME_BYTES_MAX {
        bail!("a frame of {length} bytes");
    }
    Ok((rest.len() >= length).then(|| RiakFrame { code: rest[0], message: 5..4 + length }))
}

/// The range of the first bytes field `number` in the message at `within`.
///
/// # Errors
///
/// Bytes that are no message.
pub(crate) fn bytes_field(input: &[u8], within: Range<usize>, number: u64) -> Result<Option<Range<usize>>> {
    let mut at = within.start;
    let message = input.get(..within.end).context("a message that is cut off")?;
    while at < message.len() {
        let tag = varint(message, &mut at)?;
        match tag & 7 {
            0 => drop(varint(message, &mut at)?),
            2 => {
                let length = varint(message, &mut at)? as usize;
                let end = at.checked_add(length).filter(|end| *end <= message.len());
                let value = at..end.context("a field that is longer than its message")?;
                at = value.end;
                if tag >> 3 == number {
                    return Ok(Some(value));
                }
            }
            kind => bail!("a field of kind {kind}"),
        }
    }
    Ok(None)
}

fn riak_reply(input: &[u8]) -> Result<Option<WireReply>> {
    let Some(RiakFrame { code, message }) = riak_frame(input)? else {
        return Ok(None);
    };
    let reply = |status, body_bytes: usize, vclock| WireReply {
        summary: ReplySummary { status, body_bytes: body_bytes as u64 },
        bytes: message.end,
        vclock,
    };
    Ok(Some(match code {
        _ if code == code::GET[1] => match bytes_field(input, message.clone(), 1)? {
            Some(content) => {
                let value = bytes_field(input, content, 1)?.context("a content without a value")?;
                reply(200, value.len(), bytes_field(input, message.clone(), 2)?.unwrap_or(0..0))
            }
            None => reply(404, 0, 0..0),
        },
        _ if code == code::PUT[1] => reply(204, 0, 0..0),
        _ if code == code::PING[1] => reply(200, 0, 0..0),
        code::ERROR => {
            let text = bytes_field(input, message, 1)?.unwrap_or(0..0);
            bail!("the server answered an error: {}", String::from_utf8_lossy(&input[text]))
        }
        _ => bail!("an answer with code {code}"),
    }))
}

fn redis_reply(input: &[u8]) -> Result<Option<WireReply>> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return Ok(None);
    };
    let line = input[..end].trim_ascii_end();
    let reply = |status, body_bytes: usize, bytes| {
        Some(WireReply { summary: ReplySummary { status, body_bytes: body_bytes as u64 }, bytes, vclock: 0..0 })
    };
    match line.split_first() {
        Some((b'+', b"OK")) => Ok(reply(204, 0, end + 1)),
        Some((b'+', _)) => Ok(reply(200, 0, end + 1)),
        Some((b'$', b"-1")) => Ok(reply(404, 0, end + 1)),
        Some((b'$', digits)) => {
            let length: usize = std::str::from_utf8(digits)?.parse().context("a length that is no number")?;
            // The value ends with a line end of its own.
            let bytes = length.checked_add(end + 3).context("a length that is too large")?;
            Ok(if input.len() >= bytes { reply(200, length, bytes) } else { None })
        }
        _ => bail!("the server answered {}", String::from_utf8_lossy(line)),
    }
}

/// Adds a frame; `add_message` adds its message.
pub(crate) fn add_frame(out: &mut Vec<u8>, code: u8, add_message: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, code]);
    add_message(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Adds a bytes field with a number below 16.
pub(crate) fn add_field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.push(number << 3 | 2);
    add_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// The length of a field whose value has this length.
fn field_bytes(value: usize) -> usize {
    let digits = (usize::BITS - value.leading_zeros()).max(1).div_ceil(7);
    1 + digits as usize + value
}

fn add_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint(input: &[u8], at: &mut usize) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *input.get(*at).context("a number that is cut off")?;
        *at += 1;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    bail!("a number of more than ten bytes")
}

fn add_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    add_count(out, b'*', words.len());
    for word in words {
        add_count(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Adds a mark, a decimal number and a line end, without allocating.
fn add_count(out: &mut Vec<u8>, mark: u8, mut number: usize) {
    let mut digits = [b'0'; 20];
    let mut from = digits.len() - 1;
    loop {
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
        from -= 1;
    }
    out.push(mark);
    out.extend_from_slice(&digits[from..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: WireWrite<'_> = WireWrite { key: b"k", value: b"value", vclock: b"", wait: WriteWait::Disk };

    fn built(protocol: WireProtocol, write: WireWrite<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        protocol.add_put(&mut out, b"b", write);
        out
    }

    #[test]
    fn requests_have_the_published_bytes() {
        let mut get = Vec::new();
        WireProtocol::Riak.add_get(&mut get, b"b", b"k");
        assert_eq!(get, b"\0\0\0\x07\x09\x0a\x01b\x12\x01k");
        let put = built(WireProtocol::Riak, WireWrite { wait: WriteWait::Memory, vclock: b"c", ..WRITE });
        assert_eq!(&put[4..16], b"\x0b\x0a\x01b\x12\x01k\x1a\x01c\x22\x21");
        assert!(put.ends_with(b"\x0a\x05value\x12\x18application/octet-stream\x30\0"), "{put:?}");
        assert_eq!(built(WireProtocol::Redis, WRITE), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n");
        let mut count = Vec::new();
        add_count(&mut count, b'$', 102_400);
        assert_eq!(count, b"$102400\r\n");
    }

    #[test]
    fn a_long_value_has_a_length_of_several_bytes() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 102_400] {
            let value = vec![7; length];
            let put = built(WireProtocol::Riak, WireWrite { value: &value, ..WRITE });
            let frame = riak_frame(&put).unwrap().unwrap();
            assert_eq!(frame.message.end, put.len());
            let content = bytes_field(&put, frame.message, 4).unwrap().unwrap();
            assert_eq!(content.end, put.len(), "the content ends with the message");
            assert_eq!(bytes_field(&put, content, 1).unwrap().unwrap().len(), length);
        }
    }

    #[test]
    fn answers_are_read_only_when_complete() {
        let mut riak = Vec::new();
        add_frame(&mut riak, code::GET[1], |out| {
            out.extend_from_slice(b"\x0a\x07\x0a\x05hello");
            add_field(out, 2, b"clock");
        });
        for (protocol, answer) in [(WireProtocol::Riak, &riak[..]), (WireProtocol::Redis, b"$5\r\nhello\r\n")] {
            for cut in 0..answer.len() {
                assert_eq!(protocol.reply(&answer[..cut]).unwrap(), None, "{protocol:?} cut at {cut}");
            }
            let reply = protocol.reply(&[answer, b"more"].concat()).unwrap().unwrap();
            assert_eq!((reply.summary.status, reply.summary.body_bytes, reply.bytes), (200, 5, answer.len()));
        }
        let vclock = WireProtocol::Riak.reply(&riak).unwrap().unwrap().vclock;
        assert_eq!(&riak[vclock], b"clock");
    }

    #[test]
    fn answers_without_a_value_have_their_status() {
        let status = |protocol: WireProtocol, answer: &[u8]| protocol.reply(answer).unwrap().unwrap().summary.status;
        assert_eq!(status(WireProtocol::Riak, b"\0\0\0\x01\x0a"), 404);
        assert_eq!(status(WireProtocol::Riak, b"\0\0\0\x01\x0c"), 204);
        assert_eq!(status(WireProtocol::Redis, b"$-1\r\n"), 404);
        assert_eq!(status(WireProtocol::Redis, b"+OK\r\n"), 204);
        assert_eq!(status(WireProtocol::Redis, b"+PONG\r\n"), 200);
    }

    #[test]
    fn errors_and_broken_frames_are_refused() {
        let error = WireProtocol::Riak.reply(b"\0\0\0\x06\0\x0a\x03bad").unwrap_err();
        assert_eq!(error.to_string(), "the server answered an error: bad");
        assert!(WireProtocol::Redis.reply(b"-ERR no\r\n").unwrap_err().to_string().contains("ERR no"));
        let broken: [&[u8]; 4] = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x03\x0a\x0a\x09", b"\0\0\0\x02\x0a\x0b"];
        for input in broken {
            assert!(WireProtocol::Riak.reply(input).is_err(), "{input:?}");
        }
    }
}
