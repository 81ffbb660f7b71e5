//! The gateway: what all faces call, and what it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_model::rows::{Micros, Stamp};
use larder_store::{Blobs, Clock, Durability, Level, Options, RateLimitedLog, Store};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::blobs::release::Releases;
use crate::clock::HybridClock;
use crate::cluster::EngineNode;
use crate::contention::WriterLines;
use crate::kv::patience::Patience;
use crate::kv::slots::Slots;
use crate::metrics::{About, Disk, Engine, Event, Metrics, Op, Outcome, Process};
use crate::objects::Sections;
use crate::types::{Catalogue, LastCheck};
use crate::views::KnownBuckets;
use crate::{Config, Error, Result, Rule, Rules, members};

/// Deadline of what a gateway does for itself.
pub(crate) const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// What a gateway is plugged into.
#[derive(Clone)]
pub struct Ports {
    /// Where rows are.
    pub store: Arc<dyn Store>,
    /// Where large bodies are.
    pub blobs: Arc<dyn Blobs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random name of this run of this process: never used before, and not 0.
    pub actor: u64,
    /// Fills bytes with randomness that nobody can guess: keys and secrets are made of it.
    pub random: fn(&mut [u8]),
    /// What operators see of the engine.
    pub engine: Arc<dyn EngineView>,
    /// Rules that tests may switch off.
    pub rules: Rules,
}

/// A figure of the engine for operators: metric name, value, help.
pub type Gauge = (&'static str, f64, &'static str);

/// The engine as operators see it.
pub trait EngineView: Send + Sync {
    /// Its name, such as `local`.
    fn name(&self) -> &str;

    /// The disk it writes to: where it is mounted, its size in KiB, how full it is in percent.
    fn disk(&self) -> Option<(String, u64, u8)>;

    /// Its own figures.
    fn gauges(&self) -> Vec<Gauge>;

    /// Its nodes; none where it runs in this process.
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

/// A request is among those admitted until this is dropped.
#[derive(Debug)]
#[must_use = "the request is admitted as long as this lives"]
pub struct Admitted(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// One running gateway.
pub struct Gateway {
    pub(crate) ports: Ports,
    pub(crate) config: Config,
    pub(crate) actor: u64,
    pub(crate) clock: HybridClock,
    /// Stamp of the stored clock mark; held while it is written, so that marks never go back.
    pub(crate) mark_stamp: tokio::sync::Mutex<Stamp>,
    /// When the catalogue was last checked, in microseconds of the monotonic clock; 0 before.
    pub(crate) checked_at: AtomicU64,
    keys_made: AtomicU64,
    pub(crate) catalogue: ArcSwap<Catalogue>,
    pub(crate) refreshing: tokio::sync::Mutex<LastCheck>,
    pub(crate) stale_log: RateLimitedLog,
    pub(crate) skewed: AtomicBool,
    pub(crate) known_buckets: KnownBuckets,
    pub(crate) slots: Slots,
    pub(crate) patience: Patience,
    pub(crate) writers: WriterLines,
    pub(crate) sections: Sections,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) releases: Releases,
    pub(crate) seen_members: ArcSwap<Vec<String>>,
    /// The catalogue's number that the last written heartbeat shows.
    pub(crate) told: AtomicU64,
    admission: Arc<Semaphore>,
    heartbeat: Mutex<Option<JoinHandle<()>>>,
}

impl Gateway {
    /// Starts a gateway: stores a clock mark, loads the catalogue, says that it runs, and goes on saying so. On a full disk it
    /// starts without having written: it serves reads, and tries its own writes again with every heartbeat.
    ///
    /// # Errors
    /// What the store answers; a gateway that cannot load its catalogue does not start, nor one whose name another one has.
    pub async fn start(ports: Ports, config: Config) -> Result<Arc<Self>> {
        let actor = members::actor_of(&ports, &config);
        let (clock, mark_stamp) = members::stored_clock(&ports, &config).await?;
        let metrics = Arc::new(Metrics::new());
        let (store, blobs) = (Arc::clone(&ports.store), Arc::clone(&ports.blobs));
        let releases = Releases::new(store, blobs, Arc::clone(&metrics), config.durable);
        let gateway = Arc::new(Self {
            clock,
            mark_stamp: tokio::sync::Mutex::new(mark_stamp),
            checked_at: AtomicU64::new(0),
            keys_made: AtomicU64::new(0),
            catalogue: ArcSwap::from_pointee(Catalogue::empty()),
            refreshing: tokio::sync::Mutex::default(),
            stale_log: RateLimitedLog::new(),
            skewed: AtomicBool::new(false),
            known_buckets: KnownBuckets::default(),
            slots: Slots::suiting(&ports.store.limits(), config.siblings_max, ports.rules),
            patience: Patience::default(),
            writers: WriterLines::default(),
            sections: Sections::default(),
            releases,
            metrics,
            seen_members: ArcSwap::default(),
            told: AtomicU64::new(0),
            admission: Arc::new(Semaphore::new(config.requests_max)),
            heartbeat: Mutex::new(None),
            actor,
            ports,
            config,
        });
        gateway.check_skew().await?;
        gateway.refresh().await?;
        if gateway.config.alone {
            unless_full("store the clock mark; writes wait for it", gateway.store_mark().await)?;
            unless_full("remove heartbeats of dead processes", gateway.drop_other_members().await)?;
        } else {
            gateway.claim_name().await?;
        }
        unless_full("write the heartbeat", gateway.say_alive().await)?;
        *gateway.heartbeat.lock() = Some(members::beat(&gateway));
        Ok(gateway)
    }

