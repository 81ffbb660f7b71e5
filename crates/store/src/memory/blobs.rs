//! Blobs in a map. A reader holds the bytes themselves, so nobody takes them from it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use larder_model::content::BlobId;

use super::MemoryStore;
use crate::{BlobOwner, BlobReader, BlobWriter, Blobs, Durability, Error, Kind, Result};

/// All blobs, and how many leases each id is under.
#[derive(Default)]
pub(super) struct BlobMap {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blobs: BTreeMap<BlobId, (BlobOwner, Bytes)>,
    leases: HashMap<BlobId, usize>,
}

/// Keeps sweepers away until it is dropped.
struct Lease {
    map: Arc<BlobMap>,
    id: BlobId,
}

struct Writer {
    lease: Lease,
    owner: BlobOwner,
    bytes: BytesMut,
}

struct Reader {
    bytes: Bytes,
}

#[async_trait]
impl Blobs for MemoryStore {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        Ok(Box::new(Writer { lease: Lease::new(&self.blobs, id), owner, bytes: BytesMut::new() }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        let state = self.blobs.state.lock();
        let Some((_, bytes)) = state.blobs.get(&id) else {
            return Err(Error::new(Kind::NoSuchBlob, format!("there is no blob {}", id.hex())));
        };
        Ok(Box::new(Reader { bytes: bytes.clone() }))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.blobs.state.lock().blobs.remove(&id);
        Ok(())
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<(BlobId, BlobOwner)>> {
        let state = self.blobs.state.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = state.blobs.range((from, Bound::Unbounded));
        let free = behind.filter(|(id, _)| !state.leases.contains_key(id));
        Ok(free.take(limit).map(|(id, (owner, _))| (*id, owner.clone())).collect())
    }
}

#[async_trait]
impl BlobWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(self: Box<Self>, _durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let Self { lease, owner, bytes } = *self;
        lease.map.state.lock().blobs.insert(lease.id, (owner, bytes.freeze()));
        Ok(Box::new(lease))
    }
}

#[async_trait]
impl BlobReader for Reader {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let to = from.saturating_add(max).min(self.bytes.len());
        Ok(self.bytes.slice(from..to))
    }
}

impl Lease {
    fn new(map: &Arc<BlobMap>, id: BlobId) -> Self {
        *map.state.lock().leases.entry(id).or_default() += 1;
        Self { map: map.clone(), id }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let leases = &mut self.map.state.lock().leases;
        if let Some(held) = leases.get_mut(&self.id) {
            *held -= 1;
            if *held == 0 {
                leases.remove(&self.id);
            }
        }
    }
}
