//! Reading the bytes of an object a piece at a time, wherever they are.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use larder_model::content::BlobId;
use larder_model::objects::VersionId;
use larder_store::{BlobReader, Kind};

use super::manifest::{Piece, Walk};
use super::missing_bytes;
use crate::Gateway;
use crate::metrics::Event;
use crate::objects::release::Pin;
use crate::objects::{Error, Result};

/// Most bytes of a piece.
const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// Reads the bytes of a window, front to back.
pub struct ObjectReader {
    gateway: Arc<Gateway>,
    source: Source,
    /// What is left of the window.
    window: Range<u64>,
}

enum Source {
    Bytes(Bytes),
    Blob(Box<dyn BlobReader>),
    Parts(Box<Parts>),
}

/// An object made of parts: the manifest is read a row at a time, one blob is open at a time.
struct Parts {
    walk: Walk,
    open: Option<(Piece, Box<dyn BlobReader>)>,
    _pin: Option<Pin>,
}

impl std::fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectReader({:?})", self.window)
    }
}

impl ObjectReader {
    pub(super) fn of_bytes(gateway: &Arc<Gateway>, bytes: &Bytes, window: Range<u64>) -> Self {
        Self { gateway: Arc::clone(gateway), source: Source::Bytes(bytes.clone()), window }
    }

    /// Reads a blob; `None` when it is gone.
    pub(super) async fn of_blob(
        gateway: &Arc<Gateway>,
        blob: (BlobId, u64),
        window: Range<u64>,
    ) -> Result<Option<Self>> {
        let open = open(gateway, blob.0, blob.1).await?;
        Ok(open.map(|reader| Self { gateway: Arc::clone(gateway), source: Source::Blob(reader), window }))
    }

    pub(super) async fn of_parts(
        gateway: &Arc<Gateway>,
        manifest: VersionId,
        window: Range<u64>,
        pin: Option<Pin>,
    ) -> Result<Self> {
        let walk = Walk::at(gateway, manifest, window.start).await?;
        let parts = Parts { walk, open: None, _pin: pin };
        Ok(Self { gateway: Arc::clone(gateway), source: Source::Parts(Box::new(parts)), window })
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.window.end.saturating_sub(self.window.start)
    }

    /// The next piece, at most `max` bytes (a MiB at most whatever `max`); empty at the end.
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
            Source::Bytes(bytes) => slice(bytes, from, max),
            Source::Blob(blob) => blob.read(from, max).await?,
            Source::Parts(parts) => parts.read(&self.gateway, from, max).await?,
        };
        if piece.is_empty() {
            return Err(missing_bytes());
        }
        self.window.start += piece.len() as u64;
        Ok(piece)
    }
}

impl Parts {
    /// At least one byte from `from`, of one part; none behind the last one.
    async fn read(&mut self, gateway: &Gateway, from: u64, max: usize) -> Result<Bytes> {
        loop {
            if let Some((piece, blob)) = &mut self.open
                && piece.bytes.contains(&from)
            {
                let left = usize::try_from(piece.bytes.end - from).unwrap_or(usize::MAX);
                return Ok(blob.read(from - piece.bytes.start, max.min(left)).await?);
            }
            self.open = None;
            let Some(piece) = self.walk.next_piece(gateway).await? else { return Ok(Bytes::new()) };
            if !piece.bytes.contains(&from) {
                continue;
            }
            let length = piece.bytes.end - piece.bytes.start;
            let blob = open(gateway, piece.blob, length).await?.ok_or_else(missing_bytes)?;
            self.open = Some((piece, blob));
        }
    }
}

/// Counts a read that met damage.
pub(super) fn count_damage(gateway: &Gateway, error: &Error) {
    if matches!(error, Error::Gateway(crate::Error::Damaged(_))) {
        gateway.event(Event::DamageMet);
    }
}

fn slice(bytes: &Bytes, from: u64, max: usize) -> Bytes {
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(from..from.saturating_add(max).min(bytes.len()))
}

/// Opens a blob that has to have this length; `None` when it is gone.
async fn open(gateway: &Gateway, blob: BlobId, length: u64) -> Result<Option<Box<dyn BlobReader>>> {
    match gateway.ports.blobs.open(blob).await {
        Ok(reader) if reader.length() == length => Ok(Some(reader)),
        Ok(_) => Err(crate::Error::Damaged("a blob is not as long as its object says".into()).into()),
        Err(error) if error.kind == Kind::NoSuchBlob => Ok(None),
        Err(error) => Err(error.into()),
    }
}
