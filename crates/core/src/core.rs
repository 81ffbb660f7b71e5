//! The core: what every product of one process stands on, put together.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::blobs::BlobCollector;
use crate::clock_issuer::ClockIssuer;
use crate::gateway_core::GatewayCore;
use crate::heartbeats::spawn_heartbeats;
use crate::members::Members;
use crate::metrics::{NodeInfo, ProcessStats, TrafficSummary};
use crate::ports::{EngineStatus, GatewayPorts};
use crate::scripts::RunningJobs;
use crate::security::Security;
use crate::types::{CatalogueCopy, Types};
use crate::{Config, Error, Result};

/// One running core: one per process, under its products.
pub struct Core {
    /// Ports, settings, metrics, admission.
    pub core: Arc<GatewayCore>,
    /// Bucket types and bucket properties.
    pub types: Types,
    /// The gateways that run.
    pub members: Arc<Members>,
    /// Users, grants and sources of Riak's protocols.
    pub security: Security,
    /// The jobs that run here.
    pub jobs: Arc<RunningJobs>,
    /// The timestamps of writes.
    pub issuer: Arc<ClockIssuer>,
    /// The copy of the catalogue.
    pub catalogue: Arc<CatalogueCopy>,
    /// Bytes of large bodies: their marks, releases and sweep.
    pub blobs: Arc<BlobCollector>,
    /// The task that writes heartbeats.
    heartbeats: Mutex<Option<JoinHandle<()>>>,
}

impl Core {
    /// Starts a core: stores a clock mark, loads the catalogue and starts heartbeats. On a full disk it starts without these
    /// writes: it serves reads, and retries the writes with every heartbeat.
    ///
    /// # Errors
    /// The store's; a core does not start without its catalogue, or while another one runs under its name.
    pub async fn start(ports: GatewayPorts, config: Config) -> Result<Arc<Self>> {
        let core = GatewayCore::new(ports, config);
        let issuer = Arc::new(ClockIssuer::load(Arc::clone(&core)).await?);
        let started = Arc::new(Self::assemble(core, issuer));
        let Self { core, members, issuer, catalogue, .. } = &*started;
        // Catalogue and name come before the first heartbeat: a heartbeat claims that this gateway serves from its number.
        issuer.check_skew().await?;
        catalogue.refresh().await?;
        if core.config.single_process {
            tolerate_full_disk("clock mark not stored, so writes wait for it", issuer.store_mark().await)?;
            // The directory's lock proves these heartbeats dead; until they expire, changes would wait for them [invariant 69].
            tolerate_full_disk("heartbeats of dead processes not removed", members.drop_others().await)?;
        } else {
            members.claim_name().await?;
        }
        tolerate_full_disk("heartbeat not written", members.write_heartbeat().await)?;
        *started.heartbeats.lock() = Some(spawn_heartbeats(members));
        Ok(started)
    }

    fn assemble(core: Arc<GatewayCore>, issuer: Arc<ClockIssuer>) -> Self {
        let catalogue = CatalogueCopy::new(Arc::clone(&core));
        let members = Members::new(Arc::clone(&core), Arc::clone(&issuer), Arc::clone(&catalogue));
        let blobs = BlobCollector::new(Arc::clone(&core), Arc::clone(&issuer));
        Self {
            security: Security::new(Arc::clone(&core), Arc::clone(&catalogue), Arc::clone(&members)),
            types: Types { core: Arc::clone(&core), catalogue: Arc::clone(&catalogue), members: Arc::clone(&members) },
            core,
            members,
            jobs: Arc::default(),
            issuer,
            catalogue,
            blobs,
            heartbeats: Mutex::default(),
        }
    }

    /// Stops and deletes the heartbeat, so that no change waits for this process, and stores the clock. No write may follow.
    pub async fn leave(&self) {
        // Race: a heartbeat after the removal would make the others wait for a process that is gone.
        self.abandon();
        if let Err(error) = self.members.delete_heartbeat().await {
            tracing::warn!(%error, "heartbeat deletion failed: other gateways wait for it until it expires");
        }
    }

    /// Stops at once like a killed process: the heartbeat stays until it expires.
    pub fn abandon(&self) {
        if let Some(task) = self.heartbeats.lock().take() {
            task.abort();
        }
    }

    /// Whether it takes writes.
    pub fn is_ready(&self) -> bool {
        let ports = &self.core.ports;
        ports.store.is_ready() && ports.blobs.is_ready() && !self.issuer.is_skewed()
    }

    /// The traffic until now in a few figures.
    pub fn traffic(&self) -> TrafficSummary {
        self.core.metrics.traffic(self.core.monotonic())
    }

    /// The engine as operators see it.
    pub fn engine(&self) -> &dyn EngineStatus {
        &*self.core.ports.engine
    }

    /// Riak's statistics by their names, sorted.
    pub fn stats(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.with_node_info(|info| self.core.metrics.stats(info, self.core.monotonic()))
    }

    /// These statistics and more in the Prometheus exposition format.
    pub fn metrics_text(&self) -> String {
        self.with_node_info(|info| self.core.metrics.text(info, self.core.monotonic()))
    }

    fn with_node_info<T>(&self, show: impl FnOnce(&NodeInfo<'_>) -> T) -> T {
        let engine = &self.core.ports.engine;
        let mut samples = engine.samples();
        let ends = self.core.ports.certificate.as_ref().and_then(|certificate| certificate.ends());
        let more = [
            ("larder_tls_certificate_ends_seconds", ends),
            ("larder_audit_lost_total", self.core.audit().map(|log| log.lost())),
        ];
        #[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
        samples.extend(more.into_iter().filter_map(|(name, value)| Some((name, value? as f64))));
        show(&NodeInfo {
            node: &self.core.config.node,
            version: env!("CARGO_PKG_VERSION"),
            members: &self.members.known_names(),
            engine: engine.name(),
            disk: engine.disk().as_ref(),
            stored: engine.stored().unwrap_or_default(),
            fault: engine.fault().as_deref(),
            ready: self.is_ready(),
            catalogue: self.catalogue.current().number().0,
            webhooks_waiting: self.core.notices_waiting(),
            process: ProcessStats::read(),
            engine_samples: &samples,
        })
    }
}

/// Lets a start continue when the disk is too full for one of its writes: a heartbeat or the first need repeats the write.
fn tolerate_full_disk(what: &str, written: Result<()>) -> Result<()> {
    match written {
        Err(Error::DiskFull) => {
            tracing::warn!("the disk is full at start: {what}; reads are served");
            Ok(())
        }
        other => other,
    }
}
