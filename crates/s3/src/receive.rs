//! Receives a body: one pass computes the digests and stores the bytes, small bodies in their row, larger ones in a blob. A
//! request holds one piece of its body in memory, after the first [`larder_store::EngineLimits::inline_max`] bytes.

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_core::body::{ByteStream, collect, next};
use larder_core::metrics::Event;
use larder_rows::content::BlobId;
use larder_rows::limits::S3_META_BYTES_MAX;
use larder_store::{BlobOwner, BlobWriter, Durability, Partition};

use super::commit::ObjectLocation;
use super::{Error, Result};
use crate::acl_choice::AclChoice;
use crate::encryption::{BytesKey, EncryptionChoice};
use crate::rules::checksum::{ChecksumHasher, Md5Hasher};
use crate::rules::{Algorithm, Checksum, ObjectBody, ObjectLock, SystemHeader, Tag, UploadId, VersionId};
use larder_encryption::sealed_body::{BodySealer, opened_length, sealed_length};

/// The checksum algorithm of an object when the client names none; an upload without one makes its object's of those of its parts.
pub(super) const DEFAULT_ALGORITHM: Algorithm = Algorithm::Crc64Nvme;

/// A complete body that matches its announced digests.
pub(super) struct VerifiedBody {
    /// The bytes, or the blob that holds them.
    pub(super) body: ObjectBody,
    /// Their length.
    pub(super) length: u64,
    /// Their digest in an entity tag: their MD5, or a keyed hash where a customer's key hides it.
    pub(super) tag: [u8; 16],
    /// Their checksum.
    pub(super) checksum: Checksum,
    /// That of [`DEFAULT_ALGORITHM`], where the destination asks for it.
    pub(super) default_digest: Option<Bytes>,
    /// Keeps sweepers from the blob: hold it until the row that references the blob is written.
    pub(super) lease: Option<Box<dyn Send + Sync>>,
}

impl VerifiedBody {
    /// The blob, if there is one.
    pub(super) fn blob(&self) -> Option<BlobId> {
        match self.body {
            ObjectBody::Blob { id, .. } => Some(id),
            _ => None,
        }
    }
}

/// Owner and id of the blob for a large body.
pub(super) struct BlobDestination {
    /// The partition of the key, which owns the blob.
    partition: Partition,
    /// The owner's row: 16 unique bytes, or for a part its upload's id and its number.
    row: Bytes,
    /// The blob's id: unique, even among gateways whose clocks show the same time.
    id: BlobId,
    /// Most bytes that stay in the row.
    inline_max: usize,
    /// Whether [`DEFAULT_ALGORITHM`] is computed beside another checksum.
    needs_default: bool,
    /// Seals the bytes; `None`: they are stored as they come.
    key: Option<BytesKey>,
}

impl BlobDestination {
    /// The same, with bytes sealed by this key.
    pub(super) fn sealed(self, key: Option<BytesKey>) -> Self {
        Self { key, ..self }
    }

    /// Most bytes of a body that stay in the row.
    fn inline_max(&self) -> usize {
        let max = self.inline_max as u64;
        let max = if self.key.is_some() { opened_length(max) } else { max };
        usize::try_from(max).unwrap_or(usize::MAX)
    }
}

/// Receives bodies into rows and blobs.
pub(super) struct BodyReceiver {
    pub(super) gateway: Arc<Core>,
    /// Largest body in bytes.
    pub(super) bytes_max: u64,
}

