//! Groups of S3 users.

use larder_rows::Timestamp;
use serde::{Deserialize, Serialize};

/// A group of S3 users. Its members have its policies beside their own; their rows name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserGroup {
    /// Its name.
    pub name: String,
    /// The time of its creation.
    pub created: Timestamp,
    /// The names of the policies attached to it.
    #[serde(default)]
    pub policies: Vec<String>,
}
