//! Users of the S3 interface.

use serde::{Deserialize, Serialize};

use crate::rows::Micros;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Canonical id: 64 hexadecimal digits; what grants and owners name.
    pub id: String,
    /// Access key id.
    pub key_id: String,
    /// Secret access key: signatures need it as it is.
    pub secret: String,
    /// Free text.
    pub name: String,
    /// E-mail address; unique.
    pub email: String,
    /// The part of the e-mail address before the at sign.
    pub display_name: String,
    /// Whether requests are taken.
    pub enabled: bool,
    /// Whether this user administers users and may do anything.
    pub admin: bool,
    /// When it was made.
    pub created: Micros,
}
