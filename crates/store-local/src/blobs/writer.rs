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

/// A blob under way.
pub(super) struct Writer {
    files: Arc<Files>,
    bulk: Arc<dyn BulkRows>,
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
}

/// The run being written, if any. Given up, it is waited for and its file removed, on a blocking thread.
#[derive(Default)]
struct Pending(Option<JoinHandle<Result<Written>>>);

/// The file so far, and the buffer that was written, for use again.
type Written = (Temp, Vec<u8>);

impl Writer {
    /// A blob without bytes; touches nothing yet.
    pub(super) fn new(files: Arc<Files>, bulk: Arc<dyn BulkRows>, lease: Lease, id: BlobId, owner: BlobOwner) -> Self {
        let body = Body::Row(RowBuilder::new(id, &owner));
        Self { files, bulk, lease, id, owner, body, failed: None }
    }

    /// Bytes are in the body, in their order, or the body is gone.
    async fn append(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.body {
            Body::Row(row) if row.length() + bytes.len() <= self.files.sizes.row_max => {
                row.push(&bytes);
                Ok(())
            }
            Body::Row(_) => self.spill(bytes).await,
            Body::File(stream) => stream.write(bytes).await,
            Body::Gone => Err(Error::new(Kind::Misuse, "blob writer used after it failed")),
        }
    }

    /// The body is too long for a row: what there is of it begins a file.
    async fn spill(&mut self, bytes: Bytes) -> Result<()> {
        let frames = Frames::new(self.id, self.owner.clone(), self.files.sizes)?;
        let mut stream = Stream { files: self.files.clone(), id: self.id, frames, pending: Pending::default() };
        if let Body::Row(row) = std::mem::replace(&mut self.body, Body::Gone) {
            stream.write(row.into_body()).await?;
        }
        stream.write(bytes).await?;
        self.body = Body::File(stream);
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for Writer {
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
    async fn finish(self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let this = *self;
        if let Some(error) = this.failed {
            return Err(error);
        }
        this.files.check_poison()?;
        match this.body {
            Body::Row(row) => this.bulk.put(Bytes::copy_from_slice(&this.id.0), row.finish()).await?,
            Body::File(stream) => {
                stream.finish(durability).await?;
                // Written before, and shorter then, it would hide the file.
                remove_stale_row(&*this.bulk, this.id).await?;
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
    async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            self.frames.fill(&mut bytes);
            if self.frames.is_full() {
                self.hand_over().await?;
            }
        }
        Ok(())
    }

    /// Waits for the run before, then lets this one be written.
    async fn hand_over(&mut self) -> Result<()> {
        let (temp, spare) = self.pending.settle().await?;
        let run = self.frames.take(spare);
        let (files, id) = (self.files.clone(), self.id);
        self.pending.0 = Some(spawn_blocking(move || {
            let mut temp = temp.map_or_else(|| files.begin(id), Ok)?;
            temp.append(&run)?;
            Ok((temp, run))
        }));
        Ok(())
    }

    async fn finish(mut self, durability: Durability) -> Result<()> {
        let (temp, _) = self.pending.settle().await?;
        let Self { files, id, frames, .. } = self;
        blocking(move || {
            let mut temp = temp.map_or_else(|| files.begin(id), Ok)?;
            temp.append(&frames.end())?;
            temp.publish(id, durability)
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
