//! The core: what every product of one process stands on, put together.

use std::sync::Arc;

use larder_rows::Timestamp;
use larder_store::{Blobs, Store};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use crate::blobs::BlobCollector;
use crate::clock_issuer::ClockIssuer;
use crate::heartbeats::spawn_heartbeats;
use crate::members::Members;
use crate::metrics::{NodeInfo, ProcessStats, TrafficSummary};
use crate::node_context::NodeContext;
use crate::outbox::{Outbox, deliver_notices, take_over_once, watch_for_orphans};
use crate::ports::{EngineStatus, GatewayPorts};
use crate::readiness::NotReadyReason;
use crate::scripts::RunningJobs;
use crate::security::Security;
use crate::types::{CatalogueCopy, Types};
use crate::{Config, Error, Result};

/// One running core: one per process, under its products.
pub struct Core {
    /// Ports, settings, metrics, admission.
    context: Arc<NodeContext>,
    /// Bucket types and bucket properties.
    types: Types,
    /// The gateways that run.
    members: Arc<Members>,
    /// Users, grants and sources of Riak's protocols.
    security: Security,
    /// The jobs that run here.
    jobs: Arc<RunningJobs>,
    /// The timestamps of writes.
    issuer: Arc<ClockIssuer>,
    /// The copy of the catalogue.
    catalogue: Arc<CatalogueCopy>,
    /// Bytes of large bodies: their marks, releases and sweep.
    blobs: Arc<BlobCollector>,
    /// The notices for receivers.
    outbox: Arc<Outbox>,
    /// The task that writes heartbeats.
    heartbeats: Mutex<Option<JoinHandle<()>>>,
    /// The delivery of notices.
    deliveries: Mutex<JoinSet<()>>,
}

impl Core {
    /// Starts a core: stores a clock mark, loads the catalogue and starts heartbeats. On a full disk it starts without these
    /// writes: it serves reads, and retries the writes with every heartbeat.
    ///
    /// # Errors
    /// The store's; a core does not start without its catalogue, or while another one runs under its name.
    pub async fn start(ports: GatewayPorts, config: Config) -> Result<Arc<Self>> {
        let context = NodeContext::new(ports, config);
        let issuer = Arc::new(ClockIssuer::load(Arc::clone(&context)).await?);
        let started = Arc::new(Self::assemble(context, issuer));
        let Self { context, members, issuer, catalogue, .. } = &*started;
        // Catalogue and name come before the first heartbeat: a heartbeat claims that this gateway serves from its number.
        issuer.check_skew().await?;
        catalogue.refresh().await?;
        if context.config.single_process {
            tolerate_full_disk("clock mark not stored, so writes wait for it", issuer.store_mark().await)?;
            // The directory's lock proves these heartbeats dead; until they expire, changes would wait for them [invariant 69].
            tolerate_full_disk("heartbeats of dead processes not removed", members.drop_others().await)?;
        } else {
            members.claim_name().await?;
        }
        tolerate_full_disk("heartbeat not written", members.write_heartbeat().await)?;
        *started.heartbeats.lock() = Some(spawn_heartbeats(members));
        started.start_deliveries().await;
        Ok(started)
    }

    async fn start_deliveries(&self) {
        let (members, outbox) = (&self.members, &self.outbox);
        // Bound: writes are served after the notices of earlier runs count [invariant 139], and queue behind them [invariant 202].
        take_over_once(outbox, members).await;
        let mut deliveries = self.deliveries.lock();
        deliveries.spawn(deliver_notices(Arc::clone(outbox)));
        deliveries.spawn(watch_for_orphans(Arc::clone(outbox), Arc::clone(members)));
    }

    /// What the parts share: ports, settings, metrics, admission, clocks and names.
    #[inline]
    pub fn context(&self) -> &Arc<NodeContext> {
        &self.context
    }

    /// Bucket types and bucket properties: create, propagate, activate, update, read.
    #[inline]
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// The gateways that run, and until when others wait for this one.
    #[inline]
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Users, groups, grants and sources of Riak's protocols.
    #[inline]
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// The MapReduce jobs that run on this node.
    pub fn jobs(&self) -> &Arc<RunningJobs> {
        &self.jobs
    }

    /// The timestamps of writes: each is greater than every one before it, also of earlier runs.
    #[inline]
    pub fn issuer(&self) -> &Arc<ClockIssuer> {
        &self.issuer
    }

    /// This node's copy of the catalogue, kept fresh, with the guards that hold back its changes.
    #[inline]
    pub fn catalogue(&self) -> &Arc<CatalogueCopy> {
        &self.catalogue
    }

    /// The bytes of large bodies: marks of uploads, releases of what is replaced, the sweep.
    #[inline]
    pub fn blobs(&self) -> &Arc<BlobCollector> {
        &self.blobs
    }