impl BodyReceiver {
    /// The destination of the body of an object at `location`.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn object_destination(&self, location: &ObjectLocation) -> Result<BlobDestination> {
        let stamp = self.gateway.issuer().issue().await?;
        // Race: two gateways may issue one stamp; the actor keeps their blob ids apart [invariant 100].
        let row = Bytes::copy_from_slice(&VersionId::new(stamp, self.gateway.context().ports.actor).0);
        let inline_max = self.gateway.context().ports.store.limits().inline_max;
        let partition = location.partition();
        let id = BlobId::for_row(&partition.key, &row, stamp);
        Ok(BlobDestination { partition, row, id, inline_max, needs_default: false, key: None })
    }

    /// The destination of a part of an upload to `location`: a blob of its own, however small; none for an empty part. An upload
    /// without a checksum `needs_default`.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn part_destination(
        &self,
        location: &ObjectLocation,
        upload: UploadId,
        number: u16,
        needs_default: bool,
    ) -> Result<BlobDestination> {
        let stamp = self.gateway.issuer().issue().await?;
        let row: Bytes = [&upload.0[..], &number.to_be_bytes()].concat().into();
        let partition = location.partition();
        // Race: two gateways may store this part in one microsecond; the actor keeps the ids apart [invariant 100].
        let id = BlobId::for_row(
            &partition.key,
            &[&row[..], &self.gateway.context().ports.actor.0.to_be_bytes()].concat(),
            stamp,
        );
        Ok(BlobDestination { partition, row, id, inline_max: 0, needs_default, key: None })
    }

    /// Receives a body. A mismatch with its announced digests leaves no bytes.
    ///
    /// # Errors
    /// `EntityTooLarge`, `BrokenBody`, `BadDigest`, `BadChecksum`, `InvalidRequest` for a malformed trailing checksum;
    /// `DiskFull`.
    pub(super) async fn receive(&self, upload_body: UploadBody, to: BlobDestination) -> Result<VerifiedBody> {
        let UploadBody { mut stream, length: announced, md5, checksum } = upload_body;
        // Bound: a body that is announced too large is refused before it arrives.
        self.check_length(announced.unwrap_or(0))?;
        let mut sums = Sums::new(&checksum, to.needs_default);
        let inline_max = to.inline_max();
        let first = collect(stream.as_mut(), inline_max).await.map_err(broken)?;
        self.count(&mut sums, &first)?;
        if first.len() <= inline_max {
            let length = sums.length;
            let VerifiedSums { md5, checksum, default_digest } =
                sums.verify(announced, md5, &checksum, stream.as_mut())?;
            let body = ObjectBody::Inline(seal_inline(first, to.key.as_ref())?);
            let tag = body_tag(to.key.as_ref(), &[], md5)?;
            return Ok(VerifiedBody { body, length, tag, checksum, default_digest, lease: None });
        }
        let (id, key) = (to.id, to.key);
        let owner = BlobOwner { partition: to.partition, row: to.row };
        // Crash: a writer dropped before `finish` leaves no blob.
        let mut writer = self.gateway.context().ports.blobs.create(id, owner).await?;
        let mut sealer = key.map(|key| Ok::<_, Error>(BodySealer::new(key.cipher(&id.0)?))).transpose()?;
        let announced_length = announced.unwrap_or(first.len() as u64);
        writer.announce(if key.is_some() { sealed_length(announced_length) } else { announced_length }).await?;
        write_piece(&mut *writer, &mut sealer, first).await?;
        while let Some(piece) = next(stream.as_mut()).await.map_err(broken)? {
            self.count(&mut sums, &piece)?;
            write_piece(&mut *writer, &mut sealer, piece).await?;
        }
        if let Some(sealer) = sealer {
            writer.write(sealer.finish()?).await?;
        }
        let length = sums.length;
        // Verified before the blob is finished, so a body that does not match leaves no bytes.
        let VerifiedSums { md5, checksum, default_digest } = sums.verify(announced, md5, &checksum, stream.as_mut())?;
        let durability = if self.gateway.context().config.durable { Durability::Disk } else { Durability::Buffered };
        // Crash: the bytes are as durable as the head that will reference them.
        let lease = writer.finish(durability).await?;
        self.gateway.context().metrics.count_event(Event::BlobWritten);
        let body = ObjectBody::Blob { id, length };
        let tag = body_tag(key.as_ref(), &id.0, md5)?;
        Ok(VerifiedBody { body, length, tag, checksum, default_digest, lease: Some(lease) })
    }

    /// The admission of a received body; a refused one leaves no bytes.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn keep_or_discard<T>(&self, admission: Result<T>, received: &VerifiedBody) -> Result<T> {
        if let Err(error) = &admission {
            self.discard(error, received.blob()).await;
        }
        admission
    }

    /// After a failed change: removes the blob it brought if no head can reference it any more. If the outcome is
    /// unknown, the sweeper decides.
    pub(super) async fn discard(&self, error: &Error, blob: Option<BlobId>) {
        let unknown = matches!(error, Error::Gateway(failed) if failed.is_outcome_unknown());
        self.remove_unnamed(blob.filter(|_| !unknown)).await;
    }

    /// Removes a blob that no head references or will.
    pub(super) async fn remove_unnamed(&self, blob: Option<BlobId>) {
        if let Some(blob) = blob {
            self.gateway.blobs().releases.remove_unnamed(blob).await;
        }
    }

    fn count(&self, sums: &mut Sums, piece: &[u8]) -> Result<()> {
        sums.update(piece);
        self.check_length(sums.length)
    }

    fn check_length(&self, bytes: u64) -> Result<()> {
        let max = self.bytes_max;
        if bytes > max { Err(Error::EntityTooLarge { bytes, max }) } else { Ok(()) }
    }
}

