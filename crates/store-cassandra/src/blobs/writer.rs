//! Writes one blob: a block is filled while up to six are on their way.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use larder_store::{BlobWriter, Durability, Error, Kind, Result};
use tokio::task::{JoinError, JoinSet};

use super::cql::Cql;
use super::format::{BLOCK_BYTES, check, place};
use super::lease::Lease;
use super::records::{Name, Records};

/// Blocks on their way at once; with the one being filled no more than 2 MiB.
const WRITES_MAX: usize = 6;

/// A blob under way.
pub(super) struct Writer {
    records: Arc<Records>,
    lease: Lease,
    filling: BytesMut,
    /// Blocks sent, and the bytes in them.
    blocks: u64,
    length: u64,
    on_their_way: JoinSet<Result<()>>,
    /// Why no more can be written: a call that failed, or that was given up half way.
    failed: Option<Error>,
}

impl Writer {
    /// A blob without bytes.
    pub(super) fn new(records: Arc<Records>, lease: Lease) -> Self {
        let (filling, on_their_way) = (BytesMut::new(), JoinSet::new());
        Self { records, lease, filling, blocks: 0, length: 0, on_their_way, failed: None }
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

    /// Sends a block once fewer than [`WRITES_MAX`] are on their way.
    async fn send(&mut self, block: Bytes) -> Result<()> {
        while self.on_their_way.len() >= WRITES_MAX {
            arrived(self.on_their_way.join_next().await)?;
        }
        let (index, name) = (self.blocks, self.lease.name);
        let groups = place(index).0 + 1;
        if self.lease.groups.is_some_and(|announced| announced < groups) {
            // Announced before there is a block in it, so that nobody overlooks it when the blob goes.
            self.lease.groups = Some(groups);
            self.records.grow(name, groups).await?;
        }
        self.blocks += 1;
        self.length += block.len() as u64;
        let records = self.records.clone();
        self.on_their_way.spawn(async move { put(&records, name, index, block).await });
        Ok(())
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // If this call is given up while it waits, part of the bytes may be missing: then nothing may follow.
        self.failed = Some(Error::new(Kind::Misuse, "a write of this blob was given up half way"));
        let answer = self.append(bytes).await;
        self.failed = answer.as_ref().err().cloned();
        answer
    }

    /// When "on disk" is on disk is the cluster's to say, as for rows.
    async fn finish(self: Box<Self>, _durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let mut this = *self;
        if let Some(error) = this.failed {
            return Err(error);
        }
        if !this.filling.is_empty() {
            let block = std::mem::take(&mut this.filling).freeze();
            this.send(block).await?;
        }
        while let Some(written) = this.on_their_way.join_next().await {
            arrived(Some(written))?;
        }
        this.records.finish(this.lease.name, this.length).await?;
        this.lease.groups = None;
        Ok(Box::new(this.lease))
    }
}

async fn put(records: &Records, name: Name, index: u64, block: Bytes) -> Result<()> {
    let (_, id, run) = name.key();
    let (group, number) = place(index);
    let check = check(name.id, name.run, index, &block);
    records.cql.run(Cql::PutBlock, (id, run, group, number, check, block, name.stamp(0))).await.map(|_| ())
}

fn arrived(written: Option<std::result::Result<Result<()>, JoinError>>) -> Result<()> {
    match written {
        None => Ok(()),
        Some(Ok(answer)) => answer,
        Some(Err(error)) => Err(Error::caused(Kind::Io, "writing a block", error)),
    }
}
