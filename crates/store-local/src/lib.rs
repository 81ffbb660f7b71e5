//! The embedded engine: packed and wide tables on `fjall`, one committer, blob files.

pub mod blobs;
