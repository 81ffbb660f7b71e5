//! Listings: keys of a bucket, buckets of a type. Their entries are written in the object's own batch and read in pages.

mod buckets;
mod keys;

use bytes::Bytes;

use crate::metrics::KvOp;

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
