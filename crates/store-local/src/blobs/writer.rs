//! Writes one blob: into a bulk row while it is small, into a file after that.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use larder_rows::content::BlobId;
use larder_store::leases::BlobLease;
use larder_store::{BlobOwner, BlobWriter, Durability, Error, Kind, Result};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

use super::bulk_row::BulkRowBuilder;
use super::disk::{join_result, run_blocking};
use super::files::{BlobFolder, UnfinishedFile};
use super::format::{BlobFileHead, BlobLayout, CHECK_BYTES, block_check};
use super::{BlobSizes, RUN_BLOCKS};
use crate::bulk_store::BulkRows;
use crate::disk_space::SpaceReservation;

/// A blob being written.
pub(super) struct LocalBlobWriter {
    files: Arc<BlobFolder>,
    bulk: Arc<dyn BulkRows>,
    /// The bytes that the file may still write.
    reservation: SpaceReservation,
    lease: BlobLease,
    id: BlobId,
    owner: BlobOwner,
    body: BodySink,
    /// The error of later calls: an earlier call failed, or was dropped half way.
    failed: Option<Error>,
}

/// The destination of the body's bytes.
enum BodySink {
    Row(BulkRowBuilder),
    File(FileSink),
    /// The state after a failure.
    Failed,
}

/// A file being written. One run of blocks is written while the next is filled: two buffers for a body of any length.
struct FileSink {
    files: Arc<BlobFolder>,
    id: BlobId,
    frames: BlockEncoder,
    pending: PendingRun,
    /// Bytes of the run being written: reserved, not spent yet.
    in_flight: u64,
}

/// The run being written, if any. A drop waits for it and removes its file, on a blocking thread.
#[derive(Default)]
struct PendingRun(Option<JoinHandle<Result<WrittenRun>>>);

/// The file so far, and the written buffer for reuse.
type WrittenRun = (UnfinishedFile, Vec<u8>);

impl LocalBlobWriter {
    /// An empty blob; writes nothing yet.
    pub(super) fn new(
        files: Arc<BlobFolder>,
        bulk: Arc<dyn BulkRows>,
        reservation: SpaceReservation,
        lease: BlobLease,
        id: BlobId,
        owner: BlobOwner,
    ) -> Self {
        let body = BodySink::Row(BulkRowBuilder::new(id, &owner));
        Self { files, bulk, reservation, lease, id, owner, body, failed: None }
    }

    /// Appends bytes to the body.
    async fn append(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.body {
            BodySink::Row(row) if row.length() + bytes.len() <= self.files.sizes.row_max => {
                row.push(&bytes);
                Ok(())
            }
            BodySink::Row(_) => self.spill(bytes).await,
            BodySink::File(stream) => stream.write(bytes, &mut self.reservation).await,
            BodySink::Failed => Err(Error::new(Kind::Misuse, "blob writer used after it failed")),
        }
    }

