//! Ids of buckets, versions and uploads.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hash::id128;
use crate::{ActorId, Timestamp};

/// Identity of a bucket. A new bucket under an old name has another id, so no row of the old bucket shows in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(pub [u8; 16]);

impl BucketId {
    /// The id of the bucket that `actor` creates at `stamp`.
    #[must_use]
    pub fn new(stamp: Timestamp, actor: ActorId) -> Self {
        Self(pair(stamp.0, actor.0))
    }
}

/// Identity of a version of an object. Newer versions sort first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionId(pub [u8; 16]);

impl VersionId {
    /// The id of the version that `actor` writes at `stamp`.
    #[must_use]
    pub fn new(stamp: Timestamp, actor: ActorId) -> Self {
        // Inverted: the newest version is the first row after the head.
        Self(pair(!stamp.0, actor.0))
    }

    /// The stamp of its write.
    #[must_use]
    pub fn stamp(&self) -> Timestamp {
        Timestamp(!first(&self.0))
    }

    /// The actor that wrote it.
    #[must_use]
    pub fn actor(&self) -> ActorId {
        ActorId(u128::from_be_bytes(self.0) as u64)
    }

    /// Its text form for clients: 32 hexadecimal digits.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// Reads [`Self::text`] back.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let id = Self(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
        // One text for each id: no other spelling names a version.
        (id.text() == text).then_some(id)
    }
}

/// Identity of a multipart upload. It begins with the time, so ids sort by the creation of the uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadId(pub [u8; 16]);

impl UploadId {
    /// The id of the upload that `actor` begins at `stamp`. Half of the id is a hash, so clients cannot derive it from another.
    #[must_use]
    pub fn new(stamp: Timestamp, actor: ActorId) -> Self {
        let hidden = (id128(&[&stamp.0.to_be_bytes(), &actor.0.to_be_bytes()]) >> 64) as u64;
        Self(pair(stamp.0, hidden))
    }

    /// The stamp of its creation.
    #[must_use]
    pub fn stamp(&self) -> Timestamp {
        Timestamp(first(&self.0))
    }

    /// Its text form for clients: base64url without padding, as in Riak CS.
    #[must_use]
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Reads [`Self::text`] back, with or without padding.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }
}

fn pair(high: u64, low: u64) -> [u8; 16] {
    ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
}

fn first(id: &[u8; 16]) -> u64 {
    (u128::from_be_bytes(*id) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_parse_from_their_texts() {
        let (version, upload) = (VersionId::new(Timestamp(7), ActorId(8)), UploadId::new(Timestamp(7), ActorId(8)));
        assert_eq!(VersionId::from_text(&version.text()), Some(version));
        assert_eq!(UploadId::from_text(&upload.text()), Some(upload));
        assert_eq!(UploadId::from_text(&format!("{}==", upload.text())), Some(upload));
        assert_eq!((version.stamp(), version.actor(), upload.stamp()), (Timestamp(7), ActorId(8), Timestamp(7)));
        for foreign in ["", "x", "null", "+5", "é"] {
            assert_eq!(VersionId::from_text(foreign), None);
            assert_eq!(UploadId::from_text(foreign), None);
        }
    }

    #[test]
    fn newer_versions_and_older_uploads_sort_first() {
        assert!(VersionId::new(Timestamp(9), ActorId(1)) < VersionId::new(Timestamp(8), ActorId(1)));
        assert!(UploadId::new(Timestamp(8), ActorId(1)) < UploadId::new(Timestamp(9), ActorId(1)));
    }
}
