//! Listings and queries: keys of a bucket, buckets of a type, secondary indexes. Their entries are written in the object's own batch and read in pages.

mod buckets;
mod index;
mod index_check;
mod keys;
mod list_check;
mod shard_merge;

pub use index::{IndexPage, IndexReader};
pub use index_check::{CheckMode, IndexCheck};

use bytes::Bytes;
use larder_core::metrics::KvOp;

/// A page of a listing, in order of the names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The names.
    pub names: Vec<Bytes>,
    /// Where the next page begins: pass it as `after`; `None` at the end.
    pub next: Option<Bytes>,
}

/// The operation that a page counts as: a listing counts once, with its first page.
fn listing_op(listing: KvOp, after: Option<&Bytes>) -> KvOp {
    if after.is_none() { listing } else { KvOp::ListPage }
}
