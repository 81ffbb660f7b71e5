//! Receiving a body: small ones stay in the row, larger ones go to a blob while they arrive.

use bytes::Bytes;
use larder_model::causality::{Clock, Slot};
use larder_model::content::{BlobId, BlobRef, Body};
use larder_model::hash::Digester;
use larder_store::{BlobOwner, BlobWriter, Durability, Partition};

use crate::body::{ByteStream, Upload, collect, next};
use crate::metrics::Event;
use crate::{Error, Gateway, Result};

/// A body that arrived whole.
pub(super) struct Received {
    /// The bytes, or where they are.
    pub(super) body: Body,
    /// Keeps sweepers away from the blob until the row that names it is written.
    pub(super) lease: Option<Box<dyn Send + Sync>>,
}

/// Where a large body will belong.
pub(super) struct Destination<'a> {
    /// Partition of the row that will name it.
    pub(super) partition: &'a Partition,
    /// A slot of its own: the row's, where rows are named by slots.
    pub(super) slot: Slot,
    /// The clock of the write, which nothing else in this slot has: the blob's stamp.
    pub(super) clock: Clock,
}

impl Gateway {
    /// Receives an upload, holding a few MiB at most.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::BrokenBody`], [`Error::DiskFull`]: nothing remains of the body.
    pub(super) async fn receive(&self, upload: Upload, to: Destination<'_>) -> Result<Received> {
        let inline_max = self.ports.store.limits().inline_max;
        match upload {
            Upload::Bytes(bytes) if bytes.len() <= inline_max => {
                self.check_length(bytes.len() as u64)?;
                Ok(Received { body: Body::Inline(bytes), lease: None })
            }
            Upload::Bytes(bytes) => {
                let length = Some(bytes.len() as u64);
                self.receive_blob(bytes, length, None, to).await
            }
            Upload::Stream { mut stream, length } => {
                self.check_length(length.unwrap_or(0))?;
                let first = collect(stream.as_mut(), inline_max).await?;
                if first.len() <= inline_max {
                    return Ok(Received { body: Body::Inline(first), lease: None });
                }
                self.receive_blob(first, length, Some(stream), to).await
            }
        }
    }

    async fn receive_blob(
        &self,
        first: Bytes,
        announced: Option<u64>,
        rest: Option<Box<dyn ByteStream>>,
        to: Destination<'_>,
    ) -> Result<Received> {
        let id = BlobId::of(&to.partition.key, &to.slot.row_name(), to.clock);
        let owner = BlobOwner { partition: to.partition.clone(), row: to.slot.row_name() };
        let mut writer = self.ports.blobs.create(id, owner).await?;
        writer.announce(announced.unwrap_or(first.len() as u64)).await?;
        let mut length = 0;
        let mut digest = Digester::default();
        self.append(writer.as_mut(), first, &mut length, &mut digest).await?;
        if let Some(mut rest) = rest {
            while let Some(piece) = next(rest.as_mut()).await? {
                self.append(writer.as_mut(), piece, &mut length, &mut digest).await?;
            }
        }
        // Whoever syncs next makes the row durable, so the bytes it names must be on disk before, whatever dw says.
        let durability = if self.config.durable { Durability::Disk } else { Durability::Buffered };
        let lease = writer.finish(durability).await?;
        self.metrics.event(Event::BlobWritten);
        Ok(Received { body: Body::Blob(BlobRef { id, length, digest: digest.finish() }), lease: Some(lease) })
    }

    async fn append(
        &self,
        writer: &mut dyn BlobWriter,
        piece: Bytes,
        length: &mut u64,
        digest: &mut Digester,
    ) -> Result<()> {
        *length += piece.len() as u64;
        self.check_length(*length)?;
        digest.update(&piece);
        Ok(writer.write(piece).await?)
    }

    fn check_length(&self, bytes: u64) -> Result<()> {
        let max = self.config.object_bytes_max;
        if bytes > max { Err(Error::TooLarge { bytes, max }) } else { Ok(()) }
    }
}
