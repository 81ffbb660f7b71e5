//! Completing an upload.
//!
//! ```text
//! open ─> completing(version) ─> manifest ─> head of the key ─> done (kept for a day)
//! ```
//! A request or sweeper that finds an upload *completing* for too long takes it back: it marks the upload *reopening*,
//! fences the key's head, looks for the version, and sets the upload to done or open. The completing writer reads the key's
//! head, then its upload, then commits against that head: so one of the two gives way.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_rows::limits::BATCH_BYTES_MAX;
use larder_rows::{Batch, Change, Row, changes_bytes};
use larder_store::Partition;
use tokio::time::Instant;

use super::commit::ObjectLocation;
use super::encryption::EncryptionChoice;
use super::events::{ChangeCause, WriteTerms};
use super::put::{WriteConditions, conditional_conflict};
use super::receive::DEFAULT_ALGORITHM;
use super::uploads::{UploadHead, Uploads, done_state};
use super::{Caller, Error, ObjectsConfig, Result};
use crate::rules::checksum::{ChecksumHasher, combine_full, composite};
use crate::rules::encryption::EncryptionKind;
use crate::rules::notification::EventAction;
use crate::rules::part::manifest_rows;
use crate::rules::{
    Algorithm, Bucket, Checksum, ChecksumKind, Etag, ManifestOwner, ManifestPart, Object, ObjectBody, ObjectLock, Part,
    Storage, UploadState, Version, VersionId,
};

/// A part in the list of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number as given, at least 1.
    pub number: u32,
    /// Its entity tag as given, without quotes.
    pub etag: String,
    /// Its checksum, if given.
    pub checksum: Option<Checksum>,
}

/// A request to complete an upload.
#[derive(Debug, Clone)]
pub struct CompleteUpload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: Bytes,
    /// The upload id, as given.
    pub upload: String,
    /// The parts; at least one.
    pub parts: Vec<ListedPart>,
    /// Conditions on the current version.
    pub conditions: WriteConditions,
    /// The object's checksum, if the client gives one.
    pub checksum: Option<Checksum>,
    /// The kind of the upload's checksums, if the client gives it.
    pub checksum_kind: Option<ChecksumKind>,
    /// The object's length in bytes, if the client gives one.
    pub length: Option<u64>,
    /// The encryption that the request names, if any: then it must be the upload's.
    pub encryption: EncryptionChoice,
}

/// A completed upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedUpload {
    /// The object's entity tag.
    pub etag: Etag,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
    /// Its version id for clients, in a bucket with versioning.
    pub version_id: Option<String>,
    /// How it is encrypted.
    pub encryption: Option<EncryptionKind>,
}

impl Uploads {
    /// Makes an object of parts. For a day a repeat with the same list gets the same answer, and one with another list
    /// `NoSuchUpload`.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `InvalidPartOrder`, `InvalidPart`, `EntityTooSmall`, `EntityTooLarge`,
    /// `QuotaExceeded`, `BadChecksum`, `InvalidRequest` (length, checksums), `PreconditionFailed`, `NoSuchKey` (`If-Match` without an
    /// object), `ConditionalConflict`: the upload stays open. `OperationAborted` while another completion runs until the deadline.
    pub async fn complete(&self, caller: &Caller, request: CompleteUpload) -> Result<CompletedUpload> {
        let bucket = self.buckets.find(&request.bucket).await?;
        let head = self.heads.find_upload(&bucket, &request.key, &request.upload).await;
        let kind = head.as_ref().ok().and_then(|head| head.upload.encryption_kind());
        // Also where there is no such upload: a caller without permission does not learn that.
        let caller = caller.with_encryption(kind);
        let bucket =
            self.buckets.find_for_put(&caller, &request.bucket, &request.key, &[], &ObjectLock::default()).await?;
        let mut head = head?;
        let decides = !request.conditions.is_empty();
        self.heads.bring_before_change(&bucket, &request.key, decides).await?;
        let cause = ChangeCause::request(EventAction::Complete, &caller);
        let list = list_digest(&request.parts);
        let deadline = Instant::now() + self.gateway.context().config.timeout;
        loop {
            let id = head.id;
            let settled = self.settle(head, deadline).await?.ok_or(Error::NoSuchUpload)?;
            if settled.upload.state != UploadState::Open {
                return completed_answer(&settled.upload.state, &list, kind);
            }
            if let Some(state) = self.complete_open(&bucket, settled, &request, list, cause).await? {
                return completed_answer(&state, &list, kind);
            }
            if Instant::now() >= deadline {
                return Err(Error::OperationAborted);
            }
            // Race: another request changed the upload first; its end state may answer this one too.
            head = self.heads.read_upload(id).await?.ok_or(Error::NoSuchUpload)?;
        }
    }

