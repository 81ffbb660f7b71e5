//! A multipart upload: the head of its partition.
//!
//! ```text
//! open ──> completing(version) ──> done (kept a day, for the answer to a repeated request)
//!   │ ^          │ its gateway died
//!   │ └──────── reopening: set before the object's head is fenced and read, so the completion cannot succeed later
//!   └────> aborted (kept a day)
//! ```

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::ids::{BucketId, VersionId};

use super::acl::Acl;
use super::checksum::{Algorithm, Checksum, ChecksumKind};
use super::encryption::{EncryptionKind, ObjectEncryption};
use super::object_lock::ObjectLock;
use super::tags::Tag;
use super::version::fields::{self, algorithm_and_kind, put_algorithm};
use super::version::{Etag, SystemHeader};

const VERSION: u8 = 1;
/// The version of an upload that is encrypted or has a lock: programs without these refuse it.
const GUARDED_VERSION: u8 = 2;

/// A multipart upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The bucket.
    pub bucket: BucketId,
    /// The key.
    pub key: Bytes,
    /// Canonical id of its creator.
    pub initiator: String,
    /// Canonical id of the owner of the future object.
    pub owner: String,
    /// The time of its creation.
    pub initiated: Timestamp,
    /// Headers of the future object.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata of the future object.
    pub meta: Vec<(String, Bytes)>,
    /// Tags of the future object.
    pub tags: Vec<Tag>,
    /// The ACL of the future object.
    pub acl: Option<Acl>,
    /// The algorithm of the checksums of its parts and of the object, and the kind of the object's.
    pub checksum: Option<(Algorithm, ChecksumKind)>,
    /// How its parts are encrypted.
    pub encryption: Option<ObjectEncryption>,
    /// The lock that the future object is to have.
    pub lock: ObjectLock,
    /// Its state.
    pub state: UploadState,
}

impl Upload {
    /// How its parts are encrypted.
    #[must_use]
    pub fn encryption_kind(&self) -> Option<EncryptionKind> {
        self.encryption.map(|encryption| encryption.kind())
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let is_guarded = self.encryption.is_some() || !self.lock.is_empty();
        let mut out = FieldEncoder::versioned(if is_guarded { GUARDED_VERSION } else { VERSION }, 512);
        if is_guarded {
            out.optional(self.encryption.as_ref(), |out, encryption| encryption.put(out));
        }
        out.raw(&self.bucket.0);
        out.bytes(&self.key);
        out.text(&self.initiator);
        out.text(&self.owner);
        out.u64(self.initiated.0);
        fields::put_headers(&mut out, &self.headers);
        fields::put_meta(&mut out, &self.meta);
        fields::put_tags(&mut out, &self.tags);
        out.optional(self.acl.as_ref(), fields::put_acl);
        out.optional(self.checksum, |out, (algorithm, kind)| put_algorithm(out, algorithm, kind));
        if is_guarded {
            self.lock.put(&mut out);
        }
        self.state.put(&mut out);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let is_guarded = value.first() == Some(&GUARDED_VERSION);
        let mut rest = FieldDecoder::versioned(value, if is_guarded { GUARDED_VERSION } else { VERSION })?;
        let upload = Self {
            encryption: if is_guarded { rest.optional(ObjectEncryption::take)? } else { None },
            bucket: BucketId(rest.array()?),
            key: rest.bytes()?,
            initiator: rest.text()?,
            owner: rest.text()?,
            initiated: Timestamp(rest.u64()?),
            headers: fields::headers(&mut rest)?,
            meta: fields::meta(&mut rest)?,
            tags: fields::tags(&mut rest)?,
            acl: rest.optional(fields::acl)?,
            checksum: rest.optional(algorithm_and_kind)?,
            lock: if is_guarded { ObjectLock::take(&mut rest)? } else { ObjectLock::default() },
            state: UploadState::take(&mut rest)?,
        };
        rest.finish()?;
        Ok(upload)
    }
}

