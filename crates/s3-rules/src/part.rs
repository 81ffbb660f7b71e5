//! Parts of an upload, their pages, and the manifest of the object that they become.

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder};
use larder_rows::content::BlobId;
use larder_rows::ids::{BucketId, UploadId};

const VERSION: u8 = 1;

/// Highest part number.
pub const PART_NUMBER_MAX: u16 = 10_000;
/// Parts in a row of a manifest.
pub const MANIFEST_ROW_PARTS: usize = 256;

/// A part of an upload. Its number is the name of its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1.
    pub number: u16,
    /// MD5 of its bytes.
    pub md5: [u8; 16],
    /// Its length in bytes.
    pub length: u64,
    /// The blob with its bytes; `None` for an empty part.
    pub blob: Option<BlobId>,
    /// Its last modification.
    pub modified: Timestamp,
    /// The digest of its checksum in the upload's algorithm.
    pub checksum: Option<Bytes>,
}

impl Part {
    /// The row name of the part with this number. Names sort by number.
    #[must_use]
    pub fn row_name(number: u16) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    /// The value of its row.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 128);
        out.raw(&self.md5);
        out.varint(self.length);
        out.u64(self.modified.0);
        put_blob_and_checksum(&mut out, self.blob, self.checksum.as_ref());
        out.finish()
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(name: &[u8], value: Bytes) -> Result<Self, DecodeError> {
        let number = name.try_into().map(u16::from_be_bytes).map_err(|_| DecodeError::Invalid("part number"))?;
        let number = part_number(number.into())?;
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let (md5, length, modified) = (rest.array()?, rest.varint()?, rest.u64()?);
        let (blob, checksum) = blob_and_checksum(&mut rest)?;
        rest.finish()?;
        Ok(Self { number, md5, length, blob, modified: Timestamp(modified), checksum })
    }
}

/// One page of the parts of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPage {
    /// The parts, by number.
    pub parts: Vec<Part>,
    /// Whether there are further parts.
    pub truncated: bool,
    /// Number of the last part of the page, even when it is the last of all; 0 for an empty page.
    pub next_marker: u16,
}

/// The page of at most `max` parts. `parts` are the first `max` + 1 after the client's marker, or all if there are fewer.
#[must_use]
pub fn parts_page(mut parts: Vec<Part>, max: usize) -> PartsPage {
    // A page of no parts ends the listing: the next page would have no marker.
    let truncated = parts.len() > max && max > 0;
    parts.truncate(max);
    let next_marker = parts.last().map_or(0, |part| part.number);
    PartsPage { parts, truncated, next_marker }
}

/// A part of a completed object, as its manifest stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestPart {
    /// Its number, from 1.
    pub number: u16,
    /// Its length in bytes.
    pub length: u64,
    /// The blob with its bytes; `None` for an empty part.
    pub blob: Option<BlobId>,
    /// Its checksum in the object's algorithm.
    pub checksum: Option<Bytes>,
}

impl From<&Part> for ManifestPart {
    fn from(part: &Part) -> Self {
        Self { number: part.number, length: part.length, blob: part.blob, checksum: part.checksum.clone() }
    }
}

/// The owner of a manifest: its first row, with the empty name. It leads a sweeper to the key that may reference the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestOwner {
    /// The bucket.
    pub bucket: BucketId,
    /// The completed upload.
    pub upload: UploadId,
    /// The key.
    pub key: Bytes,
}

impl ManifestOwner {
    /// The value of its row.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 33 + self.key.len());
        out.raw(&self.bucket.0);
        out.raw(&self.upload.0);
        out.raw(&self.key);
        out.finish()
    }

    /// Reads [`Self::encode`] back.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown version or damaged bytes.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        Ok(Self { bucket: BucketId(rest.array()?), upload: UploadId(rest.array()?), key: rest.rest() })
    }
}

/// The rows of the manifest of an object made of `parts`, as names and values. A name is the offset of the row's first byte, so
/// the row with the greatest name up to an offset has the byte at that offset.
///
/// A row has [`MANIFEST_ROW_PARTS`] parts, and more only when these are all empty: two rows cannot begin at one offset.
#[must_use]
pub fn manifest_rows(parts: &[ManifestPart]) -> Vec<(Bytes, Bytes)> {
    let (mut rows, mut rest, mut offset) = (Vec::new(), parts, 0_u64);
    while !rest.is_empty() {
        // An offset names one row, so empty parts join the row of the next part with bytes.
        let filled = rest.iter().position(|part| part.length > 0).map_or(rest.len(), |at| at + 1);
        let (row, later) = rest.split_at(filled.max(MANIFEST_ROW_PARTS).min(rest.len()));
        let first = parts.len() - rest.len();
        rows.push((Bytes::copy_from_slice(&offset.to_be_bytes()), manifest_value(first, row)));
        offset = row.iter().fold(offset, |offset, part| offset.saturating_add(part.length));
        rest = later;
    }
    rows
}

