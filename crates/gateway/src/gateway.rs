//! The gateway: the type that all edges call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_model::rows::{Micros, Stamp};
use larder_store::{Blobs, CallOptions, Clock, ConsistencyLevel, Durability, RateLimitedLog, Store};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::blobs::release::BlobReleaser;
use crate::clock::HybridClock;
use crate::cluster::EngineNode;
use crate::contention::WriterQueues;
use crate::kv::adaptive_timeout::AdaptiveTimeout;
use crate::kv::slots::SlotAllocator;
use crate::membership_lease::MembershipLease;
use crate::metrics::{DiskUsage, EngineInfo, Event, KvOp, Metrics, NodeInfo, ProcessStats, RequestOutcome};
use crate::objects::CatalogueGuards;
use crate::types::{Catalogue, LastCheck};
use crate::views::KnownBuckets;
use crate::{Config, Error, Result, members};

/// Timeout of calls that a gateway makes for itself.
pub(crate) const INTERNAL_CALL_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub actor: u64,
    /// Fills bytes with unguessable randomness, for keys and secrets.
    pub random: fn(&mut [u8]),
    /// The engine as operators see it.
    pub engine: Arc<dyn EngineView>,
}

/// A metric of the engine: name, value, help.
pub type Gauge = (&'static str, f64, &'static str);

/// The engine as operators see it.
pub trait EngineView: Send + Sync {
    /// Its name, such as `local`.
    fn name(&self) -> &str;

    /// The disk it writes to: mount point, size in KiB, percent used.
    fn disk(&self) -> Option<(String, u64, u8)>;

    /// Its own metrics.
    fn gauges(&self) -> Vec<Gauge>;

    /// Its nodes; none for an engine in this process.
    fn nodes(&self) -> Vec<EngineNode>;
}

impl EngineView for &'static str {
    fn name(&self) -> &str {
        self
    }

    fn disk(&self) -> Option<(String, u64, u8)> {
        None
    }

    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }

    fn nodes(&self) -> Vec<EngineNode> {
        Vec::new()
    }
}

/// Counts a request as admitted until dropped.
#[derive(Debug)]
#[must_use = "the request is admitted as long as this lives"]
pub struct AdmissionGuard(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// One running gateway.
pub struct Gateway {
    pub(crate) ports: GatewayPorts,
    pub(crate) config: Config,
    pub(crate) actor: u64,
    pub(crate) clock: HybridClock,
    /// Stamp of the stored clock mark. The lock is held during the write: two writers in another order would lower the mark.
    pub(crate) mark_stamp: tokio::sync::Mutex<Stamp>,
    /// Begin of the last catalogue check, in microseconds of the monotonic clock; 0: none yet.
    pub(crate) checked_at: AtomicU64,
    keys_made: AtomicU64,
    pub(crate) catalogue: ArcSwap<Catalogue>,
    pub(crate) refresh_lock: tokio::sync::Mutex<LastCheck>,
    pub(crate) stale_log: RateLimitedLog,
    pub(crate) is_skewed: AtomicBool,
    pub(crate) known_buckets: KnownBuckets,
    pub(crate) slots: SlotAllocator,
    pub(crate) replica_timeout: AdaptiveTimeout,
    pub(crate) writer_queues: WriterQueues,
    pub(crate) catalogue_guards: CatalogueGuards,
    pub(crate) lease: MembershipLease,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) releases: BlobReleaser,
    pub(crate) known_members: ArcSwap<Vec<String>>,
    /// The catalogue number in the last written heartbeat.
    pub(crate) advertised_number: AtomicU64,
    admission: Arc<Semaphore>,
    heartbeat: Mutex<Option<JoinHandle<()>>>,
}

impl Gateway {
    /// Starts a gateway: stores a clock mark, loads the catalogue and starts heartbeats. On a full disk it starts without these
    /// writes: it serves reads, and retries the writes with every heartbeat.
    ///
    /// # Errors
    /// The store's; a gateway does not start without its catalogue, or while another one runs under its name.
    pub async fn start(ports: GatewayPorts, config: Config) -> Result<Arc<Self>> {
        let (clock, mark_stamp) = members::stored_clock(&ports, &config).await?;
        let metrics = Arc::new(Metrics::new());
        let (store, blobs) = (Arc::clone(&ports.store), Arc::clone(&ports.blobs));
        let releases = BlobReleaser::new(store, blobs, Arc::clone(&metrics), config.durable);
        let gateway = Arc::new(Self {
            clock,
            mark_stamp: tokio::sync::Mutex::new(mark_stamp),
            checked_at: AtomicU64::new(0),
            keys_made: AtomicU64::new(0),
            catalogue: ArcSwap::from_pointee(Catalogue::empty()),
            refresh_lock: tokio::sync::Mutex::default(),
            stale_log: RateLimitedLog::new(),
            is_skewed: AtomicBool::new(false),
            known_buckets: KnownBuckets::default(),
            slots: SlotAllocator::for_engine(&ports.store.limits(), config.siblings_max),
            replica_timeout: AdaptiveTimeout::default(),
            writer_queues: WriterQueues::default(),
            catalogue_guards: CatalogueGuards::default(),
            lease: MembershipLease::default(),
            releases,
            metrics,
            known_members: ArcSwap::default(),
            advertised_number: AtomicU64::new(0),
            admission: Arc::new(Semaphore::new(config.requests_max)),
            heartbeat: Mutex::new(None),
            actor: ports.actor,
            ports,
            config,
        });
        // Catalogue and name come before the first heartbeat: a heartbeat claims that this gateway serves from its number.
        gateway.check_skew().await?;
        gateway.refresh_catalogue().await?;
        if gateway.config.alone {
            tolerate_full_disk("clock mark not stored, so writes wait for it", gateway.store_mark().await)?;
            tolerate_full_disk("heartbeats of dead processes not removed", gateway.drop_other_members().await)?;
        } else {
            gateway.claim_name().await?;
        }
        tolerate_full_disk("heartbeat not written", gateway.write_heartbeat().await)?;
        *gateway.heartbeat.lock() = Some(members::spawn_heartbeats(&gateway));
        Ok(gateway)
    }