/// Writes a piece, or the chunks that are complete with it.
async fn write_piece(writer: &mut dyn BlobWriter, sealer: &mut Option<BodySealer>, piece: Bytes) -> Result<()> {
    let Some(sealer) = sealer else { return Ok(writer.write(piece).await?) };
    for chunk in sealer.push(&piece)? {
        writer.write(chunk).await?;
    }
    Ok(())
}

/// The stored form of bytes in a row.
fn seal_inline(bytes: Bytes, key: Option<&BytesKey>) -> Result<Bytes> {
    let Some(key) = key else { return Ok(bytes) };
    let mut sealer = BodySealer::new(key.cipher(&[])?);
    let mut chunks = sealer.push(&bytes)?;
    chunks.push(sealer.finish()?);
    Ok(chunks.concat().into())
}

/// The digest in the entity tag of a body.
fn body_tag(key: Option<&BytesKey>, body: &[u8], md5: [u8; 16]) -> Result<[u8; 16]> {
    key.map_or(Ok(md5), |key| key.etag(body, md5))
}

/// Digests and length of a body while it arrives.
struct Sums {
    length: u64,
    md5: Md5Hasher,
    hasher: ChecksumHasher,
    /// Of [`DEFAULT_ALGORITHM`], where it is needed and `hasher` is another one.
    default: Option<ChecksumHasher>,
    needs_default: bool,
}

/// Digests of a body that are those of the client.
struct VerifiedSums {
    md5: [u8; 16],
    checksum: Checksum,
    default_digest: Option<Bytes>,
}

impl Sums {
    fn new(requested_checksum: &ChecksumWanted, needs_default: bool) -> Self {
        let algorithm = match requested_checksum {
            ChecksumWanted::Default => DEFAULT_ALGORITHM,
            ChecksumWanted::Compute(algorithm) | ChecksumWanted::Trailing(algorithm) => *algorithm,
            ChecksumWanted::Given(checksum) => checksum.algorithm,
        };
        let default = (needs_default && algorithm != DEFAULT_ALGORITHM).then(|| ChecksumHasher::new(DEFAULT_ALGORITHM));
        let hasher = ChecksumHasher::new(algorithm);
        Self { length: 0, md5: Md5Hasher::default(), hasher, default, needs_default }
    }

    fn update(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        self.md5.update(piece);
        self.hasher.update(piece);
        if let Some(default) = &mut self.default {
            default.update(piece);
        }
    }

    /// The digests, if they and the length match the client's.
    fn verify(
        self,
        announced: Option<u64>,
        md5: Option<[u8; 16]>,
        requested_checksum: &ChecksumWanted,
        stream: &mut dyn ByteStream,
    ) -> Result<VerifiedSums> {
        if let Some(announced) = announced.filter(|announced| *announced != self.length) {
            return Err(Error::BrokenBody(format!("{} bytes came, {announced} were announced", self.length)));
        }
        let computed_md5 = self.md5.finish();
        let checksum = Checksum::full(self.hasher.algorithm(), self.hasher.finish());
        let default_digest = self.default.map(ChecksumHasher::finish).or_else(|| Some(checksum.digest.clone()));
        if md5.is_some_and(|md5| md5 != computed_md5) {
            return Err(Error::BadDigest);
        }
        let given = match requested_checksum {
            ChecksumWanted::Given(given) => Some(given.clone()),
            ChecksumWanted::Trailing(algorithm) => Some(trailing(*algorithm, stream)?),
            ChecksumWanted::Default | ChecksumWanted::Compute(_) => None,
        };
        if given.is_some_and(|given| given != checksum) {
            return Err(Error::BadChecksum(checksum.algorithm.name()));
        }
        Ok(VerifiedSums { md5: computed_md5, checksum, default_digest: default_digest.filter(|_| self.needs_default) })
    }
}

