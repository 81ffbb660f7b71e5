//! Builds the object of a completion from its part list, and validates the list. Pure.

use std::collections::BTreeMap;

use super::complete::{CompleteUpload, ListedPart};
use super::receive::DEFAULT_ALGORITHM;
use super::{Error, ObjectsConfig, Result};
use crate::rules::checksum::{ChecksumHasher, combine_full, composite};
use crate::rules::{Algorithm, Checksum, ChecksumKind, Etag, ManifestPart, Part};

/// The object a completion makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assembly {
    /// Its parts, in order.
    pub(super) parts: Vec<ManifestPart>,
    /// Bytes of all parts.
    pub(super) length: u64,
    /// Its entity tag.
    pub(super) etag: Etag,
    /// Its checksum, if the upload has one.
    pub(super) checksum: Option<Checksum>,
}

/// Digest of a part list: of numbers and entity tags, independent of their spelling.
pub(super) fn list_digest(parts: &[ListedPart]) -> [u8; 20] {
    let mut sha = ChecksumHasher::new(Algorithm::Sha1);
    for part in parts {
        let etag = Etag::parse(&part.etag).map_or_else(|| part.etag.clone(), |etag| etag.to_string());
        sha.update(&part.number.to_be_bytes());
        sha.update(&(etag.len() as u64).to_be_bytes());
        sha.update(etag.as_bytes());
    }
    let mut digest = [0; 20];
    digest.copy_from_slice(&sha.finish());
    digest
}

/// Checks a part list against the `stored` parts.
///
/// # Errors
/// In this order: `InvalidPartOrder`; `InvalidPart`; `EntityTooSmall`, `EntityTooLarge`; `InvalidRequest` for a wrong
/// checksum or length, `BadChecksum`.
pub(super) fn assemble(
    request: &CompleteUpload,
    stored: &BTreeMap<u16, Part>,
    checksum: Option<(Algorithm, ChecksumKind)>,
    config: &ObjectsConfig,
) -> Result<Assembly> {
    if request.parts.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(Error::InvalidPartOrder);
    }
    let parts: Vec<&Part> = request.parts.iter().map(|listed| stored_part(listed, stored)).collect::<Result<_>>()?;
    let all_but_last = parts.len().saturating_sub(1);
    if let Some(small) = parts[..all_but_last].iter().find(|part| part.length < config.part_bytes_min) {
        let Part { number, length: bytes, .. } = **small;
        return Err(Error::EntityTooSmall { number, etag: Etag::of_md5(small.md5), bytes, min: config.part_bytes_min });
    }
    let length = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.length));
    if length > config.object_bytes_max {
        return Err(Error::EntityTooLarge { bytes: length, max: config.object_bytes_max });
    }
    for (listed, part) in request.parts.iter().zip(&parts) {
        check_listed(listed, part, checksum)?;
    }
    check_kind(request.checksum_kind, checksum.map(|(_, kind)| kind))?;
    let checksum = match checksum {
        Some(which) => Some(object_checksum(which, &parts)?),
        None => default_checksum(&parts),
    };
    check_given(request.checksum.as_ref(), checksum.as_ref())?;
    if request.length.is_some_and(|given| given != length) {
        return Err(Error::InvalidRequest(format!("The parts have {length} bytes together, not what was announced.")));
    }
    let md5s: Vec<_> = parts.iter().map(|part| part.md5).collect();
    let parts = parts.into_iter().map(ManifestPart::from).collect();
    Ok(Assembly { parts, length, etag: Etag::of_parts(&md5s), checksum })
}

fn stored_part<'a>(listed: &ListedPart, stored: &'a BTreeMap<u16, Part>) -> Result<&'a Part> {
    let found = u16::try_from(listed.number).ok().and_then(|number| stored.get(&number));
    let etag = Etag::parse(&listed.etag);
    found.filter(|part| etag == Some(Etag::of_md5(part.md5))).ok_or_else(|| invalid_part(listed))
}