    /// Completes an upload read as open, and returns its end state; `None`: another request changed the upload first.
    async fn complete_open(
        &self,
        bucket: &Arc<Bucket>,
        open: UploadHead,
        request: &CompleteUpload,
        list: [u8; 20],
        cause: ChangeCause<'_>,
    ) -> Result<Option<UploadState>> {
        // AWS asks for no key here, but a wrong one is refused.
        if request.encryption != EncryptionChoice::BucketDefault {
            self.keys.upload_key(open.upload.encryption.as_ref(), request.encryption)?;
        }
        let stored = self.heads.all_parts(open.id).await?;
        let assembly = assemble(request, &stored, open.upload.checksum, &self.config)?;
        // Bound: up to 10,000 parts; the commit below needs only those of the list.
        drop(stored);
        // The bytes are those of the parts, which have their room.
        let admission = self.quotas.admit(bucket, &request.key, Storage::object(0)).await?;
        let version = VersionId::new(self.gateway.issuer().issue().await?, self.gateway.context().ports.actor);
        let begun = UploadState::Completing { version, list, since: self.gateway.context().now() };
        // Crash: from here on the upload names its version, so a recovery can look for it.
        let Some(completing) = self.heads.cas_upload_state(&open, begun).await? else { return Ok(None) };
        let location = ObjectLocation::new(bucket, &request.key);
        let terms = WriteTerms { conditions: &request.conditions, cause };
        match self.commit_upload(&location, &completing, version, &assembly, terms).await {
            Ok(Some(committed_version)) => {
                admission.written();
                Ok(Some(self.finish_upload(&completing, done_state(&committed_version, list)).await))
            }
            Ok(None) => self.resolve_failed_completion(&completing, version).await,
            Err(error) => {
                // Race: the commit may have happened in spite of the error. The fence finds out.
                self.resolve_failed_completion(&completing, version)
                    .await
                    .unwrap_or(None)
                    .map_or(Err(error), |state| Ok(Some(state)))
            }
        }
    }

    /// Makes the version current; `None`: another request has taken the upload back, or the version is now older than
    /// one that stays.
    async fn commit_upload(
        &self,
        location: &ObjectLocation,
        completing: &UploadHead,
        id: VersionId,
        assembly: &Assembly,
        terms: WriteTerms<'_>,
    ) -> Result<Option<Version>> {
        let WriteTerms { conditions, cause } = terms;
        // Crash: the manifest precedes the head that references it; otherwise a reader finds no bytes [invariant 60].
        self.write_manifest(completing, id, &assembly.parts).await?;
        // No blob is checked for a mark: sweepers keep the blobs of an upload that is alive.
        let mut cas = self.heads.cas_loop(location, None);
        loop {
            let attempt = cas.next_attempt().await.map_err(|error| conditional_conflict(error, conditions))?;
            // Race: head before upload. A request that takes the upload back marks it and then fences that
            // head, so a stale read here makes the commit conflict [invariant 59].
            if self.heads.read_upload(completing.id).await?.as_ref() != Some(completing) {
                return Ok(None);
            }
            terms.check(&attempt)?;
            let object = completed_object(completing, id, assembly);
            let version = Version { id, ..attempt.new_version(completing.upload.owner.clone(), Some(object)) };
            // Race: a put overtook this completion, whose older id must not become current after it [invariant 99].
            if attempt.newest_remaining(&version).await?.is_some_and(|newest| newest.stamp() >= id.stamp()) {
                return Ok(None);
            }
            let next = attempt.add(version.clone()).await?;
            if attempt.commit(next, &cause.event(Some(&version))).await? {
                return Ok(Some(version));
            }
        }
    }

    /// Writes the manifest of a version that no head references yet, with its owner row.
    async fn write_manifest(&self, head: &UploadHead, version: VersionId, parts: &[ManifestPart]) -> Result<()> {
        let (store, stamp) = (&self.gateway.context().ports.store, self.gateway.issuer().issue().await?);
        let bytes_max = store.limits().batch_max.min(BATCH_BYTES_MAX) / 2;
        let owner = ManifestOwner { bucket: head.upload.bucket, upload: head.id, key: head.upload.key.clone() };
        let owner = Row { name: Bytes::new(), value: owner.encode(), stamp, expires: None };
        // Crash: each batch has the owner row, so the sweeper can attribute rows that arrive after a removal.
        let mut changes = vec![Change::Put(owner.clone())];
        let write = async |changes| {
            store.apply(Batch::single(Partition::manifest(version), changes), &self.heads.options()).await
        };
        for (name, value) in manifest_rows(parts) {
            if changes_bytes(&changes) + value.len() > bytes_max {
                write(std::mem::replace(&mut changes, vec![Change::Put(owner.clone())])).await?;
            }
            changes.push(Change::Put(Row { name, value, stamp, expires: None }));
        }
        Ok(write(changes).await?)
    }