/// Reads a row of a manifest: the offset of its first byte, the index of its first part in the object (from 0), and its parts.
///
/// # Errors
/// [`DecodeError`] for an unknown version or damaged bytes.
pub fn decode_manifest_row(name: &[u8], value: Bytes) -> Result<(u64, u32, Vec<ManifestPart>), DecodeError> {
    let offset = name.try_into().map(u64::from_be_bytes).map_err(|_| DecodeError::Invalid("offset"))?;
    let mut rest = FieldDecoder::versioned(value, VERSION)?;
    let first = u32::try_from(rest.varint()?).map_err(|_| DecodeError::Invalid("part index"))?;
    let mut parts = Vec::new();
    for _ in 0..rest.count(PART_NUMBER_MAX.into())? {
        let (number, length) = (part_number(rest.varint()?)?, rest.varint()?);
        let (blob, checksum) = blob_and_checksum(&mut rest)?;
        parts.push(ManifestPart { number, length, blob, checksum });
    }
    rest.finish()?;
    Ok((offset, first, parts))
}

fn manifest_value(first: usize, parts: &[ManifestPart]) -> Bytes {
    let mut out = FieldEncoder::versioned(VERSION, 16 + 64 * parts.len());
    out.varint(first as u64);
    out.varint(parts.len() as u64);
    for part in parts {
        out.varint(part.number.into());
        out.varint(part.length);
        put_blob_and_checksum(&mut out, part.blob, part.checksum.as_ref());
    }
    out.finish()
}

fn part_number(number: u64) -> Result<u16, DecodeError> {
    let number = u16::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
    number.ok_or(DecodeError::Invalid("part number"))
}

fn put_blob_and_checksum(out: &mut FieldEncoder, blob: Option<BlobId>, checksum: Option<&Bytes>) {
    out.optional(blob, |out, blob| out.raw(&blob.0));
    out.optional(checksum, |out, checksum| out.bytes(checksum));
}