/// A listed checksum must be the part's. A composite checksum requires one for each part.
fn check_listed(listed: &ListedPart, part: &Part, checksum: Option<(Algorithm, ChecksumKind)>) -> Result<()> {
    let Some((algorithm, kind)) = checksum else { return Ok(()) };
    match &listed.checksum {
        Some(given) if given.algorithm == algorithm && part.checksum.as_ref() == Some(&given.digest) => Ok(()),
        Some(_) => Err(invalid_part(listed)),
        None if kind == ChecksumKind::FullObject => Ok(()),
        None => Err(Error::InvalidRequest(format!(
            "The {} checksum of part {} has to be listed, as this upload's checksum is made of them.",
            algorithm.name(),
            listed.number
        ))),
    }
}

/// The kind that a client names must be that of the upload.
fn check_kind(given: Option<ChecksumKind>, own: Option<ChecksumKind>) -> Result<()> {
    if given.is_none() || given == own {
        return Ok(());
    }
    let own = own.map_or("null", ChecksumKind::name);
    let message = format!(
        "The upload was created using the {own} checksum mode. The complete request must use the same checksum mode."
    );
    Err(Error::InvalidRequest(message))
}

/// The checksum of an object whose upload has none; `None` for parts of an older version, which stored none, and linked ones.
fn default_checksum(parts: &[&Part]) -> Option<Checksum> {
    let parts: Option<Vec<_>> = parts.iter().map(|part| Some((part.checksum.clone()?, part.length))).collect();
    combine_full(DEFAULT_ALGORITHM, &parts?)
}

fn object_checksum((algorithm, kind): (Algorithm, ChecksumKind), parts: &[&Part]) -> Result<Checksum> {
    let digests = parts.iter().map(|part| part.checksum.clone());
    let digests: Option<Vec<_>> = digests.collect();
    let made = digests.and_then(|digests| match kind {
        ChecksumKind::Composite => Some(composite(algorithm, &digests)),
        ChecksumKind::FullObject => {
            let lengths = parts.iter().map(|part| part.length);
            combine_full(algorithm, &digests.into_iter().zip(lengths).collect::<Vec<_>>())
        }
    });
    made.ok_or_else(|| larder_core::Error::Damaged("a part without the checksum of its upload".into()).into())
}

/// A checksum the client gives for the object must match; it may omit the part count.
fn check_given(given: Option<&Checksum>, own: Option<&Checksum>) -> Result<()> {
    let Some(given) = given else { return Ok(()) };
    let name = given.algorithm.name();
    let Some(own) = own.filter(|own| own.algorithm == given.algorithm) else {
        return Err(Error::InvalidRequest(format!("The upload was not begun with a {name} checksum.")));
    };
    let same = given.digest == own.digest && (given.parts.is_none() || given.parts == own.parts);
    if same { Ok(()) } else { Err(Error::BadChecksum(name)) }
}

