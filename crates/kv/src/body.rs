//! Receives a body: a small one goes into its row, a larger one streams into a blob.

use bytes::Bytes;
use larder_core::body::{ByteStream, PutBody, collect, next};
use larder_core::metrics::Event;
use larder_core::{Error, Result};
use larder_rows::Timestamp;
use larder_rows::content::{BlobId, BlobRef, KvBody};
use larder_rows::hash::Sha1Hasher;
use larder_store::{BlobOwner, BlobWriter, Durability, Partition};

use crate::Kv;
use crate::rules::causality::Slot;

/// A body that arrived to its end.
pub(super) struct ReceivedValue {
    /// The bytes, or the blob that holds them.
    pub(super) body: KvBody,
    /// Keeps sweepers away from the blob until the row that names it is written.
    pub(super) lease: Option<Box<dyn Send + Sync>>,
}

/// The row that will name a large body.
#[derive(Clone, Copy)]
pub(super) struct KvBlobPlacement<'a> {
    /// Partition of the row that will name it.
    pub(super) partition: &'a Partition,
    /// The slot of the write; its row's, where rows are named by slots.
    pub(super) slot: Slot,
    /// The clock of the write, unique in this slot: the blob's stamp.
    pub(super) clock: Timestamp,
}

impl Kv {
    /// Receives a body, holding a few MiB in memory at most.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::BrokenBody`], [`Error::DiskFull`]: nothing remains of the body.
    pub(super) async fn receive(&self, upload: PutBody, to: KvBlobPlacement<'_>) -> Result<ReceivedValue> {
        // Bound: as a row, a larger body would exceed the largest mutation of the cluster [invariant 18].
        let inline_max = self.core.ports.store.limits().inline_max;
        match upload {
            PutBody::Bytes(bytes) if bytes.len() <= inline_max => {
                self.check_length(bytes.len() as u64)?;
                Ok(ReceivedValue { body: KvBody::Inline(bytes), lease: None })
            }
            PutBody::Bytes(bytes) => {
                let length = Some(bytes.len() as u64);
                self.receive_blob(bytes, length, None, to).await
            }
            PutBody::Stream { mut stream, length } => {
                self.check_length(length.unwrap_or(0))?;
                let first = collect(stream.as_mut(), inline_max).await?;
                if first.len() <= inline_max {
                    return Ok(ReceivedValue { body: KvBody::Inline(first), lease: None });
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
        to: KvBlobPlacement<'_>,
    ) -> Result<ReceivedValue> {
        let id = BlobId::for_row(&to.partition.key, &to.slot.row_name(), to.clock);
        let owner = BlobOwner { partition: to.partition.clone(), row: to.slot.row_name() };
        let mut writer = self.core.ports.blobs.create(id, owner).await?;
        // A full disk refuses the body here, before gigabytes of it arrive.
        writer.announce(announced.unwrap_or(first.len() as u64)).await?;
        let mut length = 0;
        let mut digest = Sha1Hasher::default();
        self.append(writer.as_mut(), first, &mut length, &mut digest).await?;
        if let Some(mut rest) = rest {
            while let Some(piece) = next(rest.as_mut()).await? {
                self.append(writer.as_mut(), piece, &mut length, &mut digest).await?;
            }
        }
        // Any later sync makes the row durable, and a power cut then must find its bytes: they are synced first, whatever dw
        // is.
        let durability = if self.core.config.durable { Durability::Disk } else { Durability::Buffered };
        let lease = writer.finish(durability).await?;
        self.core.metrics.count_event(Event::BlobWritten);
        Ok(ReceivedValue { body: KvBody::Blob(BlobRef { id, length, digest: digest.finish() }), lease: Some(lease) })
    }

    async fn append(
        &self,
        writer: &mut dyn BlobWriter,
        piece: Bytes,
        length: &mut u64,
        digest: &mut Sha1Hasher,
    ) -> Result<()> {
        *length += piece.len() as u64;
        // Bound: a stream may send more than it announces, or announce nothing.
        self.check_length(*length)?;
        digest.update(&piece);
        Ok(writer.write(piece).await?)
    }

    pub(super) fn check_length(&self, bytes: u64) -> Result<()> {
        let max = self.core.config.object_bytes_max;
        if bytes > max { Err(Error::TooLarge { bytes, max }) } else { Ok(()) }
    }
}
