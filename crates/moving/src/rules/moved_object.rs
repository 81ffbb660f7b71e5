//! What a move knows of a key of an S3 store: the clock of its row.

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::ids::VersionId;

const VERSION: u8 = 1;

/// A version of a key at its source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceVersionName {
    /// Its id; `None` where the source shows none.
    pub version_id: Option<String>,
    /// Its entity tag; empty for a delete marker.
    pub etag: String,
    /// Its time.
    pub modified: Timestamp,
}

/// What a move knows of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MovedObject {
    /// A digest of the versions that the source listed when they were copied.
    pub listed: u64,
    /// The last version that was imported, as the source names it; `None` before the first.
    pub last: Option<SourceVersionName>,
    /// The version that it became here; `None` when the key has none.
    pub here: Option<VersionId>,
}

impl MovedObject {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 96);
        out.u64(self.listed);
        out.optional(self.last.as_ref(), |out, last| {
            out.optional(last.version_id.as_deref(), FieldEncoder::text);
            out.text(&last.etag);
            out.u64(last.modified.0);
        });
        out.optional(self.here, |out, here| out.raw(&here.0));
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let listed = rest.u64()?;
        let last = rest.optional(|rest| {
            Ok(SourceVersionName {
                version_id: rest.optional(FieldDecoder::text)?,
                etag: rest.text()?,
                modified: Timestamp(rest.u64()?),
            })
        })?;
        let here = rest.optional(|rest| Ok(VersionId(rest.array()?)))?;
        rest.finish()?;
        Ok(Self { listed, last, here })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_golden_row_of_a_moved_object_still_decodes() {
        let last = SourceVersionName { version_id: Some("v".into()), etag: "e".into(), modified: Timestamp(2) };
        let moved = MovedObject { listed: 1, last: Some(last), here: Some(VersionId([3; 16])) };
        let golden = [&b"\x01\0\0\0\0\0\0\0\x01\x01\x01\x01v\x01e\0\0\0\0\0\0\0\x02\x01"[..], &[3; 16]].concat();
        assert_eq!(moved.encode(), golden);
        assert_eq!(MovedObject::decode(golden.into()), Ok(moved));
        let none = MovedObject::default();
        assert_eq!(MovedObject::decode(none.encode()), Ok(none));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = MovedObject::decode(bytes.clone().into());
            let _ = MovedObject::decode([&[VERSION], &bytes[..]].concat().into());
        }
    }
}