fn blob_and_checksum(rest: &mut FieldDecoder) -> Result<(Option<BlobId>, Option<Bytes>), DecodeError> {
    let blob = rest.optional(|rest| Ok(BlobId(rest.array()?)))?;
    Ok((blob, rest.optional(FieldDecoder::bytes)?))
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::version::tests::{blob, bytes, damage};

    fn part() -> impl Strategy<Value = Part> {
        let checksum = option::of(bytes(32));
        (1..=PART_NUMBER_MAX, any::<[u8; 16]>(), any::<u64>(), option::of(blob()), any::<u64>(), checksum).prop_map(
            |(number, md5, length, blob, modified, checksum)| Part {
                number,
                md5,
                length,
                blob,
                modified: Timestamp(modified),
                checksum,
            },
        )
    }

    /// Many parts, with long runs of empty ones.
    fn manifest() -> impl Strategy<Value = Vec<ManifestPart>> {
        vec((1..700_usize, prop_oneof![Just(0), 0..5_u64, 0..=u64::from(u32::MAX)], any::<bool>()), 0..5).prop_map(
            |runs| {
                let lengths = runs.iter().flat_map(|&(count, length, odd)| {
                    (0..count).map(move |at| if odd && at % 100 == 0 { 0 } else { length })
                });
                let parts = lengths.zip(1..=PART_NUMBER_MAX).map(|(length, number)| ManifestPart {
                    number,
                    length,
                    blob: (length > 0).then_some(BlobId([number as u8; 24])),
                    checksum: number.is_multiple_of(3).then(|| Bytes::from_static(b"1234")),
                });
                parts.collect()
            },
        )
    }

    proptest! {
        #[test]
        fn parts_decode_to_themselves(part in part()) {
            prop_assert_eq!(Part::decode(&Part::row_name(part.number), part.encode()), Ok(part));
        }

        #[test]
        fn damaged_parts_fail_or_decode_without_panic(part in part(), at: usize, bit in 0..8_u8) {
            damage(&part.encode(), at, bit, |row| Part::decode(&Part::row_name(1), row));
        }

        #[test]
        fn random_bytes_are_a_part_or_an_error(name: Vec<u8>, value: Vec<u8>) {
            let _ = Part::decode(&name, value.clone().into());
            let _ = decode_manifest_row(&name, value.clone().into());
            let _ = ManifestOwner::decode(value.clone().into());
            let value = Bytes::from([&[VERSION], &value[..]].concat());
            let _ = Part::decode(&[0, 1], value.clone());
            let _ = decode_manifest_row(&[0; 8], value);
        }

        #[test]
        fn manifests_decode_to_themselves(parts in manifest()) {
            let rows = manifest_rows(&parts);
            let (mut back, mut offset) = (Vec::new(), 0);
            for (name, value) in &rows {
                let (at, first, mut row) = decode_manifest_row(name, value.clone()).unwrap();
                prop_assert_eq!((at, first as usize), (offset, back.len()));
                offset += row.iter().map(|part| part.length).sum::<u64>();
                back.append(&mut row);
            }
            prop_assert_eq!(back, parts);
            prop_assert!(rows.is_sorted_by(|(a, _), (b, _)| a < b), "two rows of one name");
        }

        #[test]
        fn damaged_manifests_fail_or_decode_without_panic(parts in manifest(), at: usize, bit in 0..8_u8) {
            for (name, value) in manifest_rows(&parts) {
                damage(&value, at, bit, |row| decode_manifest_row(&name, row));
            }
        }
    }

    #[test]
    fn rows_of_a_manifest_have_256_parts() {
        let part = ManifestPart { number: 1, length: 10, blob: None, checksum: None };
        let counts = |count: usize| -> Vec<usize> {
            let rows = manifest_rows(&vec![part.clone(); count]);
            rows.into_iter().map(|(name, value)| decode_manifest_row(&name, value).unwrap().2.len()).collect()
        };
        assert_eq!(counts(0), [0; 0]);
        assert_eq!(counts(256), [256]);
        assert_eq!(counts(10_000), [vec![256; 39], vec![16]].concat());
    }

    /// The stored forms, byte for byte: a change here is a change of format and needs a new version.
    #[test]
    fn the_golden_rows_still_decode() {
        let (blob, checksum) = (Some(BlobId([0x22; 24])), Some(Bytes::from_static(b"1234")));
        let part = Part {
            number: 258,
            md5: [0x11; 16],
            length: 128,
            blob,
            modified: Timestamp(7),
            checksum: checksum.clone(),
        };
        let tail = [&[1], &[0x22; 24][..], b"\x01\x041234"].concat();
        let row = [&[1], &[0x11; 16][..], &[0x80, 1], &[0, 0, 0, 0, 0, 0, 0, 7], &tail].concat();
        assert_eq!(Part::row_name(258).as_ref(), [1, 2]);
        assert_eq!(part.encode(), row);
        assert_eq!(Part::decode(&[1, 2], row.clone().into()), Ok(part.clone()));
        assert_eq!(Part::decode(&[0, 0], row.clone().into()), Err(DecodeError::Invalid("part number")));
        assert_eq!(Part::decode(&[0xff, 0], row.into()), Err(DecodeError::Invalid("part number")));

        let key = Bytes::from_static(b"k/1");
        let owner = ManifestOwner { bucket: BucketId([0x33; 16]), upload: UploadId([0x44; 16]), key };
        let row = [&[1], &[0x33; 16][..], &[0x44; 16], b"k/1"].concat();
        assert_eq!(owner.encode(), row);
        assert_eq!(ManifestOwner::decode(row.clone().into()), Ok(owner));
        assert!(ManifestOwner::decode(Bytes::from(row).slice(..32)).is_err());

        let empty = ManifestPart { number: 1, length: 0, blob: None, checksum: None };
        let row = [&[1, 0, 2, 1, 0, 0, 0, 0x82, 2, 0x80, 1][..], &tail].concat();
        let rows = manifest_rows(&[empty.clone(), ManifestPart::from(&part)]);
        assert_eq!(rows, [(Bytes::from_static(&[0; 8]), Bytes::from(row.clone()))]);
        assert_eq!(decode_manifest_row(&[0; 8], row.into()), Ok((0, 0, vec![empty, ManifestPart::from(&part)])));
    }

    fn part_with(number: u16) -> Part {
        Part { number, md5: [0; 16], length: 1, blob: None, modified: Timestamp(1), checksum: None }
    }

    /// The first `max` + 1 parts after the marker, of an upload with parts of these numbers.
    fn parts_after(numbers: &[u16], marker: u16, max: usize) -> Vec<Part> {
        numbers.iter().filter(|number| **number > marker).take(max + 1).map(|number| part_with(*number)).collect()
    }

    proptest! {
        #[test]
        fn a_page_is_a_slice_of_the_parts(numbers in btree_set(1..60_u16, 0..30), marker in 0..70_u16, max in 0..40_usize) {
            let numbers: Vec<_> = numbers.into_iter().collect();
            let page = parts_page(parts_after(&numbers, marker, max), max);
            let later: Vec<_> = numbers.into_iter().filter(|number| *number > marker).collect();
            let listed: Vec<_> = page.parts.iter().map(|part| part.number).collect();
            prop_assert_eq!(&listed[..], &later[..later.len().min(max)]);
            prop_assert_eq!(page.truncated, max > 0 && later.len() > max);
            prop_assert_eq!(page.next_marker, listed.last().copied().unwrap_or(0));
        }

        #[test]
        fn all_pages_together_are_all_parts(numbers in btree_set(1..60_u16, 0..30), max in 1..9_usize) {
            let numbers: Vec<_> = numbers.into_iter().collect();
            let (mut listed, mut marker) = (Vec::new(), 0);
            loop {
                let page = parts_page(parts_after(&numbers, marker, max), max);
                listed.extend(page.parts.iter().map(|part| part.number));
                marker = page.next_marker;
                if !page.truncated {
                    break;
                }
            }
            prop_assert_eq!(listed, numbers);
        }
    }
}
