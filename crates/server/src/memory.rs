//! Memory: how much of the machine the server takes, and for which parts.
//!
//! ```text
//! memory   the engine's cache | tables in memory | groups of writes, the gateway's caches | clients
//!          └────────────────────────────── fixed ──────────────────────────────────────┘
//! ```
//! The fixed parts have bounds of their own. Clients draw the rest, and wait or are refused when it is used up: [`MemoryBudget`].

use std::fs;
use std::path::{Path, PathBuf};

use larder_admission::MemoryBudget;
use larder_core::EngineSample;

use crate::settings::{ServerSettings, table};

const MIB: u64 = 1024 * 1024;
/// The part of the machine's memory that a server takes by default. The page cache needs most of the rest.
const PART_OF_MACHINE: u64 = 4;
/// Memory of a machine that does not report its own.
const MACHINE_BYTES_UNKNOWN: u64 = 1024 * MIB;
/// Most bytes of writes on their way to the journal, and of the gateway's caches.
const IN_FLIGHT_BYTES_MAX: u64 = 96 * MIB;

/// The parts of the memory, in bytes.
#[derive(Debug)]
pub(crate) struct MemoryPlan {
    /// The engine's cache.
    pub(crate) cache: u64,
    /// Rows that are not in tables yet, in memtables.
    pub(crate) memtables: u64,
    /// The budget that clients draw on.
    pub(crate) clients: MemoryBudget,
    /// A line for the log when the cache is smaller than its setting.
    pub(crate) note: Option<String>,
}

impl MemoryPlan {
    /// The plan of these settings on this machine.
    #[must_use]
    pub(crate) fn new(settings: &ServerSettings) -> Self {
        let total = settings.memory.unwrap_or_else(|| machine_bytes() / PART_OF_MACHINE);
        Self::divide(total, settings.cache_bytes)
    }

    fn divide(total: u64, cache_wanted: u64) -> Self {
        // Bound: the cache must leave room for memtables and clients whatever its setting is.
        let cache = cache_wanted.min(total / 4);
        let (memtables, in_flight) = (total / 8, IN_FLIGHT_BYTES_MAX.min(total / 8));
        let note = (cache < cache_wanted).then(|| {
            format!(
                "the cache takes {} MiB instead of {} ({}): a quarter of {} MiB ({}) at most",
                cache / MIB,
                cache_wanted / MIB,
                table::CACHE_SIZE.name,
                total / MIB,
                table::MEMORY.name
            )
        });
        let fixed = cache + memtables + in_flight;
        Self { cache, memtables, clients: MemoryBudget::new(total, fixed), note }
    }
}

/// Metrics of the memory that clients hold.
#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
pub(crate) fn budget_samples(budget: &MemoryBudget) -> Vec<EngineSample> {
    let usage = budget.usage();
    vec![
        ("larder_memory_held_bytes{draws=\"small\"}", usage.small as f64),
        ("larder_memory_held_bytes{draws=\"large\"}", usage.large as f64),
        ("larder_memory_max_bytes{draws=\"small\"}", usage.small_max as f64),
        ("larder_memory_max_bytes{draws=\"large\"}", usage.large_max as f64),
        ("larder_memory_waiting", usage.waiting as f64),
        ("larder_memory_refused_total", usage.refused as f64),
    ]
}

/// Memory of the machine, or of the container when that is less.
fn machine_bytes() -> u64 {
    let installed = fs::read_to_string("/proc/meminfo").ok().and_then(|text| installed(&text));
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // A container may have less memory than its machine, and it is killed above that.
    let limits = limit_files(&group).into_iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.chain(installed).min().unwrap_or(MACHINE_BYTES_UNKNOWN)
}

/// `MemTotal` of `/proc/meminfo`.
fn installed(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The files that limit the memory of this control group and of those around it; without a limit they hold no number.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let own_group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let unified = Path::new(own_group).ancestors().map(|group| root.join(group).join("memory.max"));
    unified.chain([root.join("memory/memory.limit_in_bytes")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_never_exceed_the_whole() {
        for total in [64, 256, 1024, 6 * 1024].map(|mib| mib * MIB) {
            let plan = MemoryPlan::divide(total, 256 * MIB);
            let usage = plan.clients.usage();
            let fixed = plan.cache + plan.memtables + IN_FLIGHT_BYTES_MAX.min(total / 8);
            assert!(fixed + usage.small_max + usage.large_max <= total, "{plan:?} {usage:?}");
            assert!(usage.large_max >= total / 4, "{plan:?} {usage:?}");
        }
    }

    #[test]
    fn a_cache_above_its_quarter_is_cut_with_a_note() {
        let plan = MemoryPlan::divide(256 * MIB, 256 * MIB);
        assert_eq!(plan.cache, 64 * MIB);
        assert!(plan.note.unwrap().contains("64 MiB instead of 256 (cache-size)"));
        assert_eq!(MemoryPlan::divide(1024 * MIB, 256 * MIB).note, None);
    }

    #[test]
    fn the_memory_of_the_machine_is_read_from_proc() {
        assert_eq!(installed("MemTotal:       1000 kB\nMemFree: 1 kB\n"), Some(1_024_000));
        assert_eq!(installed(""), None);
        assert!(machine_bytes() > 64 * MIB);
        let files = limit_files("0::/a/b\n");
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
    }
}
