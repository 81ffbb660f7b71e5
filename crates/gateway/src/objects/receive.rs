//! Receiving a body: digests and bytes in one pass, small bodies into their row, larger ones into a blob while they arrive.
//! A request holds a piece of its body at a time, and [`larder_store::EngineLimits::inline_max`] bytes before that.

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::objects::checksum::{Hasher, Md5};
use larder_model::objects::{Algorithm, Checksum, ObjectBody, UploadId, VersionId};
use larder_store::{BlobOwner, Durability, Partition};

use super::commit::Place;
use super::put::{ChecksumWanted, Incoming};
use super::{Error, Objects, Result};
use crate::body::{ByteStream, collect, next};
use crate::metrics::Event;

/// What an object's bytes are checked with when its client does not say.
const DEFAULT_ALGORITHM: Algorithm = Algorithm::Crc64Nvme;

/// A body that arrived whole and is what its client said.
pub(super) struct Received {
    /// The bytes, or where they are.
    pub(super) body: ObjectBody,
    /// Their length.
    pub(super) length: u64,
    /// Their MD5.
    pub(super) md5: [u8; 16],
    /// Their checksum.
    pub(super) checksum: Checksum,
    /// Keeps sweepers away from the blob: hold it until the row that names the blob is written.
    pub(super) lease: Option<Box<dyn Send + Sync>>,
}

impl Received {
    /// The blob, if there is one.
    pub(super) fn blob(&self) -> Option<BlobId> {
        match self.body {
            ObjectBody::Blob { id, .. } => Some(id),
            _ => None,
        }
    }
}

/// Where a large body belongs.
pub(super) struct Destination {
    /// The partition of the key: the blob is its.
    partition: Partition,
    /// 16 bytes made for the occasion, or for a part its upload's id and its number.
    row: Bytes,
    /// The blob: another one than any before, of this gateway or of others, whose clocks may show the same.
    id: BlobId,
    /// Up to how many bytes stay in the row.
    inline_max: usize,
}

impl Objects {
    /// Where the body of an object at `place` goes.
    ///
    /// # Errors
    /// What the store answers.
    pub(super) async fn object_destination(&self, place: &Place) -> Result<Destination> {
        let stamp = self.gateway.issue().await?;
        let row = Bytes::copy_from_slice(&VersionId::new(stamp, self.gateway.actor).0);
        let inline_max = self.gateway.ports.store.limits().inline_max;
        let partition = place.partition();
        let id = BlobId::of(&partition.key, &row, stamp);
        Ok(Destination { partition, row, id, inline_max })
    }

    /// Where a part of an upload to `place` goes: a blob of its own however small; none when it is empty.
    ///
    /// # Errors
    /// What the store answers.
    pub(super) async fn part_destination(&self, place: &Place, upload: UploadId, number: u16) -> Result<Destination> {
        let stamp = self.gateway.issue().await?;
        let row: Bytes = [&upload.0[..], &number.to_be_bytes()].concat().into();
        let partition = place.partition();
        let id = BlobId::of(&partition.key, &[&row[..], &self.gateway.actor.to_be_bytes()].concat(), stamp);
        Ok(Destination { partition, row, id, inline_max: 0 })
    }

