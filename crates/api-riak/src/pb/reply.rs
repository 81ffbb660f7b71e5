//! The rest of an answer after its handler: nothing, large values, or the pages of a listing.

use bytes::BytesMut;
use larder_gateway::body::GetBody;

use super::listing::PbListing;

/// The rest of an answer, beyond the bytes that its handler appended to the output.
pub(super) enum PbReply {
    /// Nothing remains.
    Done,
    /// The rest of a frame whose head and first bytes are in the output.
    Pieces(Vec<ReplyPiece>),
    /// Frames with pages of names.
    Listing(Box<PbListing>),
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

/// A part of a frame.
pub(super) enum ReplyPiece {
    /// Bytes in memory.
    Bytes(BytesMut),
    /// A value of known length, read while it is sent.
    Body(GetBody),
}