    /// Marks an upload done after its version was committed. The next request on the upload retries what fails here.
    async fn finish_upload(&self, completing: &UploadHead, state: UploadState) -> UploadState {
        let ended = async {
            if let Some(ended) = self.heads.cas_upload_state(completing, state.clone()).await? {
                return self.remove_unused_parts(&ended, self.gateway.blobs().releases.proof_of_answered_write()).await;
            }
            // A writer that replaced the version has already ended the upload.
            match self.heads.read_upload(completing.id).await? {
                Some(ended) => self.remove_unused_parts(&ended, None).await,
                None => Ok(()),
            }
        };
        let ended: Result<()> = ended.await;
        if let Err(error) = ended {
            tracing::debug!(%error, "cleanup after a completed upload failed; the sweeper retries");
        }
        state
    }

    /// Opens the upload again after a failed commit; returns its end state if the commit had happened.
    async fn resolve_failed_completion(
        &self,
        completing: &UploadHead,
        version: VersionId,
    ) -> Result<Option<UploadState>> {
        let settled = self.resolve_completion(completing).await?;
        match settled.map(|head| head.upload.state) {
            Some(state @ UploadState::Done { version: stored_version, .. }) if stored_version == version => {
                Ok(Some(state))
            }
            // Another request is resolving the same completion.
            Some(UploadState::Reopening { version: stored_version, .. }) if stored_version == version => Ok(None),
            _ => {
                // Race: an earlier recovery may have run before the manifest was written.
                self.clear_manifest(version).await?;
                Ok(None)
            }
        }
    }
}

/// The answer of a completed upload, for the first request and its repeats.
fn completed_answer(
    state: &UploadState,
    asked: &[u8; 20],
    encryption: Option<EncryptionKind>,
) -> Result<CompletedUpload> {
    match state {
        UploadState::Done { version, null, list, etag, checksum } if list == asked => {
            // AWS names a version, not that it is the null one.
            let version_id = (!null).then(|| version.text());
            Ok(CompletedUpload { etag: *etag, checksum: checksum.clone(), version_id, encryption })
        }
        _ => Err(Error::NoSuchUpload),
    }
}

fn completed_object(head: &UploadHead, manifest: VersionId, assembly: &Assembly) -> Object {
    let upload = &head.upload;
    // Part numbers end at 10,000.
    let count = u32::try_from(assembly.parts.len()).unwrap_or(u32::MAX);
    Object {
        body: ObjectBody::Parts { manifest, count, length: assembly.length },
        etag: assembly.etag,
        headers: upload.headers.clone(),
        meta: upload.meta.clone(),
        tags: upload.tags.clone(),
        acl: upload.acl.clone(),
        checksum: assembly.checksum.clone(),
        upload: Some(head.id),
        encryption: upload.encryption,
        lock: upload.lock,
    }
}

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
        return Err(Error::EntityTooSmall {
            number,
            etag: Etag::from_md5(small.md5),
            bytes,
            min: config.part_bytes_min,
        });
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
        Some((algorithm, kind)) => Some(object_checksum(algorithm, kind, &parts)?),
        None => default_checksum(&parts),
    };
    check_given(request.checksum.as_ref(), checksum.as_ref())?;
    if let Some(given) = request.length.filter(|given| *given != length) {
        return Err(Error::InvalidRequest(format!(
            "The provided 'x-amz-mp-object-size' header value {given} does not match what was computed: {length}"
        )));
    }
    let md5s: Vec<_> = parts.iter().map(|part| part.md5).collect();
    let parts = parts.into_iter().map(ManifestPart::from).collect();
    Ok(Assembly { parts, length, etag: Etag::from_parts(&md5s), checksum })
}

fn stored_part<'a>(listed: &ListedPart, stored: &'a BTreeMap<u16, Part>) -> Result<&'a Part> {
    let part = u16::try_from(listed.number).ok().and_then(|number| stored.get(&number));
    let etag = Etag::parse(&listed.etag);
    part.filter(|part| etag == Some(Etag::from_md5(part.md5))).ok_or_else(|| invalid_part(listed))
}

