//! Bucket policies.

/// A policy: the text as it came, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The JSON as it came.
    pub text: String,
}