/// The state of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadState {
    /// The upload takes parts.
    Open,
    /// A gateway is completing the upload.
    Completing {
        /// The version that the object gets.
        version: VersionId,
        /// Digest of the list of parts.
        list: [u8; 20],
        /// The time at which the completion began.
        since: Timestamp,
    },
    /// A gateway is undoing the completion, unless it has succeeded.
    Reopening {
        /// The version that the object would get.
        version: VersionId,
        /// Digest of the list of parts.
        list: [u8; 20],
    },
    /// The upload is an object.
    Done {
        /// The version of the object.
        version: VersionId,
        /// Whether its version id is `null`.
        null: bool,
        /// Digest of the list of parts: a repeat with the same list gets the same answer.
        list: [u8; 20],
        /// The entity tag of the object.
        etag: Etag,
        /// The checksum of the object.
        checksum: Option<Checksum>,
    },
    /// The upload was aborted.
    Aborted,
}

impl UploadState {
    /// Whether the upload takes parts, or may do so again after a failed completion.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self, Self::Open | Self::Completing { .. } | Self::Reopening { .. })
    }

    fn put(&self, out: &mut FieldEncoder) {
        match self {
            Self::Open => out.u8(1),
            Self::Completing { version, list, since } => {
                out.u8(2);
                out.raw(&version.0);
                out.raw(list);
                out.u64(since.0);
            }
            Self::Reopening { version, list } => {
                out.u8(3);
                out.raw(&version.0);
                out.raw(list);
            }
            Self::Done { version, null, list, etag, checksum } => {
                out.u8(4);
                out.raw(&version.0);
                out.u8(u8::from(*null));
                out.raw(list);
                fields::put_etag(out, *etag);
                out.optional(checksum.as_ref(), fields::put_checksum);
            }
            Self::Aborted => out.u8(5),
        }
    }

    fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        match rest.u8()? {
            1 => Ok(Self::Open),
            2 => Ok(Self::Completing {
                version: VersionId(rest.array()?),
                list: rest.array()?,
                since: Timestamp(rest.u64()?),
            }),
            3 => Ok(Self::Reopening { version: VersionId(rest.array()?), list: rest.array()? }),
            4 => Ok(Self::Done {
                version: VersionId(rest.array()?),
                null: rest.optional(|_| Ok(()))?.is_some(),
                list: rest.array()?,
                etag: fields::etag(rest)?,
                checksum: rest.optional(fields::checksum)?,
            }),
            5 => Ok(Self::Aborted),
            _ => Err(DecodeError::Invalid("upload state")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::encryption::tests::encryption;
    use crate::object_lock::tests::object_lock;
    use crate::version::tests::{acl, algorithm, bytes, checksum, damage, etag, headers, kind, meta, tags, version_id};

    fn state() -> impl Strategy<Value = UploadState> {
        let list = any::<[u8; 20]>;
        prop_oneof![
            Just(UploadState::Open),
            (version_id(), list(), any::<u64>()).prop_map(|(version, list, since)| UploadState::Completing {
                version,
                list,
                since: Timestamp(since)
            }),
            (version_id(), list()).prop_map(|(version, list)| UploadState::Reopening { version, list }),
            (version_id(), any::<bool>(), list(), etag(), option::of(checksum())).prop_map(
                |(version, null, list, etag, checksum)| UploadState::Done { version, null, list, etag, checksum }
            ),
            Just(UploadState::Aborted),
        ]
    }

    pub(crate) fn upload() -> impl Strategy<Value = Upload> {
        let who = (any::<[u8; 16]>(), bytes(20), any::<String>(), any::<String>(), any::<u64>());
        let what = (headers(), meta(), tags(), option::of(acl()), option::of((algorithm(), kind())));
        (who, what, (object_lock(), option::of(encryption())), state()).prop_map(
            |(
                (bucket, key, initiator, owner, initiated),
                (headers, meta, tags, acl, checksum),
                (lock, encryption),
                state,
            )| Upload {
                bucket: BucketId(bucket),
                key,
                initiator,
                owner,
                initiated: Timestamp(initiated),
                headers,
                meta,
                tags,
                acl,
                checksum,
                lock,
                encryption,
                state,
            },
        )
    }

    proptest! {
        #[test]
        fn uploads_decode_to_themselves(upload in upload()) {
            prop_assert_eq!(Upload::decode(upload.encode()), Ok(upload));
        }

        #[test]
        fn damaged_uploads_fail_or_decode_without_panic(upload in upload(), at: usize, bit in 0..8_u8) {
            damage(&upload.encode(), at, bit, Upload::decode);
        }

        #[test]
        fn random_bytes_are_an_upload_or_an_error(bytes: Vec<u8>) {
            let _ = Upload::decode(bytes.clone().into());
            let _ = Upload::decode([&[VERSION], &bytes[..]].concat().into());
        }
    }

    /// The stored forms, byte for byte: a change here is a change of format and needs a new version.
    #[test]
    fn the_golden_uploads_still_decode() {
        let (version, list) = (VersionId([0x11; 16]), [0x22; 20]);
        let etag = Etag { md5: [0x33; 16], parts: Some(2) };
        let checksum =
            Some(Checksum { algorithm: Algorithm::Crc32, digest: Bytes::from_static(b"1234"), parts: Some(2) });
        let (v, l) = (&[0x11; 16][..], &[0x22; 20][..]);
        let states = [
            (UploadState::Open, vec![1]),
            (
                UploadState::Completing { version, list, since: Timestamp(5) },
                [&[2], v, l, &[0, 0, 0, 0, 0, 0, 0, 5]].concat(),
            ),
            (UploadState::Reopening { version, list }, [&[3], v, l].concat()),
            (
                UploadState::Done { version, null: true, list, etag, checksum },
                [&[4], v, &[1], l, &[0x33; 16], &[2, 1, 1, 4], b"1234", &[2]].concat(),
            ),
            (UploadState::Aborted, vec![5]),
        ];
        for (state, tail) in states {
            let upload = Upload {
                bucket: BucketId([0x44; 16]),
                key: Bytes::from_static(b"k"),
                initiator: "ann".into(),
                owner: "bob".into(),
                initiated: Timestamp(7),
                headers: Vec::new(),
                meta: Vec::new(),
                tags: Vec::new(),
                acl: None,
                checksum: Some((Algorithm::Crc32, ChecksumKind::Composite)),
                encryption: None,
                lock: ObjectLock::default(),
                state,
            };
            let front = b"\x01kann\x03bob\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x01\x01\x02";
            let row = [&[1], &[0x44; 16][..], &front[..2], b"\x03", &front[2..], &tail].concat();
            assert_eq!(upload.encode(), row);
            assert_eq!(Upload::decode(row.clone().into()), Ok(upload.clone()));
            assert_eq!(Upload::decode([&row[..], &[0]].concat().into()), Err(DecodeError::Trailing));
            // With a lock or encrypted it has another version: the encryption comes first, the lock before the state.
            let lock = ObjectLock { retention: None, legal_hold: Some(true) };
            let encryption = Some(ObjectEncryption::Customer { salt: [5; 32], verifier: [6; 32] });
            let front = &row[1..row.len() - tail.len()];
            let guarded = [
                (Upload { lock, ..upload.clone() }, [&[2, 0], front, &[0x0c], &tail].concat()),
                (Upload { encryption, ..upload }, [&[2, 1, 2], &[5; 32][..], &[6; 32], front, &[0], &tail].concat()),
            ];
            for (upload, row) in guarded {
                assert_eq!(upload.encode(), row);
                assert_eq!(Upload::decode(row.into()), Ok(upload));
            }
        }
    }
}
