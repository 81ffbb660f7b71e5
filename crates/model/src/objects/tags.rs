//! Tags of buckets and objects.

use serde::{Deserialize, Serialize};

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Its key: 1 to 128 characters.
    pub key: String,
    /// Its value: up to 256 characters.
    pub value: String,
}
