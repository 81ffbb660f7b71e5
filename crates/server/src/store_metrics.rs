//! Metrics of the calls to the store and of the memory of clients, for every engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use larder_admission::MemoryBudget;
use larder_core::{EngineNode, EngineSample, EngineStatus, StoredBytes};
use larder_store::metered::{Metered, StoreVerb, VerbCounts};
use larder_store::upkeep::NodeUpkeep;
use larder_store::{Blobs, Clock, Purpose, Store};
use larder_store_local::LocalStore;

use crate::memory::budget_samples;

/// An engine's own view, with the metrics of calls to its store and of the memory of clients.
pub(crate) struct StoreMetrics {
    inner: Arc<dyn EngineStatus>,
    store: Arc<Metered<dyn Store>>,
    blobs: Arc<Metered<dyn Blobs>>,
    client_memory: MemoryBudget,
}

/// The values of a verb, in the order of [`StoreVerb::metric_names`].
#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
static VALUES: [fn(VerbCounts) -> f64; 3] =
    [|count| count.calls as f64, |count| count.errors as f64, |count| count.time.as_secs_f64()];

impl StoreMetrics {
    /// Counts the calls to a store and its blobs, timed by `clock`; its samples come after those of `inner`.
    pub(crate) fn new(
        inner: Arc<dyn EngineStatus>,
        store: Arc<dyn Store>,
        blobs: Arc<dyn Blobs>,
        clock: Arc<dyn Clock>,
        client_memory: MemoryBudget,
    ) -> Self {
        let store = Arc::new(Metered::new(store, clock.clone()));
        Self { inner, store, blobs: Arc::new(Metered::new(blobs, clock)), client_memory }
    }

    /// The counted store.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The counted blobs.
    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        self.blobs.clone()
    }

    /// Every verb with its counts.
    fn counts(&self) -> Vec<(StoreVerb, VerbCounts)> {
        let (store, blobs) = (self.store.counts(), self.blobs.counts());
        let of = |verb| match verb {
            StoreVerb::Read | StoreVerb::Apply | StoreVerb::ApplyIf | StoreVerb::Partitions | StoreVerb::Now => {
                store.verb(verb)
            }
            StoreVerb::BlobCreate | StoreVerb::BlobOpen | StoreVerb::BlobRemove | StoreVerb::BlobList => {
                blobs.verb(verb)
            }
        };
        StoreVerb::ALL.into_iter().map(|verb| (verb, of(verb))).collect()
    }
}

#[async_trait]
impl EngineStatus for StoreMetrics {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn disk(&self) -> Option<(String, u64, u8)> {
        self.inner.disk()
    }

    fn stored(&self) -> Option<StoredBytes> {
        self.inner.stored()
    }

    fn fault(&self) -> Option<String> {
        self.inner.fault()
    }

    fn is_full(&self) -> bool {
        self.inner.is_full()
    }

    fn samples(&self) -> Vec<EngineSample> {
        let (mut samples, counts) = (self.inner.samples(), self.counts());
        for (index, value) in VALUES.iter().enumerate() {
            let row = |(verb, count): &(StoreVerb, VerbCounts)| (verb.metric_names()[index], value(*count));
            samples.extend(counts.iter().map(row));
        }
        samples.extend(budget_samples(&self.client_memory));
        samples
    }

    async fn upkeep(&self) -> Option<NodeUpkeep> {
        self.inner.upkeep().await
    }

    fn nodes(&self) -> Vec<EngineNode> {
        self.inner.nodes()
    }
}

/// The caches.
const CACHES: [&str; 2] = ["larder_engine_cache_bytes{of=\"entries\"}", "larder_engine_cache_bytes{of=\"blocks\"}"];
/// The floors, by purpose.
const FLOORS: [&str; Purpose::ALL.len()] =
    ["larder_disk_floor_bytes{purpose=\"data\"}", "larder_disk_floor_bytes{purpose=\"reclaim\"}"];
/// The refusals, by purpose.
const REFUSED: [&str; Purpose::ALL.len()] =
    ["larder_disk_refused_total{purpose=\"data\"}", "larder_disk_refused_total{purpose=\"reclaim\"}"];

/// The engine's view for operators; it reads the counters on each call.
pub(crate) struct LocalEngineMetrics {
    store: LocalStore,
    dir: PathBuf,
}

impl LocalEngineMetrics {
    /// The metrics of the store in `dir`.
    pub(crate) fn new(store: LocalStore, dir: &Path) -> Self {
        Self { store, dir: std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()) }
    }
}

