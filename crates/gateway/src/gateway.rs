//! The gateway: its parts, put together.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use crate::blobs::BlobCollector;
use crate::clock_issuer::ClockIssuer;
use crate::epochs::spawn_epoch_opener;
use crate::gateway_core::GatewayCore;
use crate::heartbeats::spawn_heartbeats;
use crate::hooks::CommitHooks;
use crate::kv::Kv;
use crate::mapreduce::RunningJobs;
use crate::members::Members;
use crate::metrics::{NodeInfo, ProcessStats, TrafficSummary};
use crate::outbox::{Outbox, WebhookBacklog, WebhookChoice, deliver_notices, take_over_once, watch_for_orphans};
use crate::ports::{EngineStatus, GatewayPorts};
use crate::security::Security;
use crate::types::{CatalogueCopy, Types};
use crate::{Config, Error, Result};

/// How long a shutdown waits for postcommit hooks.
const POSTCOMMIT_DRAIN: Duration = Duration::from_secs(5);

/// One running gateway.
pub struct Gateway {
    /// Ports, settings, metrics, admission.
    pub core: Arc<GatewayCore>,
    /// Key-value objects.
    pub kv: Kv,
    /// Bucket types and bucket properties.
    pub types: Types,
    /// The gateways that run.
    pub members: Arc<Members>,
    /// Users, grants and sources of Riak's protocols.
    pub security: Security,
    /// The MapReduce jobs that run here.
    pub jobs: Arc<RunningJobs>,
    /// The timestamps of writes.
    pub issuer: Arc<ClockIssuer>,
    /// The copy of the catalogue.
    pub catalogue: Arc<CatalogueCopy>,
    /// Bytes of large bodies: their marks, releases and sweep.
    pub blobs: Arc<BlobCollector>,
    outbox: Arc<Outbox>,
    /// The tasks that write heartbeats and open epochs.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The delivery of notices.
    deliveries: Mutex<JoinSet<()>>,
}

impl Gateway {
    /// Starts a gateway: stores a clock mark, loads the catalogue and starts heartbeats. On a full disk it starts without these
    /// writes: it serves reads, and retries the writes with every heartbeat.
    ///
    /// # Errors
    /// The store's; a gateway does not start without its catalogue, or while another one runs under its name.
    pub async fn start(ports: GatewayPorts, config: Config) -> Result<Arc<Self>> {
        let core = GatewayCore::new(ports, config);
        let issuer = Arc::new(ClockIssuer::load(Arc::clone(&core)).await?);
        let gateway = Arc::new(Self::assemble(core, issuer));
        let Self { core, members, issuer, catalogue, .. } = &*gateway;
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
        *gateway.tasks.lock() = vec![spawn_heartbeats(members), spawn_epoch_opener(members)];
        gateway.start_deliveries().await;
        Ok(gateway)
    }

    async fn start_deliveries(&self) {
        let Self { core, members, outbox, .. } = self;
        if core.config.single_process {
            // Bound: writes are served after the notices of earlier runs count [invariant 139].
            take_over_once(outbox, members).await;
        }
        let mut deliveries = self.deliveries.lock();
        deliveries.spawn(deliver_notices(Arc::clone(outbox)));
        deliveries.spawn(watch_for_orphans(Arc::clone(outbox), Arc::clone(members)));
    }

    fn assemble(core: Arc<GatewayCore>, issuer: Arc<ClockIssuer>) -> Self {
        let catalogue = CatalogueCopy::new(Arc::clone(&core));
        let members = Members::new(Arc::clone(&core), Arc::clone(&issuer), Arc::clone(&catalogue));
        let blobs = BlobCollector::new(Arc::clone(&core), Arc::clone(&issuer));
        let outbox = Outbox::new(Arc::clone(&core), Arc::clone(&issuer), Arc::clone(&catalogue));
        let hooks = Arc::new(CommitHooks::new(Arc::clone(&core), Arc::clone(&outbox)));
        let (of_kv, of_catalogue, of_blobs) = (Arc::clone(&core), Arc::clone(&catalogue), Arc::clone(&blobs));
        Self {
            kv: Kv::new(of_kv, Arc::clone(&issuer), of_catalogue, of_blobs, hooks),
            security: Security::new(Arc::clone(&core), Arc::clone(&catalogue), Arc::clone(&members)),
            types: Types { core: Arc::clone(&core), catalogue: Arc::clone(&catalogue), members: Arc::clone(&members) },
            core,
            members,
            jobs: Arc::default(),
            issuer,
            catalogue,
            blobs,
            outbox,
            tasks: Mutex::default(),
            deliveries: Mutex::default(),
        }
    }

    /// The notices for webhooks that wait on this gateway, by bucket and webhook.
    #[must_use]
    pub fn webhook_backlogs(&self) -> Vec<WebhookBacklog> {
        self.outbox.backlogs()
    }

    /// Drops notices for webhooks on this gateway, and returns their number. One that is under way is sent once more at most.
    pub fn drop_webhook_notices(&self, choice: &WebhookChoice) -> usize {
        self.outbox.drop_notices(choice)
    }

    /// Stops and deletes the heartbeat, so that no change waits for this gateway, and stores the clock. No write may follow.
    pub async fn shutdown(&self) {
        // Race: a heartbeat after the removal would make the others wait for a gateway that is gone.
        self.abandon();
        self.kv.hooks.drain(POSTCOMMIT_DRAIN).await;
        if let Err(error) = self.members.delete_heartbeat().await {
            tracing::warn!(%error, "heartbeat deletion failed: other gateways wait for it until it expires");
        }
    }

    /// Stops at once like a killed process: the heartbeat stays until it expires.
    pub fn abandon(&self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        self.deliveries.lock().abort_all();
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
        #[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
        samples.extend(self.core.audit().map(|log| ("larder_audit_lost_total", log.lost() as f64)));
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
            webhooks_waiting: self.outbox.waiting(),
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
