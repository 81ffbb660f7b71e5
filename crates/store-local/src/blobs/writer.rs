//! Writes one blob: into a row while it is small, into a file from there on.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_model::content::BlobId;
use larder_store::leases::Lease;
use larder_store::{BlobOwner, BlobWriter, Durability, Error, Kind, Result};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

use super::disk::{blocking, landed};
use super::files::{Files, Temp};
use super::frames::Frames;
use super::row::RowBuilder;
use crate::bulk::BulkRows;
use crate::disk_space::SpaceReservation;

/// A blob under way.
pub(super) struct Writer {
    files: Arc<Files>,
    bulk: Arc<dyn BulkRows>,
    /// The bytes that a file may still take.
    room: SpaceReservation,
    lease: Lease,
    id: BlobId,
    owner: BlobOwner,
    body: Body,
    /// Why no more can be written: a call that failed, or that was given up half way.
    failed: Option<Error>,
}

enum Body {
    Row(RowBuilder),
    File(Stream),
    /// Between two calls only after a failure.
    Gone,
}

/// A file under way. One run of blocks is written while the next is filled: two buffers, however long the body.
struct Stream {
    files: Arc<Files>,
    id: BlobId,
    frames: Frames,
    pending: Pending,
    /// Bytes of the run being written: reserved, not spent.
    in_flight: u64,
}

/// The run being written, if any. Given up, it is waited for and its file removed, on a blocking thread.
#[derive(Default)]
struct Pending(Option<JoinHandle<Result<Written>>>);

/// The file so far, and the buffer that was written, for use again.
type Written = (Temp, Vec<u8>);

impl Writer {
    /// A blob without bytes; touches nothing yet.
    pub(super) fn new(
        files: Arc<Files>,
        bulk: Arc<dyn BulkRows>,
        room: SpaceReservation,
        lease: Lease,
        id: BlobId,
        owner: BlobOwner,
    ) -> Self {
        let body = Body::Row(RowBuilder::new(id, &owner));
        Self { files, bulk, room, lease, id, owner, body, failed: None }
    }

    /// Bytes are in the body, in their order, or the body is gone.
    async fn append(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.body {
            Body::Row(row) if row.length() + bytes.len() <= self.files.sizes.row_max => {
                row.push(&bytes);
                Ok(())
            }
            Body::Row(_) => self.spill(bytes).await,
            Body::File(stream) => stream.write(bytes, &mut self.room).await,
            Body::Gone => Err(Error::new(Kind::Misuse, "blob writer used after it failed")),
        }
    }

    /// The body is too long for a row: what there is of it begins a file.
    async fn spill(&mut self, bytes: Bytes) -> Result<()> {
        let frames = Frames::new(self.id, self.owner.clone(), self.files.sizes)?;
        let files = self.files.clone();
        let mut stream = Stream { files, id: self.id, frames, pending: Pending::default(), in_flight: 0 };
        if let Body::Row(row) = std::mem::replace(&mut self.body, Body::Gone) {
            stream.write(row.into_body(), &mut self.room).await?;
        }
        stream.write(bytes, &mut self.room).await?;
        self.body = Body::File(stream);
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn announce(&mut self, bytes: u64) -> Result<()> {
        if bytes <= self.files.sizes.row_max as u64 {
            // A row is admitted as a whole.
            if let Body::Row(row) = &mut self.body {
                row.expect(bytes as usize);
            }
            return Ok(());
        }
        let answer = self.room.reserve(bytes);
        if let Err(error) = &answer {
            self.body = Body::Gone;
            self.failed = Some(error.clone());
        }
        answer
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.files.check_poison()?;
        // If this call is given up while it waits, part of the bytes may be missing: then nothing may follow.
        self.failed = Some(Error::new(Kind::Misuse, "a write of this blob was given up half way"));
        let answer = self.append(bytes).await;
        if answer.is_err() {
            self.body = Body::Gone;
        }
        self.failed = answer.as_ref().err().cloned();
        answer
    }

    /// Given up half way, the blob may become readable all the same; without a row and without a lease it is waste.
    async fn finish(self: Box<Self>, _: Durability) -> Result<Box<dyn Send + Sync>> {
        let this = *self;
        if let Some(error) = this.failed {
            return Err(error);
        }
        this.files.check_poison()?;
        match this.body {
            Body::Row(row) => {
                drop(this.room);
                this.bulk.put(Bytes::copy_from_slice(&this.id.0), row.finish()).await?;
            }
            Body::File(stream) => {
                stream.finish(this.room).await?;
                // Written before, and shorter then, it would hide the file.
                if let Err(error) = remove_stale_row(&*this.bulk, this.id).await {
                    let (files, id) = (this.files, this.id);
                    // Nobody is told of it. What cannot be removed now is the sweeper's.
                    let _ = blocking(move || files.remove(id)).await;
                    return Err(error);
                }
            }
            Body::Gone => return Err(Error::new(Kind::Misuse, "blob writer used after it failed")),
        }
        Ok(Box::new(this.lease))
    }
}

/// Removes the row of a blob that has a file. Looking first spares the journal an entry for every file.
pub(super) async fn remove_stale_row(bulk: &dyn BulkRows, id: BlobId) -> Result<()> {
    match bulk.get(&id.0).await? {
        Some(_) => bulk.remove(Bytes::copy_from_slice(&id.0)).await,
        None => Ok(()),
    }
}

impl Stream {
    async fn write(&mut self, mut bytes: Bytes, room: &mut SpaceReservation) -> Result<()> {
        while !bytes.is_empty() {
            self.frames.fill(&mut bytes);
            if self.frames.is_full() {
                self.hand_over(room).await?;
            }
        }
        Ok(())
    }

    /// Waits for the run before, then lets this one be written.
    async fn hand_over(&mut self, room: &mut SpaceReservation) -> Result<()> {
        let length = self.frames.buffered();
        // Refused, the file is dropped with what is pending: on a blocking thread.
        room.cover(self.in_flight + length)?;
        let (temp, spare) = self.pending.settle().await?;
        room.spend(std::mem::replace(&mut self.in_flight, length));
        let run = self.frames.take(spare);
        let (files, id) = (self.files.clone(), self.id);
        self.pending.0 = Some(spawn_blocking(move || {
            let mut temp = temp.map_or_else(|| files.begin(id), Ok)?;
            temp.append(&run)?;
            Ok((temp, run))
        }));
        Ok(())
    }

    async fn finish(self, mut room: SpaceReservation) -> Result<()> {
        let Self { files, id, frames, mut pending, in_flight } = self;
        let end = frames.end();
        let length = end.len() as u64;
        room.cover(in_flight + length)?;
        let (temp, _) = pending.settle().await?;
        room.spend(in_flight);
        blocking(move || {
            let mut temp = temp.map_or_else(|| files.begin(id), Ok)?;
            temp.append(&end)?;
            room.spend(length);
            temp.publish(id)
        })
        .await
    }
}

impl Pending {
    /// The file as far as it is written, if it is begun, and a used buffer.
    async fn settle(&mut self) -> Result<(Option<Temp>, Vec<u8>)> {
        let Some(task) = &mut self.0 else { return Ok((None, Vec::new())) };
        let answer = landed(task.await);
        self.0 = None;
        answer.map(|(temp, spare)| (Some(temp), spare))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Dropping a task that has ended drops its file here, and removing a large file takes a while.
        if let (Some(task), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(task));
        }
    }
}
