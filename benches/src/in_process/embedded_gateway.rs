//! Larder's gateway over its embedded engine, opened in this process as the server opens it.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use larder_core::body::PutBody;
use larder_core::{Config, GatewayPorts};
use larder_kv::rules::causality::Conditions;
use larder_kv::{Gateway, KvPut, Quorums};
use larder_rows::ActorId;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_store::metered::Metered;
use larder_store::{Clock, SystemClock};
use larder_store_local::blobs::LocalBlobs;
use larder_store_local::{LocalStore, OpenOptions};

/// The memory of the engine's cache.
const CACHE_BYTES: u64 = 64 * 1_024 * 1_024;

/// The most memory of rows that are not in tables yet.
const MEMTABLES_BYTES: u64 = 512 * 1_024 * 1_024;

/// The gateway and its engine.
#[derive(Clone)]
pub(super) struct EmbeddedGateway {
    gateway: Arc<Gateway>,
    store: LocalStore,
    bucket: BucketAddress,
}

impl EmbeddedGateway {
    /// Opens the data directory, which is made when missing, for durable writes.
    ///
    /// # Errors
    ///
    /// When it cannot be opened, or the gateway does not start.
    pub(super) async fn open(dir: &Path) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let store = LocalStore::open(OpenOptions {
            dir: dir.to_owned(),
            cache_bytes: CACHE_BYTES,
            memtables_bytes: MEMTABLES_BYTES,
            durable: true,
            accept_damaged_journal: false,
            sizes: None,
            clock: clock.clone(),
        })?;
        let blobs = LocalBlobs::open(dir, store.bulk_rows(), store.disk_space()).context("opening the blobs")?;
        let ports = GatewayPorts {
            // The server counts the calls of its store, too.
            store: Arc::new(Metered::new(Arc::new(store.clone()), clock.clone())),
            blobs: Arc::new(blobs),
            clock,
            actor: ActorId(RandomState::new().hash_one(std::process::id()).max(1)),
            random: |bytes| bytes.fill(7),
            engine: Arc::new("local"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let gateway = Gateway::start(ports, Config::default()).await?;
        let bucket = BucketAddress::new(Bytes::from_static(b"default"), Bytes::from_static(b"larder-bench"))?;
        Ok(Self { gateway, store, bucket })
    }

    /// Stores a value, without a context; returns after the sync.
    ///
    /// # Errors
    ///
    /// The gateway's.
    pub(super) async fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let content =
            KvContent { content_type: Some(Bytes::from_static(b"application/octet-stream")), ..KvContent::default() };
        let request = KvPut {
            address: self.address(key)?,
            context: None,
            conditions: Conditions::default(),
            if_not_modified: None,
            content,
            upload: PutBody::Bytes(Bytes::copy_from_slice(value)),
            quorums: Quorums::default(),
            return_body: false,
            timeout: None,
        };
        self.gateway.kv.put(request).await?;
        Ok(())
    }

    /// Reads a value; returns its length.
    ///
    /// # Errors
    ///
    /// The gateway's, and a missing key.
    #[cfg(test)]
    pub(super) async fn get(&self, key: &[u8]) -> Result<usize> {
        let request =
            larder_kv::KvGet { address: self.address(key)?, quorums: Quorums::default(), bodies: true, timeout: None };
        let found = self.gateway.kv.get(request).await?;
        match found.bodies.into_iter().next() {
            Some(larder_core::body::GetBody::Bytes(bytes)) => Ok(bytes.len()),
            _ => anyhow::bail!("no value in memory"),
        }
    }

    /// Ends the gateway, then the engine.
    ///
    /// # Errors
    ///
    /// The engine's.
    pub(super) async fn close(self) -> Result<()> {
        self.gateway.shutdown().await;
        Ok(self.store.close().await?)
    }

    fn address(&self, key: &[u8]) -> Result<Address> {
        Ok(Address::new(self.bucket.clone(), Bytes::copy_from_slice(key))?)
    }
}
