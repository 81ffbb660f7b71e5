//! How many bytes of memory bodies hold on their way in and out.

/// Longest piece of an answer that goes out in pieces.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;
/// An answer in pieces: two pieces wait for the socket, the engine keeps the last one, one is read.
const PIECES_BYTES_HELD: u64 = 4 * PIECE_BYTES_MAX as u64;
/// A body that streams in: what is read before a blob is begun, and as much on its way there.
const STREAM_BYTES_HELD: u64 = 2 * 1024 * 1024;

/// Bytes that an answer of this length holds while it goes out in pieces; `None`: its length is not known.
#[must_use]
pub fn held_by_pieces(length: Option<u64>) -> u64 {
    length.unwrap_or(u64::MAX).min(PIECES_BYTES_HELD)
}

/// Bytes that a body of this length holds while it streams in; `None`: its length is not known.
#[must_use]
pub fn held_by_stream(length: Option<u64>) -> u64 {
    held_twice(length, STREAM_BYTES_HELD)
}

/// Bytes that a body of this length holds, `max` at most. It counts twice: its bytes are put together, or read into what they
/// mean.
#[must_use]
pub fn held_twice(length: Option<u64>, max: u64) -> u64 {
    length.unwrap_or(max).saturating_mul(2).min(max)
}
