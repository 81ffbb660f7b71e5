//! The frames on the admin socket, as bytes: `kv-admin` and the server use them, and each does its own IO.
//!
//! ```text
//! request    length u32 big-endian | JSON object: args: [text], files: {arg: text}, unreadable: {arg: reason}, progress: bool
//! progress   length u32 big-endian | JSON object: progress: {seconds, percent or null, text}
//! answer     length u32 big-endian | JSON object: answer: {stdout, stderr, exit}
//! ```
//! One connection carries one command. Progress comes before the answer, any number of times, and only if the request has
//! `progress` and the command reports it. A client that asked for progress and hangs up ends such a command.
//!
//! The format has no version number: a frame of another format is [`BadFrame::Malformed`], and both sides say so in a line.

mod answer;
mod reply;
mod request;

pub use answer::AdminAnswer;
pub use reply::{ANSWER_BYTES_MAX, AdminReply};
pub use request::{ARGS_MAX, AdminRequest, REQUEST_BYTES_MAX};

use std::fmt;

use serde_json::Value as Json;

/// Bytes of the length, which comes first in a frame.
pub const LENGTH_BYTES: usize = 4;

/// A frame that cannot be sent or read. Its text follows a subject: "the request", "the answer".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadFrame {
    /// It ends before its length.
    Short,
    /// It exceeds the bound of its kind.
    Long {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// It has more than [`ARGS_MAX`] arguments.
    TooManyArgs(usize),
    /// It has another format.
    Malformed,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "broke off"),
            Self::Long { bytes, max } => write!(f, "has {bytes} bytes, more than {max}"),
            Self::TooManyArgs(args) => write!(f, "has {args} words, more than {ARGS_MAX}"),
            Self::Malformed => write!(f, "cannot be read"),
        }
    }
}

/// The length of the body that follows these bytes.
///
/// # Errors
/// [`BadFrame::Long`]: it is longer than `max`.
pub fn body_length(prefix: [u8; LENGTH_BYTES], max: usize) -> Result<usize, BadFrame> {
    let bytes = usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
    if bytes > max { Err(BadFrame::Long { bytes, max }) } else { Ok(bytes) }
}

/// A whole frame: the length and the body.
fn framed(body: &Json, max: usize) -> Result<Vec<u8>, BadFrame> {
    let body = body.to_string();
    match u32::try_from(body.len()) {
        Ok(length) if body.len() <= max => Ok([&length.to_be_bytes(), body.as_bytes()].concat()),
        _ => Err(BadFrame::Long { bytes: body.len(), max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_above_the_bound_is_refused_on_both_sides() {
        assert_eq!(body_length([0, 0, 0, 9], 9), Ok(9));
        assert_eq!(body_length([0, 0, 0, 10], 9), Err(BadFrame::Long { bytes: 10, max: 9 }));
        assert_eq!(framed(&"seven".into(), 7), Ok(b"\0\0\0\x07\"seven\"".to_vec()));
        assert_eq!(framed(&"eight!".into(), 7), Err(BadFrame::Long { bytes: 8, max: 7 }));
    }
}