/// A listed checksum must be the part's. A composite checksum requires one for each part.
fn check_listed(listed: &ListedPart, part: &Part, checksum: Option<(Algorithm, ChecksumKind)>) -> Result<()> {
    let Some((algorithm, kind)) = checksum else {
        // Of an upload without an algorithm each part has the default one's.
        let is_other = |given: &&Checksum| {
            given.algorithm == DEFAULT_ALGORITHM && part.checksum.as_ref().is_some_and(|stored| *stored != given.digest)
        };
        return listed.checksum.as_ref().filter(is_other).map_or(Ok(()), |_| Err(invalid_part(listed)));
    };
    match &listed.checksum {
        Some(given) if given.algorithm == algorithm && part.checksum.as_ref() == Some(&given.digest) => Ok(()),
        Some(_) => Err(invalid_part(listed)),
        None if kind == ChecksumKind::FullObject => Ok(()),
        None => Err(Error::InvalidRequest(format!(
            "The upload was created using a {} checksum. The complete request must include the checksum for each part. \
             It was missing for part {} in the request.",
            algorithm.name().to_lowercase(),
            listed.number
        ))),
    }
}

/// The kind that a client names must be that of the upload.
fn check_kind(given: Option<ChecksumKind>, kind: Option<ChecksumKind>) -> Result<()> {
    if given.is_none() || given == kind {
        return Ok(());
    }
    let kind = kind.map_or("null", ChecksumKind::name);
    let message = format!(
        "The upload was created using the {kind} checksum mode. The complete request must use the same checksum mode."
    );
    Err(Error::InvalidRequest(message))
}

/// The checksum of an object whose upload has none; `None` for parts of an older version, which stored none, and linked ones.
fn default_checksum(parts: &[&Part]) -> Option<Checksum> {
    let parts: Option<Vec<_>> = parts.iter().map(|part| Some((part.checksum.clone()?, part.length))).collect();
    combine_full(DEFAULT_ALGORITHM, &parts?)
}

fn object_checksum(algorithm: Algorithm, kind: ChecksumKind, parts: &[&Part]) -> Result<Checksum> {
    let digests = parts.iter().map(|part| part.checksum.clone());
    let digests: Option<Vec<_>> = digests.collect();
    let checksum = digests.and_then(|digests| match kind {
        ChecksumKind::Composite => Some(composite(algorithm, &digests)),
        ChecksumKind::FullObject => {
            let lengths = parts.iter().map(|part| part.length);
            combine_full(algorithm, &digests.into_iter().zip(lengths).collect::<Vec<_>>())
        }
    });
    checksum.ok_or_else(|| larder_core::Error::Damaged("a part without the checksum of its upload".into()).into())
}

/// A checksum the client gives for the object must match; it may omit the part count.
fn check_given(given: Option<&Checksum>, checksum: Option<&Checksum>) -> Result<()> {
    let Some(given) = given else { return Ok(()) };
    let name = given.algorithm.name();
    let Some(checksum) = checksum.filter(|checksum| checksum.algorithm == given.algorithm) else {
        return Err(Error::InvalidRequest(format!("The upload was not begun with a {name} checksum.")));
    };
    let same = given.digest == checksum.digest && (given.parts.is_none() || given.parts == checksum.parts);
    if same { Ok(()) } else { Err(Error::BadChecksum(name)) }
}

fn invalid_part(listed: &ListedPart) -> Error {
    Error::InvalidPart { number: listed.number, etag: listed.etag.clone() }
}

#[cfg(test)]
mod assemble_tests {
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
            etag: Etag::from_md5([*md5; 16]).to_string(),
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
            encryption: EncryptionChoice::default(),
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
        let object = of(&[(1, 1), (2, 2)]).unwrap();
        assert_eq!((object.length, object.checksum, object.parts.len()), (19, None, 2));
        assert_eq!(object.etag, Etag::from_parts(&[[1; 16], [2; 16]]));
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
        let part_checksum = Checksum::full(Algorithm::Crc32, Bytes::from_static(&[1; 4]));
        request.parts[0].checksum = Some(part_checksum.clone());
        let checksum = of(&request, ChecksumKind::Composite).unwrap().checksum.unwrap();
        assert_eq!(checksum.parts, Some(1));
        request.checksum = Some(Checksum { parts: None, ..checksum.clone() });
        assert!(of(&request, ChecksumKind::Composite).is_ok(), "the count may be left out");
        request.checksum = Some(Checksum { parts: Some(2), ..checksum });
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::BadChecksum("CRC32"))));
        request.checksum = Some(Checksum { algorithm: Algorithm::Crc32c, ..part_checksum.clone() });
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::InvalidRequest(_))));
        request.checksum = None;
        request.parts[0].checksum = Some(Checksum { digest: Bytes::from_static(b"1234"), ..part_checksum });
        assert!(matches!(of(&request, ChecksumKind::Composite), Err(Error::InvalidPart { .. })));
    }
}
