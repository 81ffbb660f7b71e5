//! The head of an S3 key: the row that every change of the key compares and sets.

use bytes::Bytes;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_rows::ids::VersionId;

use super::version::Version;

const VERSION: u8 = 1;
const CURRENT: u8 = 1;
const NULL: u8 = 2;
const OLDER: u8 = 4;
const SHARED: u8 = 8;

/// The head of an S3 key. Noncurrent versions have rows of their own after it, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectHead {
    /// The current version; `None` when no version is left. The head then stays for a day: without its stamp, the next put
    /// could get a smaller one, and its listing entry would lose to the removal of the old entry.
    pub current: Option<Version>,
    /// The version with the version id `null`, when it has a row of its own.
    pub null: Option<VersionId>,
    /// Whether there are rows of noncurrent versions.
    pub older: bool,
    /// Whether two versions may reference the same bytes, as a copy of the key onto itself makes them. Only then must the
    /// removal of a version read all others before it releases the bytes.
    pub shared: bool,
    /// Bytes that no version references any more. The next change of the head removes them, in case this one could not.
    pub release: Vec<Release>,
}

impl ObjectHead {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let size = 32 + 32 * self.release.len() + self.current.as_ref().map_or(0, Version::size_hint);
        let mut out = FieldEncoder::versioned(VERSION, size);
        let (current, null) = (u8::from(self.current.is_some()), u8::from(self.null.is_some()));
        let (older, shared) = (u8::from(self.older), u8::from(self.shared));
        out.u8(current * CURRENT + null * NULL + older * OLDER + shared * SHARED);
        if let Some(null) = self.null {
            out.raw(&null.0);
        }
        out.list(&self.release, |out, release| release.put(out));
        if let Some(current) = &self.current {
            current.put(&mut out);
        }
        out.finish()
    }

    /// Reads the stored form. The body of the current version shares its memory.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let flags = rest.u8()?;
        // A flag of a newer program must not be dropped by the next write [invariant 72].
        if flags & !(CURRENT | NULL | OLDER | SHARED) != 0 {
            return Err(DecodeError::Invalid("head flags"));
        }
        let null = if flags & NULL == 0 { None } else { Some(VersionId(rest.array()?)) };
        let release = rest.list(Release::take)?;
        let current = if flags & CURRENT == 0 {
            rest.finish()?;
            None
        } else {
            Some(Version::take(rest)?)
        };
        Ok(Self { current, null, older: flags & OLDER != 0, shared: flags & SHARED != 0, release })
    }
}

/// A reference to bytes that are to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// A blob.
    Blob(BlobId),
    /// A manifest and the blobs of its parts.
    Parts(VersionId),
}

impl Release {
    fn put(&self, out: &mut FieldEncoder) {
        match self {
            Self::Blob(blob) => {
                out.u8(0);
                out.raw(&blob.0);
            }
            Self::Parts(manifest) => {
                out.u8(1);
                out.raw(&manifest.0);
            }
        }
    }

    fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        match rest.u8()? {
            0 => Ok(Self::Blob(BlobId(rest.array()?))),
            1 => Ok(Self::Parts(VersionId(rest.array()?))),
            _ => Err(DecodeError::Invalid("release kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::version::tests::{GOLDEN, blob, damage, golden, version, version_id};

    fn head() -> impl Strategy<Value = ObjectHead> {
        let release = prop_oneof![blob().prop_map(Release::Blob), version_id().prop_map(Release::Parts)];
        let flags = (any::<bool>(), any::<bool>());
        (option::of(version()), option::of(version_id()), flags, vec(release, 0..10))
            .prop_map(|(current, null, (older, shared), release)| ObjectHead { current, null, older, shared, release })
    }

    proptest! {
        #[test]
        fn heads_decode_to_themselves(head in head()) {
            prop_assert_eq!(ObjectHead::decode(head.encode()), Ok(head));
        }

        #[test]
        fn damaged_heads_fail_or_decode_without_panic(head in head(), at: usize, bit in 0..8_u8) {
            damage(&head.encode(), at, bit, ObjectHead::decode);
        }

        #[test]
        fn random_bytes_are_a_head_or_an_error(flags in 0..16_u8, bytes: Vec<u8>) {
            let _ = ObjectHead::decode(bytes.clone().into());
            let _ = ObjectHead::decode([&[VERSION, flags], &bytes[..]].concat().into());
        }
    }

    /// The stored form, byte for byte: a change here is a change of format and needs a new version.
    #[test]
    fn the_golden_heads_still_decode() {
        let full = ObjectHead {
            current: Some(golden()),
            null: Some(VersionId([0x55; 16])),
            older: true,
            shared: true,
            release: vec![Release::Blob(BlobId([0x66; 24])), Release::Parts(VersionId([0x77; 16]))],
        };
        let row = [&[1, 15], &[0x55; 16][..], &[2, 0], &[0x66; 24], &[1], &[0x77; 16], GOLDEN].concat();
        assert_eq!(full.encode(), row);
        assert_eq!(ObjectHead::decode(row.into()), Ok(full));
        assert_eq!(ObjectHead::default().encode().as_ref(), [1, 0, 0]);
        assert_eq!(ObjectHead::decode(Bytes::from_static(&[1, 0, 0])), Ok(ObjectHead::default()));
    }

    #[test]
    fn rows_of_a_newer_build_are_errors() {
        let decode = |row: &'static [u8]| ObjectHead::decode(Bytes::from_static(row));
        assert_eq!(decode(&[2, 0, 0]), Err(DecodeError::UnknownVersion(2)));
        assert_eq!(decode(&[1, 16, 0]), Err(DecodeError::Invalid("head flags")));
        assert_eq!(decode(&[1, 0, 1, 2]), Err(DecodeError::Invalid("release kind")));
        assert_eq!(decode(&[1, 0, 0, 0]), Err(DecodeError::Trailing));
        assert_eq!(decode(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err(DecodeError::Invalid("count")));
    }

    #[test]
    fn an_inline_body_shares_the_memory_of_its_row() {
        use crate::version::ObjectBody;
        let row = ObjectHead { current: Some(golden()), ..ObjectHead::default() }.encode();
        let object = ObjectHead::decode(row.clone()).unwrap().current.unwrap().object.unwrap();
        let ObjectBody::Inline(body) = object.body else { panic!("the body is inline") };
        assert_eq!(body.as_ptr(), row[row.len() - 3..].as_ptr());
    }
}