    /// The notices for receivers over HTTP: reserved before a write, stored with it, delivered after it.
    #[inline]
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    fn assemble(context: Arc<NodeContext>, issuer: Arc<ClockIssuer>) -> Self {
        let catalogue = CatalogueCopy::new(Arc::clone(&context));
        let members = Members::new(Arc::clone(&context), Arc::clone(&issuer), Arc::clone(&catalogue));
        let blobs = BlobCollector::new(Arc::clone(&context), Arc::clone(&issuer));
        let outbox = Outbox::new(Arc::clone(&context), Arc::clone(&issuer), Arc::clone(&catalogue));
        Self {
            security: Security::new(Arc::clone(&context), Arc::clone(&catalogue), Arc::clone(&members)),
            types: Types {
                context: Arc::clone(&context),
                catalogue: Arc::clone(&catalogue),
                members: Arc::clone(&members),
            },
            context,
            members,
            jobs: Arc::default(),
            issuer,
            catalogue,
            blobs,
            outbox,
            heartbeats: Mutex::default(),
            deliveries: Mutex::default(),
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
        self.deliveries.lock().abort_all();
    }

    /// Whether it takes writes.
    pub fn is_ready(&self) -> bool {
        let ports = &self.context.ports;
        ports.store.is_ready() && ports.blobs.is_ready() && !self.issuer.is_skewed()
    }

    /// Whether this gateway should get requests.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn readiness(&self) -> std::result::Result<(), NotReadyReason> {
        let (context, ports) = (&self.context, &self.context.ports);
        let nodes = ports.engine.nodes();
        let is_cut_off = !nodes.is_empty() && nodes.iter().all(|node| !node.up);
        let reasons = [
            (NotReadyReason::Stopping, context.is_stopping()),
            (NotReadyReason::StoreUnreachable, is_cut_off || self.catalogue.peek(context.monotonic()).is_none()),
            (NotReadyReason::ReadOnly, !ports.store.is_ready() || !ports.blobs.is_ready()),
            (NotReadyReason::DiskFull, ports.engine.is_full()),
            (NotReadyReason::ClockSkewed, self.issuer.is_skewed()),
        ];
        reasons.into_iter().find(|(_, holds)| *holds).map_or(Ok(()), |(reason, _)| Err(reason))
    }

    /// The traffic until now in a few figures.
    pub fn traffic(&self) -> TrafficSummary {
        self.context.metrics.traffic(self.context.monotonic())
    }

    /// The engine as operators see it.
    pub fn engine(&self) -> &dyn EngineStatus {
        &*self.context.ports.engine
    }

    /// Riak's statistics by their names, sorted.
    pub fn stats(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.with_node_info(|info| self.context.metrics.stats(info, self.context.monotonic()))
    }

    /// These statistics and more in the Prometheus exposition format.
    pub fn metrics_text(&self) -> String {
        self.with_node_info(|info| self.context.metrics.text(info, self.context.monotonic()))
    }

    /// The stores of rows and large bodies. Writes to them bypass every guarantee of the gateway.
    pub fn stores(&self) -> (Arc<dyn Store>, Arc<dyn Blobs>) {
        (Arc::clone(&self.context.ports.store), Arc::clone(&self.context.ports.blobs))
    }

    /// Adopts rows that an import wrote directly: the clock moves past their greatest stamp, so that later writes are newer,
    /// and the catalogue is read again.
    ///
    /// # Errors
    /// The store's.
    pub async fn adopt_imported_rows(&self, greatest: Timestamp) -> Result<()> {
        self.issuer.clock.observe(greatest);
        // Crash: the next run of a single gateway must also start above the imported rows.
        self.issuer.store_mark().await?;
        self.catalogue.refresh().await
    }

    fn with_node_info<T>(&self, show: impl FnOnce(&NodeInfo<'_>) -> T) -> T {
        let engine = &self.context.ports.engine;
        let mut samples = engine.samples();
        let ends = self.context.ports.certificate.as_ref().and_then(|certificate| certificate.ends());
        let more = [
            ("larder_tls_certificate_ends_seconds", ends),
            ("larder_audit_lost_total", self.context.audit().map(|log| log.lost())),
        ];
        #[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
        samples.extend(more.into_iter().filter_map(|(name, value)| Some((name, value? as f64))));
        samples.extend(self.context.metrics.move_samples());
        show(&NodeInfo {
            node: &self.context.config.node,
            version: env!("CARGO_PKG_VERSION"),
            members: &self.members.known_names(),
            engine: engine.name(),
            disk: engine.disk().as_ref(),
            stored: engine.stored().unwrap_or_default(),
            fault: engine.fault().as_deref(),
            ready: self.is_ready(),
            catalogue: self.catalogue.current().number().0,
            webhooks_waiting: self.outbox.waiting(),
            webhooks_waiting_most: self.outbox.waiting_most(),
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