    /// Moves a body that is too long for a row into a file.
    async fn spill(&mut self, bytes: Bytes) -> Result<()> {
        let frames = BlockEncoder::new(self.id, self.owner.clone(), self.files.sizes)?;
        let files = self.files.clone();
        let mut stream = FileSink { files, id: self.id, frames, pending: PendingRun::default(), in_flight: 0 };
        // Until the file has the bytes the body counts as failed: a dropped call would lose those of the row.
        if let BodySink::Row(row) = std::mem::replace(&mut self.body, BodySink::Failed) {
            stream.write(row.into_body(), &mut self.reservation).await?;
        }
        stream.write(bytes, &mut self.reservation).await?;
        self.body = BodySink::File(stream);
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for LocalBlobWriter {
    async fn announce(&mut self, bytes: u64) -> Result<()> {
        if bytes <= self.files.sizes.row_max as u64 {
            // The write of the whole row is admitted at the end.
            if let BodySink::Row(row) = &mut self.body {
                row.expect(bytes as usize);
            }
            return Ok(());
        }
        let answer = self.reservation.reserve(bytes);
        if let Err(error) = &answer {
            self.body = BodySink::Failed;
            self.failed = Some(error.clone());
        }
        answer
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.files.check_poison()?;
        // A caller may drop this call while it waits, with a part of the bytes written: every later call must then fail.
        self.failed = Some(Error::new(Kind::Misuse, "a write of this blob was given up half way"));
        let answer = self.append(bytes).await;
        if answer.is_err() {
            self.body = BodySink::Failed;
        }
        self.failed = answer.as_ref().err().cloned();
        answer
    }

    /// If the caller drops this call half way, the blob may become readable all the same; without a row or a lease the sweeper
    /// removes it.
    async fn finish(self: Box<Self>, _: Durability) -> Result<Box<dyn Send + Sync>> {
        let this = *self;
        if let Some(error) = this.failed {
            return Err(error);
        }
        this.files.check_poison()?;
        match this.body {
            BodySink::Row(row) => {
                // The write of the bulk row has its own admission.
                drop(this.reservation);
                this.bulk.put(Bytes::copy_from_slice(&this.id.0), row.finish()).await?;
            }
            BodySink::File(stream) => {
                // The file is on disk before its id is usable: the caller writes its row after this.
                stream.finish(this.reservation).await?;
                // An earlier, shorter body of this id may be a bulk row, which readers try first.
                if let Err(error) = remove_stale_row(&*this.bulk, this.id).await {
                    let (files, id) = (this.files, this.id);
                    // The caller gets the first error. The sweeper removes a file that stays.
                    let _ = run_blocking(move || files.remove(id)).await;
                    return Err(error);
                }
            }
            BodySink::Failed => return Err(Error::new(Kind::Misuse, "blob writer used after it failed")),
        }
        // The caller gets the lease: it ends only after the row that names the blob.
        Ok(Box::new(this.lease))
    }
}

/// Removes the bulk row of a blob that has a file. The read first saves a journal entry for every file.
pub(super) async fn remove_stale_row(bulk: &dyn BulkRows, id: BlobId) -> Result<()> {
    match bulk.get(&id.0).await? {
        Some(_) => bulk.remove(Bytes::copy_from_slice(&id.0)).await,
        None => Ok(()),
    }
}

impl FileSink {
    async fn write(&mut self, mut bytes: Bytes, reservation: &mut SpaceReservation) -> Result<()> {
        while !bytes.is_empty() {
            self.frames.fill(&mut bytes);
            if self.frames.is_full() {
                self.start_run(reservation).await?;
            }
        }
        Ok(())
    }

    /// Waits for the last run, then starts the write of this one.
    async fn start_run(&mut self, reservation: &mut SpaceReservation) -> Result<()> {
        let length = self.frames.buffered();
        // On a refusal the caller drops this sink, which removes the file on a blocking thread.
        reservation.authorize(self.in_flight + length)?;
        let (temp, spare) = self.pending.wait().await?;
        // The disk may show bytes of a run late, so they count as spent once the run is written.
        reservation.spend(std::mem::replace(&mut self.in_flight, length));
        let run = self.frames.take(spare);
        let (files, id) = (self.files.clone(), self.id);
        self.pending.0 = Some(spawn_blocking(move || {
            let mut temp = temp.map_or_else(|| files.create_unfinished(id), Ok)?;
            temp.append(&run)?;
            Ok((temp, run))
        }));
        Ok(())
    }

    async fn finish(self, mut reservation: SpaceReservation) -> Result<()> {
        let Self { files, id, frames, mut pending, in_flight } = self;
        let end = frames.end();
        let length = end.len() as u64;
        reservation.authorize(in_flight + length)?;
        let (temp, _) = pending.wait().await?;
        reservation.spend(in_flight);
        run_blocking(move || {
            let mut temp = temp.map_or_else(|| files.create_unfinished(id), Ok)?;
            // Crash: the foot precedes the name, so a file under its name is whole.
            temp.append(&end)?;
            reservation.spend(length);
            temp.publish(id)
        })
        .await
    }
}

impl PendingRun {
    /// Waits for the run; returns the file, if there is one yet, and a used buffer.
    async fn wait(&mut self) -> Result<(Option<UnfinishedFile>, Vec<u8>)> {
        let Some(task) = &mut self.0 else { return Ok((None, Vec::new())) };
        let answer = join_result(task.await);
        self.0 = None;
        answer.map(|(temp, spare)| (Some(temp), spare))
    }
}

impl Drop for PendingRun {
    fn drop(&mut self) {
        // A finished task drops its file with itself, and the removal of a large file would block this thread.
        if let (Some(task), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(task));
        }
    }
}

/// The encoder of one blob file.
pub(super) struct BlockEncoder {
    layout: BlobLayout,
    buffer: Vec<u8>,
    /// Whole blocks in the buffer.
    blocks: u64,
    /// Bytes in the current block.
    partial: u64,
    /// Number of the current block.
    index: u64,
    check: crc32fast::Hasher,
}

impl BlockEncoder {
    /// The encoder of an empty body; the buffer begins with the head.
    ///
    /// # Errors
    /// `Misuse` for an owner whose names are too long.
    pub(super) fn new(id: BlobId, owner: BlobOwner, sizes: BlobSizes) -> Result<Self> {
        let head = BlobFileHead { id, owner, block: sizes.block }.encode()?;
        let seed = head.last_chunk().map_or(0, |check| u32::from_be_bytes(*check));
        let layout = BlobLayout { seed, head: head.len() as u64, block: u64::from(sizes.block), length: 0 };
        let mut buffer = Vec::with_capacity(head.len() + run_bytes(&layout));
        buffer.extend_from_slice(&head);
        Ok(Self { layout, buffer, blocks: 0, partial: 0, index: 0, check: block_check(seed, 0) })
    }

