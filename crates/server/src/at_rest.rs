//! Encryption at rest: wraps an engine where its rows are sealed, or are to be.

use std::sync::Arc;
use std::time::Duration;

use larder_encryption::at_rest::{DataKeys, SealWish, SealedBlobs, SealedStore};
use larder_encryption::key_ring::KeyRing;
use larder_store::{Blobs, Store};
use tokio::time::Instant;

use crate::failure::ServerFailure;
use crate::serve::fill_random;
use crate::settings::{EngineKind, ServerSettings, table};

/// Longest wait for the data keys at a start.
const KEYS_WAIT: Duration = Duration::from_secs(30);

/// What a server reads and writes: an engine, perhaps behind a seal.
pub(crate) struct EngineStores {
    /// The rows.
    pub(crate) store: Arc<dyn Store>,
    /// The large bodies.
    pub(crate) blobs: Arc<dyn Blobs>,
    /// The keys of the seal.
    pub(crate) data_keys: Option<Arc<DataKeys>>,
}

impl EngineStores {
    /// The stores of an engine, sealed where the settings ask for it or sealed rows are there already.
    ///
    /// # Errors
    /// A line that names the master key that is missing, or the setting that needs one.
    pub(crate) async fn seal(
        store: Arc<dyn Store>,
        blobs: Arc<dyn Blobs>,
        settings: &ServerSettings,
        ring: &Arc<KeyRing>,
    ) -> Result<Self, ServerFailure> {
        let is_cluster = settings.engine == EngineKind::Cassandra;
        let wish = match settings.encrypt_at_rest {
            true => SealWish::Seal,
            // Its gateways start one by one: those that do not seal yet read what others seal.
            false if is_cluster && !ring.ids().is_empty() => SealWish::Open,
            false => SealWish::Nothing,
        };
        // Gateways of a cluster make no key of their own; the first write would fail.
        if wish == SealWish::Seal && is_cluster && ring.ids().is_empty() {
            let (asked, needed) = (table::ENCRYPT_AT_REST.flag(), table::ENCRYPTION_KEYS.flag());
            return Err(ServerFailure(format!(
                "{asked} over a cluster needs a key: give every gateway the same {needed}"
            )));
        }
        let deadline = Instant::now() + KEYS_WAIT;
        let keys = DataKeys::open(Arc::clone(&store), Arc::clone(ring), fill_random, wish, deadline).await;
        let keys = keys.map_err(|error| ServerFailure(format!("cannot open the data keys: {error}")))?;
        let Some(keys) = keys else { return Ok(Self { store, blobs, data_keys: None }) };
        Ok(Self {
            store: Arc::new(SealedStore::new(store, Arc::clone(&keys))),
            blobs: Arc::new(SealedBlobs::new(blobs, Arc::clone(&keys), fill_random)),
            data_keys: Some(keys),
        })
    }
}
