//! Listing entries of keys and uploads. Each is the derived row of a head: the store keeps it in step with the head.

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, put_ordered, take_ordered};
use larder_rows::ids::UploadId;

use super::checksum::{Algorithm, ChecksumKind};
use super::head::ObjectHead;
use super::upload::Upload;
use super::version::fields::{self, algorithm_and_kind, put_algorithm};
use super::version::{Etag, Object, SystemHeader};

const VERSION: u8 = 1;

/// The listing entry of a key, derived from its head. A key without any version has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// The last modification of the current version.
    pub modified: Timestamp,
    /// Canonical id of its owner.
    pub owner: String,
    /// The object; `None` when the current version is a delete marker, which only the list of versions shows.
    pub object: Option<ListedObject>,
}

impl ListingEntry {
    /// The entry of the key with this head; `None` when the key has no version.
    #[must_use]
    pub fn from_head(head: &ObjectHead) -> Option<Self> {
        let current = head.current.as_ref()?;
        let object = current.object.as_ref().map(ListedObject::from_object);
        Some(Self { modified: current.modified, owner: current.owner.clone(), object })
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 64 + self.owner.len());
        out.u64(self.modified.0);
        out.text(&self.owner);
        out.optional(self.object.as_ref(), |out, object| {
            fields::put_etag(out, object.etag);
            out.varint(object.length);
            out.optional(object.storage_class.as_deref(), FieldEncoder::text);
            out.optional(object.checksum, |out, (algorithm, kind)| put_algorithm(out, algorithm, kind));
        });
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let entry = Self {
            modified: Timestamp(rest.u64()?),
            owner: rest.text()?,
            object: rest.optional(|rest| {
                Ok(ListedObject {
                    etag: fields::etag(rest)?,
                    length: rest.varint()?,
                    storage_class: rest.optional(FieldDecoder::text)?,
                    checksum: rest.optional(algorithm_and_kind)?,
                })
            })?,
        };
        rest.finish()?;
        Ok(entry)
    }
}

/// The properties of an object that listings show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its entity tag.
    pub etag: Etag,
    /// Its length in bytes.
    pub length: u64,
    /// Its storage class; `None` is `STANDARD`.
    pub storage_class: Option<String>,
    /// Algorithm and kind of its checksum.
    pub checksum: Option<(Algorithm, ChecksumKind)>,
}

impl ListedObject {
    /// The properties of this object.
    #[must_use]
    pub fn from_object(object: &Object) -> Self {
        Self {
            etag: object.etag,
            length: object.length(),
            storage_class: object.header(SystemHeader::StorageClass).map(lossy),
            checksum: object.checksum.as_ref().map(|checksum| (checksum.algorithm, checksum.kind())),
        }
    }
}

/// The entry of an upload in the list of uploads, derived from the upload's head while it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadEntry {
    /// The time of its creation.
    pub initiated: Timestamp,
    /// Canonical id of its creator.
    pub initiator: String,
    /// Canonical id of the owner of the future object.
    pub owner: String,
    /// The storage class of the future object; `None` is `STANDARD`.
    pub storage_class: Option<String>,
    /// Algorithm and kind of the future object's checksum.
    pub checksum: Option<(Algorithm, ChecksumKind)>,
}

impl UploadEntry {
    /// The entry of this upload; `None` when it is done or aborted.
    #[must_use]
    pub fn from_upload(upload: &Upload) -> Option<Self> {
        let class = upload.headers.iter().find(|(name, _)| *name == SystemHeader::StorageClass);
        // An upload that has ended has no entry: the derived row is removed with it [invariant 66].
        upload.state.is_alive().then(|| Self {
            initiated: upload.initiated,
            initiator: upload.initiator.clone(),
            owner: upload.owner.clone(),
            storage_class: class.map(|(_, value)| lossy(value)),
            checksum: upload.checksum,
        })
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 64 + self.initiator.len() + self.owner.len());
        out.u64(self.initiated.0);
        out.text(&self.initiator);
        out.text(&self.owner);
        out.optional(self.storage_class.as_deref(), FieldEncoder::text);
        out.optional(self.checksum, |out, (algorithm, kind)| put_algorithm(out, algorithm, kind));
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let entry = Self {
            initiated: Timestamp(rest.u64()?),
            initiator: rest.text()?,
            owner: rest.text()?,
            storage_class: rest.optional(FieldDecoder::text)?,
            checksum: rest.optional(algorithm_and_kind)?,
        };
        rest.finish()?;
        Ok(entry)
    }
}

/// Row name of the entry of an upload. Names sort by key, then by the time of creation.
#[must_use]
pub fn upload_entry_name(key: &[u8], upload: UploadId) -> Bytes {
    let mut name = Vec::with_capacity(key.len() + 24);
    put_ordered(&mut name, key);
    name.extend_from_slice(&upload.0);
    name.into()
}

/// The lower bound of the entry names of `key` and all later keys: the names of earlier keys are below it.
#[must_use]
pub fn upload_entries_from(key: &[u8]) -> Bytes {
    let mut name = Vec::with_capacity(key.len() + 8);
    put_ordered(&mut name, key);
    name.into()
}

/// The key and the upload of a name made by [`upload_entry_name`].
///
/// # Errors
/// [`DecodeError`] for a name of another form.
pub fn upload_of_entry_name(name: &[u8]) -> Result<(Bytes, UploadId), DecodeError> {
    let (key, id) = take_ordered(name)?;
    let id = id.try_into().map_err(|_| DecodeError::Invalid("upload id"))?;
    Ok((key.into(), UploadId(id)))
}

