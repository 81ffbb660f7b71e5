//! Blobs in a map. A reader shares the bytes, so it keeps them after the blob is removed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use larder_rows::content::BlobId;
use parking_lot::Mutex;

use super::MemoryStore;
use crate::leases::BlobLease;
use crate::{BlobOwner, BlobReader, BlobWriter, Blobs, Durability, Error, Kind, ListedBlob, Result, body_slice};

/// All blobs with their owners.
pub(super) type BlobMap = Mutex<BTreeMap<BlobId, (BlobOwner, Bytes)>>;

struct MemoryBlobWriter {
    map: Arc<BlobMap>,
    lease: BlobLease,
    id: BlobId,
    owner: BlobOwner,
    bytes: BytesMut,
}

struct MemoryBlobReader {
    bytes: Bytes,
}

#[async_trait]
impl Blobs for MemoryStore {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let lease = self.leases.acquire(id);
        Ok(Box::new(MemoryBlobWriter { map: self.blobs.clone(), lease, id, owner, bytes: BytesMut::new() }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        let blobs = self.blobs.lock();
        let Some((_, bytes)) = blobs.get(&id) else {
            return Err(Error::new(Kind::NoSuchBlob, format!("there is no blob {}", id.hex())));
        };
        Ok(Box::new(MemoryBlobReader { bytes: bytes.clone() }))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.blobs.lock().remove(&id);
        Ok(())
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        let blobs = self.blobs.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let following = blobs.range((from, Bound::Unbounded));
        let listed = |(id, (owner, _)): (&BlobId, &(BlobOwner, Bytes))| ListedBlob {
            id: *id,
            owner: owner.clone(),
            // Race: the lease is read under the lock of the blobs, after the blob; its writer took it before.
            leased: self.leases.is_leased(id),
        };
        Ok(following.take(limit).map(listed).collect())
    }

    fn is_ready(&self) -> bool {
        true
    }
}

#[async_trait]
impl BlobWriter for MemoryBlobWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(self: Box<Self>, _durability: Durability) -> Result<Box<dyn Send + Sync>> {
        // The blob becomes listed while its lease is still held.
        let Self { map, lease, id, owner, bytes } = *self;
        map.lock().insert(id, (owner, bytes.freeze()));
        Ok(Box::new(lease))
    }
}

#[async_trait]
impl BlobReader for MemoryBlobReader {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        Ok(body_slice(&self.bytes, offset, max))
    }
}
