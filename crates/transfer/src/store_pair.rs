//! A store and its blobs.

use std::sync::Arc;

use larder_store::{Blobs, Store};

/// A store and its blobs.
#[derive(Clone)]
pub struct StorePair {
    /// The rows.
    pub store: Arc<dyn Store>,
    /// The large bodies.
    pub blobs: Arc<dyn Blobs>,
}
