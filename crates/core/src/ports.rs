//! The ports of a gateway: everything outside of it that it uses.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::ActorId;
use larder_store::upkeep::NodeUpkeep;
use larder_store::{Blobs, Clock, Store};

use crate::audit::AuditSink;
use crate::rules::props::WebhookUrl;
use crate::scripts::Scripts;
use crate::types::ProductRows;

/// Dependencies of a gateway.
#[derive(Clone)]
pub struct GatewayPorts {
    /// Rows.
    pub store: Arc<dyn Store>,
    /// Large bodies.
    pub blobs: Arc<dyn Blobs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random id of this run of this process: never used before, and not 0.
    pub actor: ActorId,
    /// Fills bytes with unguessable randomness, for keys and secrets.
    pub random: fn(&mut [u8]),
    /// The engine as operators see it.
    pub engine: Arc<dyn EngineStatus>,
    /// JavaScript; `None` where no call can be made.
    pub scripts: Option<Arc<dyn Scripts>>,
    /// The audit log; `None`: there is none.
    pub audit: Option<Arc<dyn AuditSink>>,
    /// The certificate of the listeners; `None`: they have none.
    pub certificate: Option<Arc<dyn CertificateStatus>>,
    /// The rows of the catalogue of the product beside key-value, as of none read.
    pub product: Arc<dyn ProductRows>,
    /// Receivers of webhooks; `None` where nothing can be sent.
    pub webhooks: Option<Arc<dyn Webhooks>>,
}

/// The certificate that clients see.
pub trait CertificateStatus: Send + Sync {
    /// The seconds since 1970 at which the first certificate of its chain ends; `None`: it cannot be read.
    fn ends(&self) -> Option<u64>;
}

/// A node of the engine, where it has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineNode {
    /// Its address.
    pub address: String,
    /// Whether this gateway reaches it.
    pub up: bool,
}

/// A metric of the engine: its name, which the table of families has, and its value.
pub type EngineSample = (&'static str, f64);

/// The bytes of an engine's tables and journals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// Of rows that a read may answer, at least.
    pub live: u64,
    /// Of removed and replaced rows, at most.
    pub dead: u64,
}

/// The engine as operators see it.
#[async_trait]
pub trait EngineStatus: Send + Sync {
    /// Its name, such as `local`.
    fn name(&self) -> &str;

    /// The disk it writes to: mount point, size in KiB, percent used.
    fn disk(&self) -> Option<(String, u64, u8)> {
        None
    }

    /// The bytes of its tables and journals; `None`: it does not count them.
    fn stored(&self) -> Option<StoredBytes> {
        None
    }

    /// A failure that ends or holds up its writes, or damage that it found; `None`: it knows of none.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Whether that disk has no room for writes of data.
    fn is_full(&self) -> bool {
        false
    }

    /// Its own metrics.
    fn samples(&self) -> Vec<EngineSample> {
        Vec::new()
    }

    /// What its nodes need of their operator; `None` for an engine in this process.
    async fn upkeep(&self) -> Option<NodeUpkeep> {
        None
    }

    /// Its nodes; none for an engine in this process.
    fn nodes(&self) -> Vec<EngineNode> {
        Vec::new()
    }
}

impl EngineStatus for &'static str {
    fn name(&self) -> &str {
        self
    }
}

/// Sends notices over HTTP.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Posts a JSON body to this address and to no other: a redirection is a failure. The caller gives it up after its time.
    ///
    /// # Errors
    /// One line for the log: no connection, no answer, or a status other than 2xx.
    async fn post(&self, request: WebhookRequest<'_>) -> std::result::Result<(), String>;
}

/// A request to a receiver.
#[derive(Debug, Clone)]
pub struct WebhookRequest<'a> {
    /// The address.
    pub url: &'a WebhookUrl,
    /// The id of the notice.
    pub id: &'a str,
    /// The value of the header `Authorization`; `None`: without it.
    pub authorization: Option<&'a str>,
    /// The JSON.
    pub body: Bytes,
}