    /// Receives a body. What is not what its client said leaves nothing behind.
    ///
    /// # Errors
    /// `EntityTooLarge`, `BrokenBody`, `BadDigest`, `BadChecksum`, `InvalidRequest` for a trailing checksum that is none;
    /// `DiskFull`.
    pub(super) async fn receive(&self, incoming: Incoming, to: Destination) -> Result<Received> {
        let Incoming { mut stream, length: announced, md5, checksum } = incoming;
        self.check_length(announced.unwrap_or(0))?;
        let mut sums = Sums::new(&checksum);
        let first = collect(stream.as_mut(), to.inline_max).await.map_err(broken)?;
        self.count(&mut sums, &first)?;
        if first.len() <= to.inline_max {
            let length = sums.length;
            let (md5, checksum) = sums.verify(announced, md5, &checksum, stream.as_mut())?;
            return Ok(Received { body: ObjectBody::Inline(first), length, md5, checksum, lease: None });
        }
        let id = to.id;
        let owner = BlobOwner { partition: to.partition, row: to.row };
        // Dropped before it is finished, nothing of it remains.
        let mut writer = self.gateway.ports.blobs.create(id, owner).await?;
        writer.announce(announced.unwrap_or(first.len() as u64)).await?;
        writer.write(first).await?;
        while let Some(piece) = next(stream.as_mut()).await.map_err(broken)? {
            self.count(&mut sums, &piece)?;
            writer.write(piece).await?;
        }
        let length = sums.length;
        let (md5, checksum) = sums.verify(announced, md5, &checksum, stream.as_mut())?;
        let durability = if self.gateway.config.durable { Durability::Disk } else { Durability::Buffered };
        let lease = writer.finish(durability).await?;
        self.gateway.metrics.event(Event::BlobWritten);
        Ok(Received { body: ObjectBody::Blob { id, length }, length, md5, checksum, lease: Some(lease) })
    }

    fn count(&self, sums: &mut Sums, piece: &[u8]) -> Result<()> {
        sums.update(piece);
        self.check_length(sums.length)
    }

    fn check_length(&self, bytes: u64) -> Result<()> {
        let max = self.config.put_bytes_max;
        if bytes > max { Err(Error::EntityTooLarge { bytes, max }) } else { Ok(()) }
    }
}

/// What is computed over a body while it arrives.
struct Sums {
    length: u64,
    md5: Md5,
    hasher: Hasher,
}

impl Sums {
    fn new(wanted: &ChecksumWanted) -> Self {
        let algorithm = match wanted {
            ChecksumWanted::Default => DEFAULT_ALGORITHM,
            ChecksumWanted::Compute(algorithm) | ChecksumWanted::Trailing(algorithm) => *algorithm,
            ChecksumWanted::Given(checksum) => checksum.algorithm,
        };
        Self { length: 0, md5: Md5::default(), hasher: Hasher::new(algorithm) }
    }

    fn update(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        self.md5.update(piece);
        self.hasher.update(piece);
    }

    /// The digests, if they and the length are what the client said.
    fn verify(
        self,
        announced: Option<u64>,
        md5: Option<[u8; 16]>,
        wanted: &ChecksumWanted,
        stream: &mut dyn ByteStream,
    ) -> Result<([u8; 16], Checksum)> {
        if let Some(announced) = announced.filter(|announced| *announced != self.length) {
            return Err(Error::BrokenBody(format!("{} bytes came, {announced} were announced", self.length)));
        }
        let own = (self.md5.finish(), Checksum::full(self.hasher.algorithm(), self.hasher.finish()));
        if md5.is_some_and(|md5| md5 != own.0) {
            return Err(Error::BadDigest);
        }
        let given = match wanted {
            ChecksumWanted::Given(given) => Some(given.clone()),
            ChecksumWanted::Trailing(algorithm) => Some(trailing(*algorithm, stream)?),
            ChecksumWanted::Default | ChecksumWanted::Compute(_) => None,
        };
        if given.is_some_and(|given| given != own.1) {
            return Err(Error::BadChecksum(own.1.algorithm.name()));
        }
        Ok(own)
    }
}

/// The checksum that came behind a body.
fn trailing(algorithm: Algorithm, stream: &mut dyn ByteStream) -> Result<Checksum> {
    let header = algorithm.header();
    let value = stream.trailing().filter(|(name, _)| name.eq_ignore_ascii_case(header)).map(|(_, value)| value);
    let value = value.ok_or_else(|| Error::BrokenBody(format!("no {header} came behind the body")))?;
    let text = std::str::from_utf8(&value).ok();
    let given = text.and_then(|text| Checksum::parse(algorithm, text)).filter(|given| given.parts.is_none());
    given.ok_or_else(|| Error::InvalidRequest(format!("The value of {header} is not a checksum.")))
}

/// A body that broke off, in the words of this side.
fn broken(error: crate::Error) -> Error {
    match error {
        crate::Error::BrokenBody(why) => Error::BrokenBody(why),
        other => other.into(),
    }
}
