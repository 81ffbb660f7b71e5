//! The rest of an answer after its handler: nothing, large values, or what is read page by page.

use bytes::BytesMut;

use super::bucket_scan::PbBucketScan;
use super::datatypes::PbValueAnswer;
use super::fault::PbFault;
use super::index::PbIndexAnswer;
use super::listing::PbListing;
use super::mapred::PbJob;
use super::reply_piece::ReplyPiece;

/// The rest of an answer, beyond the bytes that its handler appended to the output.
pub(super) enum PbReply {
    /// Nothing remains.
    Done,
    /// The rest of a frame whose head and first bytes are in the output.
    Pieces(Vec<ReplyPiece>),
    /// Nothing remains, and the client begins a TLS handshake after it.
    StartTls,
    /// An answer whose pages are read one after the other.
    Paged(PagedReply),
}

impl From<Vec<ReplyPiece>> for PbReply {
    fn from(pieces: Vec<ReplyPiece>) -> Self {
        if pieces.is_empty() { Self::Done } else { Self::Pieces(pieces) }
    }
}

/// An answer that is read page by page.
pub(super) enum PagedReply {
    /// Frames with pages of names.
    Listing(Box<PbListing>),
    /// Frames with the results of a job.
    Job(Box<PbJob>),
    /// One frame after the last page.
    Value(Box<PbValueAnswer>),
    /// The results of a query.
    Index(Box<PbIndexAnswer>),
    /// A frame for each object of a range.
    Scan(Box<PbBucketScan>),
}

impl PagedReply {
    /// Bytes of memory that it holds, besides a page.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Listing(listing) => listing.memory(),
            Self::Job(job) => job.memory(),
            Self::Value(value) => value.memory(),
            Self::Index(index) => index.memory(),
            Self::Scan(scan) => scan.memory(),
        }
    }

    /// Appends the next page, if it goes out by itself; `false` after the last one.
    ///
    /// # Errors
    /// The gateway's; the error ends the answer.
    pub(super) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        match self {
            Self::Listing(listing) => listing.next(output).await,
            Self::Job(job) => job.next(output).await,
            Self::Value(value) => value.next(output).await,
            Self::Index(index) => index.next(output).await,
            Self::Scan(scan) => scan.next(output).await,
        }
    }
}
