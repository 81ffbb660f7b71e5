//! How much memory the bodies of requests and responses take.

/// Longest piece of a response that goes out in pieces.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Memory of a response in pieces: two pieces wait for the socket, the engine keeps the last one, one is being read.
const PIECES_BYTES_HELD: u64 = 4 * PIECE_BYTES_MAX as u64;
/// Memory of a streamed upload: the bytes read before a blob begins, and as many on their way to it.
const STREAM_BYTES_HELD: u64 = 2 * 1024 * 1024;

/// Bytes of memory that a response of this length holds while it goes out in pieces; `None`: an unknown length.
#[must_use]
pub fn response_memory(length: Option<u64>) -> u64 {
    length.unwrap_or(u64::MAX).min(PIECES_BYTES_HELD)
}

/// Bytes of memory that a body of this length holds while it streams in; `None`: an unknown length.
#[must_use]
pub fn upload_memory(length: Option<u64>) -> u64 {
    parsed_body_memory(length, STREAM_BYTES_HELD)
}

/// Bytes of memory that a parsed body of this length holds, `max` at most. Each byte counts twice: as read, and as parsed.
#[must_use]
pub fn parsed_body_memory(length: Option<u64>, max: u64) -> u64 {
    length.unwrap_or(max).saturating_mul(2).min(max)
}
