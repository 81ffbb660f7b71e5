//! A part of a frame, where the frame is too large for one buffer.

use bytes::BytesMut;
use larder_core::body::GetBody;

/// A part of a frame.
pub(super) enum ReplyPiece {
    /// Bytes in memory.
    Bytes(BytesMut),
    /// A value of known length, read while it is sent.
    Body(GetBody),
}

impl ReplyPiece {
    /// Bytes of memory that it holds, besides the piece of a value that is being sent.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Body(_) => 0,
        }
    }
}
