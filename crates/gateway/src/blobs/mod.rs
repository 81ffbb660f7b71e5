//! Bytes of large bodies, below both sides of the gateway: held while a row may come to name them, removed when no row does.
//!
//! ```text
//! lease    keeps sweepers away while a row that names the blob may still be written
//! release  the one way bytes are removed: after a sync of the rows that no longer name them
//! fence    mark, touch, look again: a sweeper and a slow writer never miss each other
//! sweep    one pass over all blobs; the side that owns a blob says whether its rows name it
//! ```
//! The key-value side and the S3 side implement [`sweep::BlobNames`]; nothing here knows a row of theirs.

pub(crate) mod fence;
pub(crate) mod lease;
pub(crate) mod release;
pub(crate) mod sweep;
#[cfg(test)]
pub(crate) mod testing;
