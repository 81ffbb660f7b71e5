//! The headers of an answer of a source, and why an answer shows no object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// The header with the clock of an object.
const VCLOCK: &str = "x-riak-vclock";
/// The header of a deleted object, or of the part of a tombstone.
const DELETED: &str = "x-riak-deleted";

/// Headers of an answer or of a part, in their order; names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceHeaders(pub(super) Vec<(String, Bytes)>);

/// An answer that shows no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A part has not its form.
    #[error("the answer has no valid {0}")]
    Form(&'static str),
    /// It ends before its last part does.
    #[error("the answer broke off")]
    Truncated,
    /// It has more values than an object may have.
    #[error("the object has too many siblings")]
    TooMany,
    /// It has an index field or term that is none.
    #[error("it has an index term that is not valid")]
    Term,
}

impl SourceHeaders {
    /// Adds a header.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let name = String::from_utf8_lossy(name).trim().to_ascii_lowercase();
        self.0.push((name, Bytes::copy_from_slice(value)));
    }

    /// The first value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The length of the body that an answer announces.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.get("content-length").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
    }

    /// The clock that an answer has; empty for none.
    ///
    /// # Errors
    /// [`ValueError::Form`] when it is not base64.
    pub fn clock(&self) -> Result<Bytes, ValueError> {
        let Some(text) = self.get(VCLOCK) else { return Ok(Bytes::new()) };
        STANDARD.decode(text).map(Bytes::from).map_err(|_| ValueError::Form("clock"))
    }

    /// Whether it is that of a tombstone.
    pub(super) fn is_deleted(&self) -> bool {
        self.get(DELETED).is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
    }
}