fn lossy(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::upload::UploadState;
    use crate::upload::tests::upload;
    use crate::version::Version;
    use crate::version::tests::{algorithm, damage, etag, golden, kind, version};

    fn entry() -> impl Strategy<Value = ListingEntry> {
        let checksum = option::of((algorithm(), kind()));
        let object = (etag(), any::<u64>(), option::of(any::<String>()), checksum)
            .prop_map(|(etag, length, storage_class, checksum)| ListedObject { etag, length, storage_class, checksum });
        (any::<u64>(), any::<String>(), option::of(object)).prop_map(|(modified, owner, object)| ListingEntry {
            modified: Timestamp(modified),
            owner,
            object,
        })
    }

    fn upload_entry() -> impl Strategy<Value = UploadEntry> {
        upload().prop_filter_map("alive", |upload| UploadEntry::from_upload(&upload))
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 0..6)
    }

    proptest! {
        #[test]
        fn entries_decode_to_themselves(entry in entry(), upload in upload_entry()) {
            prop_assert_eq!(ListingEntry::decode(entry.encode()), Ok(entry));
            prop_assert_eq!(UploadEntry::decode(upload.encode()), Ok(upload));
        }

        #[test]
        fn damaged_entries_fail_or_decode_without_panic(
            entry in entry(), upload in upload_entry(), at: usize, bit in 0..8_u8,
        ) {
            damage(&entry.encode(), at, bit, ListingEntry::decode);
            damage(&upload.encode(), at, bit, UploadEntry::decode);
        }

        #[test]
        fn random_bytes_are_an_entry_or_an_error(bytes: Vec<u8>) {
            let _ = ListingEntry::decode(bytes.clone().into());
            let _ = UploadEntry::decode(bytes.clone().into());
            let _ = ListingEntry::decode([&[VERSION], &bytes[..]].concat().into());
            let _ = UploadEntry::decode([&[VERSION], &bytes[..]].concat().into());
            let _ = upload_of_entry_name(&bytes);
        }

        #[test]
        fn an_entry_has_the_properties_of_the_current_version(current in version(), older: bool) {
            let head = ObjectHead { current: Some(current.clone()), older, ..ObjectHead::default() };
            let entry = ListingEntry::from_head(&head).unwrap();
            prop_assert_eq!((entry.modified, &entry.owner), (current.modified, &current.owner));
            prop_assert_eq!(entry.object.map(|entry| (entry.etag, entry.length)),
                current.object.map(|object| (object.etag, object.length())));
        }

        #[test]
        fn names_of_uploads_sort_by_key_then_id(a in key(), b in key(), x: [u8; 16], y: [u8; 16]) {
            let (x, y) = (UploadId(x), UploadId(y));
            let (first, second) = (upload_entry_name(&a, x), upload_entry_name(&b, y));
            prop_assert_eq!(first.cmp(&second), (&a, x).cmp(&(&b, y)));
            prop_assert_eq!(upload_of_entry_name(&first), Ok((a.clone().into(), x)));
            prop_assert_eq!(upload_entries_from(&b) <= first, b <= a);
        }
    }

    /// The stored forms, byte for byte: a change here is a change of format and needs a new version.
    #[test]
    fn the_golden_entries_still_decode() {
        let head = ObjectHead { current: Some(golden()), ..ObjectHead::default() };
        let entry = ListingEntry::from_head(&head).unwrap();
        let row = b"\x01\x00\x00\x00\x00\x00\x00\x00\x07\x03ann\x01\
            \x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x22\x00\x03\x00\x01\x01\x01";
        assert_eq!(entry.encode().as_ref(), row);
        assert_eq!(ListingEntry::decode(Bytes::from_static(row)), Ok(entry));
        let odd = [&row[..13], &[2], &row[14..]].concat();
        assert_eq!(ListingEntry::decode(odd.into()), Err(DecodeError::Invalid("presence")));
        let upload = UploadEntry {
            initiated: Timestamp(7),
            initiator: "ann".into(),
            owner: "bob".into(),
            storage_class: Some("COLD".into()),
            checksum: Some((Algorithm::Sha1, ChecksumKind::Composite)),
        };
        let row = b"\x01\x00\x00\x00\x00\x00\x00\x00\x07\x03ann\x03bob\x01\x04COLD\x01\x04\x02";
        assert_eq!(upload.encode().as_ref(), row);
        assert_eq!(UploadEntry::decode(Bytes::from_static(row)), Ok(upload));
        let name = [b"a\x00\xffb\x00\x01", &[9; 16][..]].concat();
        assert_eq!(upload_entry_name(b"a\x00b", UploadId([9; 16])), name);
        assert!(upload_of_entry_name(&name[..name.len() - 1]).is_err());
    }

    #[test]
    fn delete_markers_have_entries_and_keys_without_versions_have_none() {
        assert_eq!(ListingEntry::from_head(&ObjectHead { older: true, ..ObjectHead::default() }), None);
        let marker = Version { object: None, ..golden() };
        let head = ObjectHead { current: Some(marker), ..ObjectHead::default() };
        assert_eq!(
            ListingEntry::from_head(&head),
            Some(ListingEntry { modified: Timestamp(7), owner: "ann".into(), object: None })
        );
    }

    proptest! {
        #[test]
        fn uploads_are_listed_while_they_live(mut upload in upload()) {
            prop_assert_eq!(UploadEntry::from_upload(&upload).is_some(), upload.state.is_alive());
            upload.state = UploadState::Open;
            upload.headers = vec![(SystemHeader::StorageClass, Bytes::from_static(b"COLD"))];
            let entry = UploadEntry::from_upload(&upload).unwrap();
            prop_assert_eq!(entry.storage_class.as_deref(), Some("COLD"));
            prop_assert_eq!((entry.initiator, entry.owner), (upload.initiator, upload.owner));
        }
    }
}
