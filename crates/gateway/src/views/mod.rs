//! Lists kept beside the objects: keys of a bucket, buckets of a type. Written in the object's own batch, read in pages.

mod buckets;
mod keys;

use bytes::Bytes;

pub(crate) use buckets::KnownBuckets;

use crate::metrics::Op;

/// A page of a listing, in order of the names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The names.
    pub names: Vec<Bytes>,
    /// Where to go on: pass it as `after`; `None` at the end.
    pub next: Option<Bytes>,
}

/// What the page behind `after` is counted as: a listing is counted once, when it begins.
fn page_of(listing: Op, after: Option<&Bytes>) -> Op {
    if after.is_none() { listing } else { Op::ListPage }
}