fn invalid_part(listed: &ListedPart) -> Error {
    Error::InvalidPart { number: listed.number, etag: listed.etag.clone() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use larder_rows::Timestamp;
    use larder_rows::content::BlobId;

    use super::*;
    use crate::put::WriteConditions;

    fn config() -> ObjectsConfig {
        ObjectsConfig { part_bytes_min: 10, object_bytes_max: 100, ..ObjectsConfig::default() }
    }

    fn part(number: u16, length: u64) -> Part {
        let checksum = Some(Bytes::copy_from_slice(&[number as u8; 4]));
        Part {
            number,
            md5: [number as u8; 16],
            length,
            blob: Some(BlobId([number as u8; 24])),
            modified: Timestamp(1),
            checksum,
        }
    }

    fn stored(parts: &[Part]) -> BTreeMap<u16, Part> {
        parts.iter().map(|part| (part.number, part.clone())).collect()
    }

    fn list(parts: &[(u32, u8)]) -> CompleteUpload {
        let listed = |(number, md5): &(u32, u8)| ListedPart {
            number: *number,
            etag: Etag::of_md5([*md5; 16]).to_string(),
            checksum: None,
        };
        CompleteUpload {
            bucket: "b".into(),
            key: Bytes::new(),
            upload: String::new(),
            parts: parts.iter().map(listed).collect(),
            conditions: WriteConditions::default(),
            checksum: None,
            checksum_kind: None,
            length: None,
        }
    }

    #[test]
    fn lists_are_checked_against_the_stored_parts() {
        let there = stored(&[part(1, 10), part(2, 9), part(3, 50), part(4, 60)]);
        let of = |parts: &[(u32, u8)]| assemble(&list(parts), &there, None, &config());
        assert!(matches!(of(&[(2, 2), (1, 1)]), Err(Error::InvalidPartOrder)));
        assert!(matches!(of(&[(1, 1), (1, 1)]), Err(Error::InvalidPartOrder)));
        for foreign in [(1, 2), (5, 5), (70_000, 1), (65_537, 1)] {
            assert!(matches!(of(&[foreign]), Err(Error::InvalidPart { number, .. }) if number == foreign.0));
        }
        assert!(matches!(of(&[(1, 1), (2, 2), (3, 3)]), Err(Error::EntityTooSmall { number: 2, bytes: 9, .. })));
        assert!(matches!(of(&[(3, 3), (4, 4)]), Err(Error::EntityTooLarge { bytes: 110, max: 100 })));
        let made = of(&[(1, 1), (2, 2)]).unwrap();
        assert_eq!((made.length, made.checksum, made.parts.len()), (19, None, 2));
        assert_eq!(made.etag, Etag::of_parts(&[[1; 16], [2; 16]]));
    }

    #[test]
    fn entity_tags_match_in_any_spelling() {
        let there = stored(&[part(1, 10)]);
        let plain = list(&[(1, 1)]);
        for spelled in [plain.parts[0].etag.to_uppercase(), format!("\"{}\"", plain.parts[0].etag)] {
            let mut request = plain.clone();
            request.parts[0].etag = spelled;
            assert!(assemble(&request, &there, None, &config()).is_ok());
            assert_eq!(list_digest(&request.parts), list_digest(&plain.parts));
        }
        let mut wrong = plain.clone();
        wrong.parts[0].etag = "x".into();
        assert!(matches!(assemble(&wrong, &there, None, &config()), Err(Error::InvalidPart { .. })));
        assert_ne!(list_digest(&wrong.parts), list_digest(&plain.parts));
        assert_ne!(list_digest(&list(&[(1, 1), (2, 2)]).parts), list_digest(&plain.parts));
    }

    #[test]
    fn listed_checksums_must_be_those_of_the_parts() {
        let there = stored(&[part(1, 10)]);
        let mut request = list(&[(1, 1)]);
        let of = |request: &CompleteUpload, kind| assemble(request, &there, Some((Algorithm::Crc32, kind)), &config());
        assert!(of(&request, ChecksumKind::FullObject).is_ok());
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::InvalidRequest(_))), "each must be listed");
        let own = Checksum::full(Algorithm::Crc32, Bytes::from_static(&[1; 4]));
        request.parts[0].checksum = Some(own.clone());
        let made = of(&request, ChecksumKind::Composite).unwrap().checksum.unwrap();
        assert_eq!(made.parts, Some(1));
        request.checksum = Some(Checksum { parts: None, ..made.clone() });
        assert!(of(&request, ChecksumKind::Composite).is_ok(), "the count may be left out");
        request.checksum = Some(Checksum { parts: Some(2), ..made });
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::BadChecksum("CRC32"))));
        request.checksum = Some(Checksum { algorithm: Algorithm::Crc32c, ..own.clone() });
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::InvalidRequest(_))));
        request.checksum = None;
        request.parts[0].checksum = Some(Checksum { digest: Bytes::from_static(b"1234"), ..own });
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::InvalidPart { .. })));
    }
}