    /// Stops the heartbeat, takes it back, so that nobody waits for this gateway, and stores the clock. No write may follow.
    pub async fn shutdown(&self) {
        let beat = self.heartbeat.lock().take();
        if let Some(beat) = beat {
            beat.abort();
        }
        if let Err(error) = self.say_gone().await {
            tracing::warn!(%error, "the heartbeat was not taken back");
        }
    }

    /// Stops at once, as a killed process does: nothing is taken back.
    pub fn abandon(&self) {
        if let Some(beat) = self.heartbeat.lock().take() {
            beat.abort();
        }
    }

    /// The settings it was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether writes are taken.
    pub fn is_ready(&self) -> bool {
        self.ports.store.is_ready() && self.ports.blobs.is_ready() && !self.skewed.load(Ordering::Acquire)
    }

    /// Counts something that happened outside: an edge that caught a panic.
    pub fn event(&self, event: Event) {
        self.metrics.event(event);
    }

    /// Riak's statistics by their names, sorted.
    pub fn stats(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.described(|about| self.metrics.stats(about, self.monotonic()))
    }

    /// The same and more in the Prometheus exposition format.
    pub fn metrics_text(&self) -> String {
        self.described(|about| self.metrics.text(about, self.monotonic()))
    }

    fn described<T>(&self, show: impl FnOnce(&About<'_>) -> T) -> T {
        let engine = &self.ports.engine;
        let disk = engine.disk();
        let disks: Vec<_> =
            disk.iter().map(|(id, size_kib, used)| Disk { id, size_kib: *size_kib, used_percent: *used }).collect();
        show(&About {
            node: &self.config.node,
            version: env!("CARGO_PKG_VERSION"),
            members: &self.seen_members.load(),
            engine: Engine { name: engine.name(), disks: &disks },
            ready: self.is_ready(),
            catalogue: self.catalogue.load().number(),
            process: Process::read(),
            extra: &engine.gauges(),
        })
    }

    /// Wall clock in microseconds since 1970.
    pub fn now(&self) -> Micros {
        self.ports.clock.now()
    }

    /// Time since some fixed moment.
    pub fn monotonic(&self) -> Duration {
        self.ports.clock.monotonic()
    }

    /// A key for an object that came without: 160 bits that no other write has, in base 62.
    pub fn new_key(&self) -> String {
        let unique = self.keys_made.fetch_add(1, Ordering::Relaxed);
        let word = |salt: u8| larder_model::hash::id128(&[&self.actor.to_be_bytes(), &unique.to_be_bytes(), &[salt]]);
        let head = larder_model::hash::base62(word(0));
        let tail = larder_model::hash::base62(word(1) >> 96);
        format!("{head}{tail}")
    }

    /// Forgets which slots of keys are its own, as it does with one key after the other when there are too many.
    #[cfg(feature = "rules")]
    pub fn forget_slots(&self) {
        self.slots.forget();
    }

    /// The catalogue's number that its heartbeat shows: every write under way knows it.
    pub(crate) fn shown_number(&self) -> Stamp {
        let current = self.catalogue.load().number();
        self.sections.oldest().map_or(current, |oldest| oldest.min(current))
    }

    pub(crate) fn rule(&self, rule: Rule) -> bool {
        self.ports.rules.has(rule)
    }

    /// Options of a call the gateway makes for itself.
    pub(crate) fn own(&self, level: Level) -> Options {
        own_options(level)
    }

    /// Admits a request of a face that does not leave this to [`Self::measured`]: at most `requests_max` at once of all
    /// together.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub fn admit(&self) -> Result<Admitted> {
        let turn = Arc::clone(&self.admission).try_acquire_owned();
        turn.map(Admitted).map_err(|_| Error::Overloaded { retry_after: 1 })
    }

    /// Runs one operation: admits it, counts it, times it.
    pub(crate) async fn measured<T>(&self, op: Op, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.measured_as(op, |_| Outcome::Ok, work).await
    }

    /// As [`Self::measured`], where not every answer counts as [`Outcome::Ok`].
    pub(crate) async fn measured_as<T>(
        &self,
        op: Op,
        outcome: fn(&T) -> Outcome,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Ok(_admitted) = self.admission.try_acquire() else {
            return Err(Error::Overloaded { retry_after: 1 });
        };
        let _active = self.metrics.in_flight(op);
        let begun = self.ports.clock.monotonic();
        let result = work.await;
        let now = self.ports.clock.monotonic();
        let outcome = result.as_ref().map_or_else(Error::outcome, outcome);
        self.metrics.finished(op, now.saturating_sub(begun), outcome, now);
        result
    }
}

/// A write of the start that a full disk puts off: what it writes is written again with every heartbeat or before it is needed.
fn unless_full(what: &str, written: Result<()>) -> Result<()> {
    match written {
        Err(Error::DiskFull) => {
            tracing::warn!("the disk is full, so this start did not {what}; reads are served");
            Ok(())
        }
        other => other,
    }
}

/// Options of calls made for the gateway itself: they remove something, or keep gateways running.
pub(crate) fn own_options(level: Level) -> Options {
    Options::new(level, Instant::now() + HOUSEKEEPING, Durability::Buffered).reclaiming()
}