    /// Stops and deletes the heartbeat, so that no change waits for this gateway, and stores the clock. No write may follow.
    pub async fn shutdown(&self) {
        let heartbeats = self.heartbeat.lock().take();
        if let Some(heartbeats) = heartbeats {
            heartbeats.abort();
        }
        if let Err(error) = self.delete_heartbeat().await {
            tracing::warn!(%error, "heartbeat deletion failed: other gateways wait for it until it expires");
        }
    }

    /// Stops at once like a killed process: the heartbeat stays until it expires.
    pub fn abandon(&self) {
        if let Some(heartbeats) = self.heartbeat.lock().take() {
            heartbeats.abort();
        }
    }

    /// The settings it was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it takes writes.
    pub fn is_ready(&self) -> bool {
        self.ports.store.is_ready() && self.ports.blobs.is_ready() && !self.is_skewed.load(Ordering::Acquire)
    }

    /// Counts an event of an edge, such as a caught panic.
    pub fn count_event(&self, event: Event) {
        self.metrics.count_event(event);
    }

    /// Riak's statistics by their names, sorted.
    pub fn stats(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.with_node_info(|info| self.metrics.stats(info, self.monotonic()))
    }

    /// These statistics and more in the Prometheus exposition format.
    pub fn metrics_text(&self) -> String {
        self.with_node_info(|info| self.metrics.text(info, self.monotonic()))
    }

    fn with_node_info<T>(&self, show: impl FnOnce(&NodeInfo<'_>) -> T) -> T {
        let engine = &self.ports.engine;
        let disk = engine.disk();
        let disks: Vec<_> = disk
            .iter()
            .map(|(id, size_kib, used)| DiskUsage { id, size_kib: *size_kib, used_percent: *used })
            .collect();
        show(&NodeInfo {
            node: &self.config.node,
            version: env!("CARGO_PKG_VERSION"),
            members: &self.known_members.load(),
            engine: EngineInfo { name: engine.name(), disks: &disks },
            ready: self.is_ready(),
            catalogue: self.catalogue.load().number(),
            process: ProcessStats::read(),
            extra: &engine.gauges(),
        })
    }

    /// Wall clock in microseconds since 1970.
    pub fn now(&self) -> Micros {
        self.ports.clock.now()
    }

    /// Monotonic time since a fixed moment.
    pub fn monotonic(&self) -> Duration {
        self.ports.clock.monotonic()
    }

    /// A unique key for an object put without one: 160 bits in base 62.
    pub fn new_key(&self) -> String {
        let unique = self.keys_made.fetch_add(1, Ordering::Relaxed);
        let word = |salt: u8| larder_model::hash::id128(&[&self.actor.to_be_bytes(), &unique.to_be_bytes(), &[salt]]);
        let head = larder_model::hash::base62(word(0));
        let tail = larder_model::hash::base62(word(1) >> 96);
        format!("{head}{tail}")
    }

    /// The catalogue number that a heartbeat may show: that of the copy, or of the oldest guard. Every guarded write relies on
    /// it or a newer one.
    pub(crate) fn advertisable_number(&self) -> Stamp {
        // The copy is loaded before the guards: a guard taken after this load is on this number or a newer one.
        let current = self.catalogue.load().number();
        self.catalogue_guards.oldest().map_or(current, |oldest| oldest.min(current))
    }

    /// Options of a call that the gateway makes for itself.
    pub(crate) fn internal_options(&self, level: ConsistencyLevel) -> CallOptions {
        internal_options(level)
    }

    /// Admits a request of an edge that does not go through [`Self::measure`]: `requests_max` at once, over all edges.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub fn admit(&self) -> Result<AdmissionGuard> {
        let permit = Arc::clone(&self.admission).try_acquire_owned();
        permit.map(AdmissionGuard).map_err(|_| Error::Overloaded { retry_after: 1 })
    }

    /// Runs one operation: admits, counts and times it.
    pub(crate) async fn measure<T>(&self, op: KvOp, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.measure_as(op, |_| RequestOutcome::Ok, work).await
    }

    /// As [`Self::measure`], for answers that do not all count as [`RequestOutcome::Ok`].
    pub(crate) async fn measure_as<T>(
        &self,
        op: KvOp,
        outcome: fn(&T) -> RequestOutcome,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Ok(_admitted) = self.admission.try_acquire() else {
            return Err(Error::Overloaded { retry_after: 1 });
        };
        let _active = self.metrics.begin_request(op);
        let begun = self.ports.clock.monotonic();
        let result = work.await;
        let now = self.ports.clock.monotonic();
        let outcome = result.as_ref().map_or_else(Error::outcome, outcome);
        self.metrics.record_request(op, now.saturating_sub(begun), outcome, now);
        result
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

/// Options of calls that the gateway makes for itself: they free space or keep gateways running, so a full disk accepts them.
pub(crate) fn internal_options(level: ConsistencyLevel) -> CallOptions {
    CallOptions::new(level, Instant::now() + INTERNAL_CALL_TIMEOUT, Durability::Buffered).reclaiming()
}
