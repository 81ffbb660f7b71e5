//! The embedded engine as operators see it.

use std::path::{Path, PathBuf};

use larder_gateway::{EngineView, Gauge};
use larder_store::Store as _;
use larder_store_local::LocalStore;

/// Reads the engine's figures when somebody asks.
pub(crate) struct LocalFigures {
    store: LocalStore,
    dir: PathBuf,
}

impl LocalFigures {
    /// Figures of the store in `dir`.
    pub(crate) fn new(store: LocalStore, dir: &Path) -> Self {
        Self { store, dir: std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()) }
    }
}

impl EngineView for LocalFigures {
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

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    fn gauges(&self) -> Vec<Gauge> {
        let stats = self.store.stats();
        vec![
            ("larder_engine_groups_total", stats.groups as f64, "Groups of writes committed since the start."),
            ("larder_engine_batches_total", stats.batches as f64, "Writes in these groups."),
            ("larder_engine_syncs_total", stats.syncs as f64, "Syncs of the journal since the start."),
            ("larder_engine_queued", stats.queued as f64, "Writes waiting for the committer."),
            ("larder_engine_disk_bytes", self.store.disk_bytes() as f64, "Bytes of tables and journals on disk."),
            ("larder_engine_writable", f64::from(u8::from(self.store.is_ready())), "1 while writes are taken."),
        ]
    }
}