impl EngineStatus for LocalEngineMetrics {
    fn name(&self) -> &'static str {
        "local"
    }

    fn disk(&self) -> Option<(String, u64, u8)> {
        let disk = rustix::fs::statvfs(&self.dir).ok()?;
        let used = disk.f_blocks.saturating_sub(disk.f_bfree);
        let percent = used.saturating_mul(100).checked_div(used + disk.f_bavail).unwrap_or_default();
        let kib = disk.f_blocks.saturating_mul(disk.f_frsize) / 1024;
        Some((self.dir.display().to_string(), kib, u8::try_from(percent).unwrap_or(100)))
    }

    fn stored(&self) -> Option<StoredBytes> {
        let (all, dead) = (self.store.disk_bytes(), self.store.dead_bytes());
        Some(StoredBytes { live: all.saturating_sub(dead), dead })
    }

    fn fault(&self) -> Option<String> {
        self.store.fault()
    }

    fn is_full(&self) -> bool {
        let space = self.store.disk_space().stats();
        space.capacity.free <= space.floors[Purpose::Data as usize]
    }

    #[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
    fn samples(&self) -> Vec<EngineSample> {
        let (stats, space) = (self.store.stats(), self.store.disk_space().stats());
        let stored = self.stored().unwrap_or_default();
        let mut samples = vec![
            ("larder_engine_groups_total", stats.groups as f64),
            ("larder_engine_batches_total", stats.batches as f64),
            ("larder_engine_syncs_total", stats.syncs as f64),
            ("larder_engine_queued", stats.queued as f64),
            ("larder_engine_disk_bytes", (stored.live + stored.dead) as f64),
            ("larder_engine_live_bytes", stored.live as f64),
            ("larder_engine_dead_bytes", stored.dead as f64),
            ("larder_engine_writable", f64::from(u8::from(self.store.is_ready()))),
            ("larder_disk_free_bytes", space.capacity.free as f64),
            ("larder_disk_held_bytes", space.held as f64),
        ];
        let memory = self.store.memory();
        samples.extend([
            ("larder_engine_memtable_bytes", memory.memtables as f64),
            ("larder_engine_retired_bytes", memory.retired as f64),
            ("larder_engine_table_index_bytes", memory.table_indexes as f64),
            (CACHES[0], memory.entry_cache as f64),
            (CACHES[1], memory.block_cache as f64),
        ]);
        let rows = |names: [&'static str; 2], values: [u64; 2]| {
            names.into_iter().zip(values).map(move |(name, value)| (name, value as f64))
        };
        samples.extend(rows(FLOORS, space.floors));
        samples.extend(rows(REFUSED, space.refused));
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_rows::content::BlobId;
    use larder_store::memory::MemoryStore;
    use larder_store::{CallOptions, ConsistencyLevel, Durability, SystemClock};

    fn metrics() -> StoreMetrics {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        StoreMetrics::new(Arc::new("memory"), memory.clone(), memory, clock, MemoryBudget::new(0, 0))
    }

    fn value(metrics: &StoreMetrics, name: &str) -> f64 {
        metrics.samples().iter().find(|sample| sample.0 == name).map(|sample| sample.1).unwrap()
    }

    #[tokio::test]
    async fn calls_and_errors_are_counted_by_verb() {
        let metrics = metrics();
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        let options = CallOptions::new(ConsistencyLevel::One, deadline, Durability::Buffered);
        metrics.store().now(&options).await.unwrap();
        assert!(metrics.blobs().open(BlobId([0; 24])).await.is_err());
        assert_eq!(value(&metrics, "larder_store_calls_total{verb=\"now\"}"), 1.0);
        assert_eq!(value(&metrics, "larder_store_errors_total{verb=\"now\"}"), 0.0);
        assert!(value(&metrics, "larder_store_seconds_total{verb=\"now\"}") > 0.0);
        assert_eq!(value(&metrics, "larder_store_calls_total{verb=\"blob_open\"}"), 1.0);
        assert_eq!(value(&metrics, "larder_store_errors_total{verb=\"blob_open\"}"), 1.0);
        assert_eq!(metrics.name(), "memory");
    }

    #[test]
    fn every_sample_has_a_row_in_the_table_of_metrics() {
        for (name, _) in metrics().samples() {
            assert!(larder_core::metrics::sample_family(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_row_names_its_verb_and_families_stay_together() {
        let mut samples = metrics().samples();
        samples.retain(|sample| sample.0.starts_with("larder_store_"));
        let mut families: Vec<&str> = samples.iter().filter_map(|sample| sample.0.split('{').next()).collect();
        families.dedup();
        assert_eq!(families, ["larder_store_calls_total", "larder_store_errors_total", "larder_store_seconds_total"]);
        for (sample, verb) in samples.iter().zip(StoreVerb::ALL.into_iter().cycle()) {
            assert!(sample.0.ends_with(&format!("{{verb=\"{}\"}}", verb.name())), "{}", sample.0);
        }
        assert_eq!(samples.len(), 3 * StoreVerb::ALL.len());
    }
}