    /// Takes bytes from the front, at most to the end of the current block.
    pub(super) fn fill(&mut self, bytes: &mut Bytes) {
        let room = self.layout.block - self.partial;
        let count = room.min(bytes.len() as u64) as usize;
        self.check.update(&bytes[..count]);
        self.buffer.extend_from_slice(&bytes[..count]);
        bytes.advance(count);
        self.partial += count as u64;
        if self.partial == self.layout.block {
            self.seal();
        }
    }

    /// Whether the buffer holds a full run and must be taken.
    pub(super) fn is_full(&self) -> bool {
        self.blocks >= RUN_BLOCKS
    }

    /// Bytes in the buffer.
    pub(super) fn buffered(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Takes the buffer and continues in `spare`.
    pub(super) fn take(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        spare.clear();
        spare.reserve(run_bytes(&self.layout));
        self.blocks = 0;
        std::mem::replace(&mut self.buffer, spare)
    }

    /// The last bytes of the file, with its foot.
    pub(super) fn end(mut self) -> Vec<u8> {
        if self.partial > 0 {
            self.seal();
        }
        self.buffer.extend_from_slice(&self.layout.foot());
        self.buffer
    }

    /// Ends the current block with its check.
    fn seal(&mut self) {
        let next = block_check(self.layout.seed, self.index + 1);
        let check = std::mem::replace(&mut self.check, next).finalize();
        self.buffer.extend_from_slice(&check.to_be_bytes());
        self.layout.length += self.partial;
        self.index += 1;
        self.blocks += 1;
        self.partial = 0;
    }
}

fn run_bytes(layout: &BlobLayout) -> usize {
    (RUN_BLOCKS * (layout.block + CHECK_BYTES as u64)) as usize + super::format::FOOT_BYTES
}

/// Most buffers of a reader: two whose bytes wait for the socket, and one to read into.
const BUFFERS_MAX: usize = 3;
/// The longest buffer that is kept, in bytes.
pub(super) const BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// The buffers of one reader, those used last at the end.
#[derive(Debug, Default)]
pub(super) struct BlockBuffers(Vec<Bytes>);

impl BlockBuffers {
    /// A buffer of this length with any content: one whose bytes nobody reads any more, or a new one.
    pub(super) fn take(&mut self, length: usize) -> BytesMut {
        let free = self.0.iter().rposition(Bytes::is_unique);
        let free = free.and_then(|at| self.0.remove(at).try_into_mut().ok());
        let mut buffer = free.unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    /// Keeps a full buffer for a later [`Self::take`], and returns it.
    pub(super) fn keep(&mut self, buffer: Bytes) -> Bytes {
        if buffer.len() <= BUFFER_BYTES_MAX && self.0.len() < BUFFERS_MAX {
            self.0.push(buffer.clone());
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_serves_again_only_when_all_its_readers_are_gone() {
        let mut buffers = BlockBuffers::default();
        let first = buffers.take(4);
        let memory = first.as_ptr();
        let slice = buffers.keep(first.freeze()).slice(1..3);
        assert_ne!(buffers.take(4).as_ptr(), memory, "a reader has a slice");
        assert_eq!(slice, [0, 0][..]);
        drop(slice);
        let again = buffers.take(2);
        assert_eq!((again.as_ptr(), again.len()), (memory, 2), "the memory of the first, cut to the length");
    }

    #[test]
    fn a_reader_keeps_few_buffers() {
        let mut buffers = BlockBuffers::default();
        let mut fill = |length| {
            let full = buffers.take(length).freeze();
            buffers.keep(full)
        };
        let held: Vec<Bytes> = (0..10).map(|_| fill(8)).collect();
        assert_eq!(buffers.0.len(), BUFFERS_MAX);
        drop(held);
        buffers.0.clear();
        let long = buffers.take(BUFFER_BYTES_MAX + 1);
        buffers.keep(long.freeze());
        assert!(buffers.0.is_empty(), "a long buffer is not kept");
    }
}
