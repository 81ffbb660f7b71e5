//! Reads the bytes of an object in pieces, from its row, a blob or parts.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_core::metrics::Event;
use larder_rows::content::BlobId;
use larder_store::{Partition, Range as Names, ReadOrder, ReadQuery, body_slice};

use super::body_blob::BodyBlob;
use crate::encryption::BytesKey;
use crate::release::Pin;
use crate::rules::part::decode_manifest_row;
use crate::rules::{ManifestPart, VersionId};
use crate::{Error, Result};

/// Most bytes of a piece.
const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// Reads the bytes of a window in order.
pub struct ObjectReader {
    pub(super) gateway: Arc<Core>,
    pub(super) source: BodySource,
    /// The rest of the window.
    pub(super) window: Range<u64>,
}

/// The bytes of an object: from its row, a blob or parts.
pub(super) enum BodySource {
    Bytes(Bytes),
    Blob(BodyBlob),
    Parts(Box<PartsReader>),
}

/// A multipart object: reads one manifest row at a time and opens one blob at a time.
pub(super) struct PartsReader {
    pub(super) cursor: ManifestCursor,
    pub(super) open: Option<(PartRange, BodyBlob)>,
    /// Opens the parts, where they are encrypted.
    pub(super) key: Option<BytesKey>,
    pub(super) _pin: Option<Pin>,
}

impl std::fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectReader({:?})", self.window)
    }
}

impl ObjectReader {
    /// Bytes left to read.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.window.end.saturating_sub(self.window.start)
    }

    /// The next piece, at most `max` bytes and 1 MiB; empty at the end.
    ///
    /// # Errors
    /// `Damaged`: never wrong bytes.
    pub async fn next(&mut self, max: usize) -> Result<Bytes> {
        let piece = self.read(max).await;
        piece.inspect_err(|error| count_damage(&self.gateway, error))
    }

    async fn read(&mut self, max: usize) -> Result<Bytes> {
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let max = max.clamp(1, PIECE_BYTES_MAX).min(left);
        if max == 0 {
            return Ok(Bytes::new());
        }
        let from = self.window.start;
        let piece = match &mut self.source {
            BodySource::Bytes(bytes) => body_slice(bytes, from, max),
            BodySource::Blob(blob) => blob.read(from, max).await?,
            BodySource::Parts(parts) => parts.read(&self.gateway, from, max).await?,
        };
        // The window has bytes left: an empty piece would look like its end.
        if piece.is_empty() {
            return Err(missing_bytes());
        }
        self.window.start += piece.len() as u64;
        Ok(piece)
    }
}

impl PartsReader {
    /// At least one byte from offset `from`, of one part; empty after the last part.
    async fn read(&mut self, gateway: &Core, from: u64, max: usize) -> Result<Bytes> {
        loop {
            if let Some((piece, blob)) = &mut self.open
                && piece.bytes.contains(&from)
            {
                let left = usize::try_from(piece.bytes.end - from).unwrap_or(usize::MAX);
                return blob.read(from - piece.bytes.start, max.min(left)).await;
            }
            self.open = None;
            let Some(piece) = self.cursor.next_range(gateway).await? else { return Ok(Bytes::new()) };
            if !piece.bytes.contains(&from) {
                continue;
            }
            let length = piece.bytes.end - piece.bytes.start;
            let blob =
                BodyBlob::open(gateway, piece.blob, length, self.key.as_ref()).await?.ok_or_else(missing_bytes)?;
            self.open = Some((piece, blob));
        }
    }
}

/// Counts a read that finds damage.
pub(super) fn count_damage(gateway: &Core, error: &Error) {
    if matches!(error, Error::Gateway(larder_core::Error::Damaged(_))) {
        gateway.context().count_event(Event::S3DamagedRead);
    }
}

pub(crate) fn missing_bytes() -> Error {
    larder_core::Error::Damaged("an object's bytes are missing".into()).into()
}

/// A byte range of an object, and its blob.
#[derive(Debug, Clone)]
pub(super) struct PartRange {
    pub(super) bytes: Range<u64>,
    pub(super) blob: BlobId,
}

/// Iterates over a manifest, one row per read.
#[derive(Debug)]
pub(crate) struct ManifestCursor {
    partition: Partition,
    /// The last row read; at first the owner row, which sorts before all offsets.
    last: Bytes,
    /// The rest of that row: offset and part.
    parts: VecDeque<(u64, ManifestPart)>,
}

impl ManifestCursor {
    /// Starts at the first part.
    pub(crate) fn new(manifest: VersionId) -> Self {
        Self { partition: Partition::manifest(manifest), last: Bytes::new(), parts: VecDeque::new() }
    }

    /// Starts at a part at or before `offset`: in the row with the greatest name up to it.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn at(gateway: &Core, manifest: VersionId, offset: u64) -> Result<Self> {
        let mut cursor = Self::new(manifest);
        let end = offset.checked_add(1).map(|end| Bytes::copy_from_slice(&end.to_be_bytes()));
        // This begins after the owner row, whose name is empty, and before the offset 0.
        let first = Some(Bytes::from_static(&[0]));
        let query = ReadQuery { range: Names { from: first, to: end }, limit: 1, order: ReadOrder::Reverse };
        cursor.read(gateway, &query).await?;
        Ok(cursor)
    }

    /// The next part with its offset; `None` after the last one.
    ///
    /// # Errors
    /// Any error of the store; `Damaged`.
    pub(crate) async fn next(&mut self, gateway: &Core) -> Result<Option<(u64, ManifestPart)>> {
        while self.parts.is_empty() {
            let query = ReadQuery::after(Some(&self.last), 1);
            if !self.read(gateway, &query).await? {
                return Ok(None);
            }
        }
        Ok(self.parts.pop_front())
    }

    /// The next part that is not empty.
    ///
    /// # Errors
    /// Any error of the store; `Damaged`.
    pub(super) async fn next_range(&mut self, gateway: &Core) -> Result<Option<PartRange>> {
        while let Some((offset, part)) = self.next(gateway).await? {
            if let Some(blob) = part.blob {
                return Ok(Some(PartRange { bytes: offset..offset.saturating_add(part.length), blob }));
            }
        }
        Ok(None)
    }

    /// Reads one row; `false` when there is none.
    async fn read(&mut self, gateway: &Core, query: &ReadQuery) -> Result<bool> {
        let page = gateway.context().read_at_quorum(&self.partition, query).await?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(false) };
        let (mut offset, _, parts) = decode_manifest_row(&row.name, row.value)?;
        self.last = row.name;
        self.parts.extend(parts.into_iter().map(|part| {
            let at = offset;
            offset = offset.saturating_add(part.length);
            (at, part)
        }));
        Ok(true)
    }
}

/// The bytes of the part with this index, from 0, and the digest of its checksum; `None` if there is no such part.
///
/// # Errors
/// Any error of the store; `Damaged`.
pub(super) async fn part(
    gateway: &Core,
    manifest: VersionId,
    index: u32,
) -> Result<Option<(Range<u64>, Option<Bytes>)>> {
    let mut cursor = ManifestCursor::new(manifest);
    // Rows are named by offset, so only counting finds the part of an index.
    for _ in 0..index {
        if cursor.next(gateway).await?.is_none() {
            return Ok(None);
        }
    }
    let next_part = cursor.next(gateway).await?;
    Ok(next_part.map(|(offset, part)| (offset..offset.saturating_add(part.length), part.checksum)))
}
