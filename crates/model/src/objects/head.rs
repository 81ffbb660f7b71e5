//! The head of a key: the one row that every change of the key compares and sets.

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::content::BlobId;

use super::ids::VersionId;
use super::version::Version;
use super::version::fields::{array, list, put_list};

const VERSION: u8 = 1;
const CURRENT: u8 = 1;
const NULL: u8 = 2;
const OLDER: u8 = 4;

/// What the head row holds. Versions that are not current have rows of their own behind it, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// The current version; `None` when no version is left: the head then stays a day, so that its stamp orders what follows
    /// (and its listing entry is not taken for newer than the next one).
    pub current: Option<Version>,
    /// The version clients know as `null`, when it has a row of its own.
    pub null: Option<VersionId>,
    /// Whether versions that are not current have rows.
    pub older: bool,
    /// What nobody names any more and may still have to be removed: done by whoever touches the head next.
    pub release: Vec<Release>,
}

impl Head {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let room = 32 + 32 * self.release.len() + self.current.as_ref().map_or(0, Version::room);
        let mut out = Encoder::with_capacity(room);
        out.u8(VERSION);
        let (current, null) = (u8::from(self.current.is_some()), u8::from(self.null.is_some()));
        out.u8(current * CURRENT + null * NULL + u8::from(self.older) * OLDER);
        if let Some(null) = self.null {
            out.raw(&null.0);
        }
        put_list(&mut out, &self.release, |out, release| release.put(out));
        if let Some(current) = &self.current {
            current.put(&mut out);
        }
        out.finish()
    }

    /// Reads the stored form; the body of the current version shares its memory.
    ///
    /// # Errors
    /// [`DecodeError`]: an unknown version is never guessed at.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = Decoder::new(value);
        rest.version(VERSION)?;
        let flags = rest.u8()?;
        if flags & !(CURRENT | NULL | OLDER) != 0 {
            return Err(DecodeError::Invalid("head flags"));
        }
        let null = if flags & NULL == 0 { None } else { Some(VersionId(array(&mut rest)?)) };
        let release = list(&mut rest, Release::take)?;
        let current = if flags & CURRENT == 0 {
            rest.finish()?;
            None
        } else {
            Some(Version::take(rest)?)
        };
        Ok(Self { current, null, older: flags & OLDER != 0, release })
    }
}

/// Bytes that are to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// A blob.
    Blob(BlobId),
    /// A manifest and the blobs it names.
    Parts(VersionId),
}

impl Release {
    fn put(&self, out: &mut Encoder) {
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

    fn take(rest: &mut Decoder) -> Result<Self, DecodeError> {
        match rest.u8()? {
            0 => Ok(Self::Blob(BlobId(array(rest)?))),
            1 => Ok(Self::Parts(VersionId(array(rest)?))),
            _ => Err(DecodeError::Invalid("release kind")),
        }
    }
}
