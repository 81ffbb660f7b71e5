//! Metrics of the embedded engine.

use std::path::{Path, PathBuf};

use larder_core::{EngineSample, EngineStatus, StoredBytes};
use larder_store::{Purpose, Store as _};
use larder_store_local::LocalStore;

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