/// The checksum in a body's trailer.
fn trailing(algorithm: Algorithm, stream: &mut dyn ByteStream) -> Result<Checksum> {
    let header = algorithm.header();
    let value = stream.trailing().filter(|(name, _)| name.eq_ignore_ascii_case(header)).map(|(_, value)| value);
    let value = value.ok_or_else(|| Error::BrokenBody(format!("no {header} came behind the body")))?;
    let text = std::str::from_utf8(&value).ok();
    let given = text.and_then(|text| Checksum::parse(algorithm, text)).filter(|given| given.parts.is_none());
    given.ok_or_else(|| Error::InvalidRequest(format!("The value of {header} is not a checksum.")))
}

/// Maps an interrupted body to an error of the S3 side.
fn broken(error: larder_core::Error) -> Error {
    match error {
        larder_core::Error::BrokenBody(why) => Error::BrokenBody(why),
        other => other.into(),
    }
}

/// A request body, and what the client announces of it.
pub struct UploadBody {
    /// The bytes.
    pub stream: Box<dyn ByteStream>,
    /// Announced length in bytes.
    pub length: Option<u64>,
    /// Their MD5, if the client gives it.
    pub md5: Option<[u8; 16]>,
    /// Their checksum.
    pub checksum: ChecksumWanted,
}

/// The checksum of a request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChecksumWanted {
    /// Not given: an object gets CRC64NVME, a part the algorithm of its upload.
    Default,
    /// Compute this one.
    Compute(Algorithm),
    /// The body must have this one.
    Given(Checksum),
    /// In a trailer of the body, see [`ByteStream::trailing`], in this algorithm.
    Trailing(Algorithm),
}

/// The metadata of an object in a request.
#[derive(Debug, Clone, Default)]
pub struct ObjectMetadata {
    /// System headers.
    pub headers: Vec<(SystemHeader, Bytes)>,
    /// User metadata: names in lower case, without the prefix of their headers.
    pub meta: Vec<(String, Bytes)>,
    /// Tags, checked by the edge.
    pub tags: Vec<Tag>,
    /// The ACL.
    pub acl: AclChoice,
    /// The encryption.
    pub encryption: EncryptionChoice,
    /// The lock; without a retention that of the bucket counts.
    pub lock: ObjectLock,
}

impl ObjectMetadata {
    /// Checks the size of the user metadata, names and values together.
    ///
    /// # Errors
    /// `MetadataTooLarge`.
    pub fn check_size(&self) -> Result<()> {
        let bytes = self.meta.iter().map(|(name, value)| name.len() + value.len()).sum();
        // Bound: the metadata is stored in the head, which every write of the key rewrites.
        if bytes <= S3_META_BYTES_MAX {
            return Ok(());
        }
        Err(larder_core::Error::MetadataTooLarge { bytes, max: S3_META_BYTES_MAX }.into())
    }
}

/// The content encoding as it is stored: without `aws-chunked`, the framing of a request's body; `None` where nothing is left.
#[must_use]
pub fn stored_encoding(value: &Bytes) -> Option<Bytes> {
    let text = String::from_utf8_lossy(value);
    let is_framing = |coding: &&str| coding.eq_ignore_ascii_case("aws-chunked");
    let codings: Vec<&str> = text.split(',').map(str::trim).filter(|coding| !coding.is_empty()).collect();
    if !codings.iter().any(is_framing) {
        return Some(value.clone());
    }
    let left: Vec<&str> = codings.into_iter().filter(|coding| !is_framing(coding)).collect();
    (!left.is_empty()).then(|| left.join(",").into())
}
