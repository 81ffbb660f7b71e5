//! Lists kept beside the objects: keys of a bucket, buckets of a type. Written in the object's own batch, read in pages.

mod buckets;
mod keys;

use bytes::Bytes;

pub(crate) use buckets::KnownBuckets;

/// A page of a listing, in order of the names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The names.
    pub names: Vec<Bytes>,
    /// Where to go on: pass it as `after`; `None` at the end.
    pub next: Option<Bytes>,
}
