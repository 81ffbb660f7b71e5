//! Blobs of a faulty store. Blob calls have no deadline, so faults are `Io` errors.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, BlobReader, BlobWriter, Blobs, Durability, Kind, ListedBlob, Result};

use super::Faulty;
use super::injector::{FaultTerms, StoreFaultInjector};

const TERMS: FaultTerms = FaultTerms { deadline: None, refused: Kind::Io, lost: Kind::Io };

struct FaultyWriter {
    injector: Arc<StoreFaultInjector>,
    inner: Box<dyn BlobWriter>,
}

struct FaultyReader {
    injector: Arc<StoreFaultInjector>,
    inner: Box<dyn BlobReader>,
}

async fn call<T>(injector: &StoreFaultInjector, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let fate = injector.draw_call();
    injector.inject_before(&fate, &TERMS).await?;
    let answer = call.await;
    injector.inject_after(&fate, &TERMS).await?;
    answer
}

#[async_trait]
impl<S: Blobs + ?Sized> Blobs for Faulty<S> {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let inner = call(&self.injector, self.inner.create(id, owner)).await?;
        Ok(Box::new(FaultyWriter { injector: self.injector.clone(), inner }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        let inner = call(&self.injector, self.inner.open(id)).await?;
        Ok(Box::new(FaultyReader { injector: self.injector.clone(), inner }))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        call(&self.injector, self.inner.remove(id)).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        call(&self.injector, self.inner.list(after, limit)).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

#[async_trait]
impl BlobWriter for FaultyWriter {
    async fn announce(&mut self, bytes: u64) -> Result<()> {
        self.inner.announce(bytes).await
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        call(&self.injector, self.inner.write(bytes)).await
    }

    async fn finish(self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let Self { injector, inner } = *self;
        call(&injector, inner.finish(durability)).await
    }
}

#[async_trait]
impl BlobReader for FaultyReader {
    fn length(&self) -> u64 {
        self.inner.length()
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        call(&self.injector, self.inner.read(offset, max)).await
    }
}
