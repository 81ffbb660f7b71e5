//! Blobs whose engine sees sealed bodies only.
//!
//! ```text
//! magic, 8 bytes · id of the data key, 8 · salt, 16 · check, 16 · chunks (`sealed_body`)
//! ```
//! The key of a body is derived from the data key, the id of the blob and the salt, so a body written again has another key. The
//! check is derived from the same: no clear body has it, so clear and sealed bodies lie beside each other.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{BlobOwner, BlobReader, BlobWriter, Blobs, Durability, ListedBlob, Result, body_slice};
use tokio::time::{Duration, Instant};

use super::data_keys::DataKeys;
use super::sealed_value::{DataKey, DataKeyId};
use crate::SealedBlob;
use crate::sealed_body::{BodyCipher, BodySealer, opened_length, sealed_length};
use crate::secret_key::SecretKey;

/// The first bytes of a sealed blob.
const MAGIC: &[u8; 8] = b"larder\xe5\x01";
/// Bytes before the chunks.
const FRONT: usize = 8 + 8 + 16 + 16;
/// Bytes that the first read of a blob asks for.
const FIRST_BYTES: usize = 64 * 1024;
const BODY: &[u8] = b"larder data body 1";
const CHECK: &[u8] = b"larder data body check 1";
/// Longest wait for a data key: calls of blobs name no deadline.
const KEY_WAIT: Duration = Duration::from_secs(10);

/// Seals bodies, and opens them. Where its data keys seal nothing new, bodies pass as they are.
pub struct SealedBlobs {
    inner: Arc<dyn Blobs>,
    keys: Arc<DataKeys>,
    random: fn(&mut [u8]),
}

impl SealedBlobs {
    /// Blobs over the engine's `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Blobs>, keys: Arc<DataKeys>, random: fn(&mut [u8])) -> Self {
        Self { inner, keys, random }
    }

    /// The data key that a front names, if its check is right.
    async fn key(&self, id: BlobId, front: &[u8]) -> Result<Option<BodyKey>> {
        let (Some(MAGIC), Some(data_key), Some(salt), Some(check)) =
            (front.first_chunk(), chunk(front, 8), chunk(front, 16), chunk::<16>(front, 32))
        else {
            return Ok(None);
        };
        let Some(key) = self.keys.find(DataKeyId(data_key), key_deadline()).await? else { return Ok(None) };
        let key = BodyKey { data_key: key, id, salt };
        Ok((key.check()? == check).then_some(key))
    }
}

fn key_deadline() -> Instant {
    Instant::now() + KEY_WAIT
}

fn chunk<const N: usize>(front: &[u8], at: usize) -> Option<[u8; N]> {
    front.get(at..)?.first_chunk().copied()
}

/// What the key of a body is derived from.
struct BodyKey {
    data_key: Arc<DataKey>,
    id: BlobId,
    salt: [u8; 16],
}

impl BodyKey {
    fn derive<const N: usize>(&self, purpose: &[u8]) -> Result<[u8; N]> {
        Ok(self.data_key.secret.derive(&self.salt, &[purpose, &self.id.0])?)
    }

    fn check(&self) -> Result<[u8; 16]> {
        self.derive(CHECK)
    }

    fn cipher(&self) -> Result<BodyCipher> {
        Ok(BodyCipher::new(&SecretKey::new(self.derive(BODY)?))?)
    }

    fn front(&self) -> Result<Bytes> {
        Ok([&MAGIC[..], &self.data_key.id.0, &self.salt, &self.check()?].concat().into())
    }
}

#[async_trait]
impl Blobs for SealedBlobs {
    async fn create(&self, id: BlobId, owner: BlobOwner) -> Result<Box<dyn BlobWriter>> {
        let mut inner = self.inner.create(id, owner).await?;
        if !self.keys.seals() {
            return Ok(inner);
        }
        let data_key = self.keys.current(key_deadline()).await?;
        let mut salt = [0; 16];
        (self.random)(&mut salt);
        let key = BodyKey { data_key, id, salt };
        let cipher = key.cipher()?;
        inner.write(key.front()?).await?;
        Ok(Box::new(SealingWriter { inner, sealer: BodySealer::new(cipher) }))
    }

    async fn open(&self, id: BlobId) -> Result<Box<dyn BlobReader>> {
        let mut inner = self.inner.open(id).await?;
        let front = read_front(&mut *inner).await?;
        let Some(key) = self.key(id, &front).await? else { return Ok(Box::new(ClearReader { inner, front })) };
        let cipher = key.cipher()?;
        let length = opened_length(inner.length() - FRONT as u64);
        Ok(Box::new(OpeningReader { inner, length, body: SealedBlob::new(cipher, FRONT as u64, length) }))
    }

    async fn remove(&self, id: BlobId) -> Result<()> {
        self.inner.remove(id).await
    }

    async fn list(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<ListedBlob>> {
        self.inner.list(after, limit).await
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }
}

/// The first bytes of a blob, at least as many as a front has; fewer of a shorter blob.
async fn read_front(blob: &mut dyn BlobReader) -> Result<Bytes> {
    let mut front = blob.read(0, FIRST_BYTES).await?;
    while front.len() < FRONT {
        let piece = blob.read(front.len() as u64, FRONT - front.len()).await?;
        if piece.is_empty() {
            break;
        }
        front = [front, piece].concat().into();
    }
    Ok(front)
}

/// A clear blob. Its first bytes were read already, which a cluster need not send twice.
struct ClearReader {
    inner: Box<dyn BlobReader>,
    front: Bytes,
}

#[async_trait]
impl BlobReader for ClearReader {
    fn length(&self) -> u64 {
        self.inner.length()
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        let front = body_slice(&self.front, offset, max);
        if front.is_empty() { self.inner.read(offset, max).await } else { Ok(front) }
    }
}

struct SealingWriter {
    inner: Box<dyn BlobWriter>,
    sealer: BodySealer,
}

#[async_trait]
impl BlobWriter for SealingWriter {
    async fn announce(&mut self, bytes: u64) -> Result<()> {
        self.inner.announce(sealed_length(bytes).saturating_add(FRONT as u64)).await
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        for chunk in self.sealer.push(&bytes)? {
            self.inner.write(chunk).await?;
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>, durability: Durability) -> Result<Box<dyn Send + Sync>> {
        let last = self.sealer.finish()?;
        self.inner.write(last).await?;
        self.inner.finish(durability).await
    }
}

struct OpeningReader {
    inner: Box<dyn BlobReader>,
    /// Length of the clear body, in bytes.
    length: u64,
    body: SealedBlob,
}

#[async_trait]
impl BlobReader for OpeningReader {
    fn length(&self) -> u64 {
        self.length
    }

    async fn read(&mut self, offset: u64, max: usize) -> Result<Bytes> {
        self.body.read(&mut *self.inner, offset, max).await
    }
}
