//! Bytes nobody names any more, and those that are being read.

/// Manifests that are being read, each by how many: their blobs are not removed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Pins;
