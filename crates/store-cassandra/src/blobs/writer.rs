//! Writes one blob: a block is filled while up to six are being sent.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use larder_store::{BlobWriter, Durability, Error, Kind, Result};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::cql::BlobStatement;
use super::format::{BLOCK_BYTES, block_checksum, block_place};
use super::records::{BlobRecords, RecordName};

/// Blocks in flight; with the one being filled at most 2 MiB.
const WRITES_MAX: usize = 6;

/// A writer of one run.
pub(super) struct BlockWriter {
    records: Arc<BlobRecords>,
    lease: RecordLease,
    filling: BytesMut,
    /// Blocks sent, and the bytes in them.
    blocks: u64,
    length: u64,
    in_flight: JoinSet<Result<()>>,
    /// Why no more bytes are accepted: a call failed or was dropped half way.
    failed: Option<Error>,
}

impl BlockWriter {
    /// A writer without bytes.
    pub(super) fn new(records: Arc<BlobRecords>, lease: RecordLease) -> Self {
        let (filling, in_flight) = (BytesMut::new(), JoinSet::new());
        Self { records, lease, filling, blocks: 0, length: 0, in_flight, failed: None }
    }

    async fn append(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            if self.filling.is_empty() && bytes.len() >= BLOCK_BYTES {
                self.send(bytes.split_to(BLOCK_BYTES)).await?;
                continue;
            }
            let room = BLOCK_BYTES - self.filling.len();
            self.filling.extend_from_slice(&bytes.split_to(room.min(bytes.len())));
            if self.filling.len() == BLOCK_BYTES {
                let block = std::mem::take(&mut self.filling).freeze();
                self.send(block).await?;
            }
        }
        Ok(())
    }

    /// Sends a block once fewer than [`WRITES_MAX`] are in flight.
    async fn send(&mut self, block: Bytes) -> Result<()> {
        while self.in_flight.len() >= WRITES_MAX {
            check_written(self.in_flight.join_next().await)?;
        }
        let (index, name) = (self.blocks, self.lease.name);
        let groups = block_place(index).0 + 1;
        if self.lease.groups.is_some_and(|announced| announced < groups) {
            // Announced before the group has a block: a crash in between must not leave blocks that no purge finds.
            self.lease.groups = Some(groups);
            self.records.grow(name, groups).await?;
        }
        // Counted before the task starts: a dropped call must not reuse the number of a block in flight.
        self.blocks += 1;
        self.length += block.len() as u64;
        let records = self.records.clone();
        self.in_flight.spawn(async move { put(&records, name, index, block).await });
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for BlockWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // If the caller drops this call while it waits, some bytes may be missing: then no bytes may follow.
        self.failed = Some(Error::new(Kind::Misuse, "a write of this blob was dropped half way"));
        let answer = self.append(bytes).await;
        self.failed = answer.as_ref().err().cloned();
        answer
    }

    /// The cluster's settings decide when a block is on disk, as for rows.
    async fn finish(self: Box<Self>, _durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let mut this = *self;
        if let Some(error) = this.failed {
            return Err(error);
        }
        if !this.filling.is_empty() {
            let block = std::mem::take(&mut this.filling).freeze();
            this.send(block).await?;
        }
        while let Some(written) = this.in_flight.join_next().await {
            check_written(Some(written))?;
        }
        // Every block is written before the record is readable.
        this.records.finish(this.lease.name, this.length).await?;
        this.lease.groups = None;
        Ok(Box::new(this.lease))
    }
}

async fn put(records: &BlobRecords, name: RecordName, index: u64, block: Bytes) -> Result<()> {
    let (_, id, run) = name.key();
    let (group, number) = block_place(index);
    let check = block_checksum(name.id, name.run, index, &block);
    records.cql.run(BlobStatement::PutBlock, (id, run, group, number, check, block, name.stamp(0))).await.map(|_| ())
}

fn check_written(written: Option<std::result::Result<Result<()>, JoinError>>) -> Result<()> {
    match written {
        None => Ok(()),
        Some(Ok(answer)) => answer,
        Some(Err(error)) => Err(Error::caused(Kind::Io, "writing a block", error)),
    }
}

/// Renewals within the duration of one lease.
const RENEWALS: u32 = 3;

/// Keeps sweepers away from a blob until dropped. If the blob is not finished then, its record and blocks are removed.
pub(super) struct RecordLease {
    records: Arc<BlobRecords>,
    pub(super) name: RecordName,
    /// Groups that may have blocks; `None` once the blob is finished.
    pub(super) groups: Option<i32>,
    end: Option<oneshot::Sender<Option<i32>>>,
}

impl RecordLease {
    /// Leases a record that is being created, and renews the lease on the current runtime.
    pub(super) fn hold(records: Arc<BlobRecords>, name: RecordName) -> Self {
        // In memory first: a listing of this process sees the lease before the record exists.
        records.leased_runs.lock().insert(name.run);
        let (end, ended) = oneshot::channel();
        tokio::spawn(renew_until_ended(records.clone(), name, ended));
        Self { records, name, groups: Some(1), end: Some(end) }
    }
}

impl Drop for RecordLease {
    fn drop(&mut self) {
        // Before the row changes: this process may list the blob as free from now on, other processes once the column
        // is gone.
        self.records.leased_runs.lock().remove(&self.name.run);
        if let Some(end) = self.end.take() {
            let _ = end.send(self.groups);
        }
    }
}

/// Renews a lease until it ends. A failed renewal is repeated at the next interval; a failed end is left to the purge.
async fn renew_until_ended(records: Arc<BlobRecords>, name: RecordName, mut ended: oneshot::Receiver<Option<i32>>) {
    for count in 1.. {
        let unfinished = match timeout(records.lease / RENEWALS, &mut ended).await {
            Err(_) => {
                // The count is in the stamp: a renewal that arrives late does not undo the release.
                if let Err(error) = records.renew(name, count).await {
                    tracing::debug!(%error, "renewing a blob's lease failed; trying again before it expires");
                }
                continue;
            }
            Ok(ending) => ending.unwrap_or(None),
        };
        let ended = match unfinished {
            Some(groups) => records.forget(name, groups).await,
            None => records.release(name, count).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "ending a blob's lease failed; it expires");
        }
        return;
    }
}
