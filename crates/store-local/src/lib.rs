//! The embedded engine: packed and wide tables on trees of `lsm-tree`, a journal of our own, one committer, blob files.
//!
//! ```text
//! store        LocalStore: reads run here, writes go to the queue
//! queue, lanes bounded queue, order of writes   committer     the one thread that writes: groups, frames, syncs
//! overlay      requests of a group see others   entry         keys and values in bytes, newer stamps win
//! journal      frames in sealed files           manifest      the files that must exist
//! trees, tree  the trees of lsm-tree            flush         memtables to tables
//! tree_options lsm-tree's options of each       large_values  values beside the tables
//! maintenance  flush, compaction, journal files disk_space    admission of writes by purpose
//! open         opens everything or nothing      precheck      reads before it opens         version_file  files of a tree, verified
//! range_scan   memtables and runs as one range  memtable_scan  the newest versions of its keys
//! archive      container format of lsm-tree     snapshots     numbers of readers, and parts that they keep
//! read, cache  pages, cached entries            sweep         expired rows
//! backup       of a directory in use
//! inspect      check and repair, offline        mirror        the server's own rows, twice
//! threads      real ones, or those of shuttle  schedules     their orders, tried
//! sizes, descriptors, io_errors, tree_id
//! ```
//! `docs/format.md` has every byte, `docs/decisions/0014` why.

mod archive;
pub mod backup;
pub mod blobs;
mod bulk_store;
mod cache;
mod committer;
mod descriptors;
mod disk_space;
mod entry;
mod flush;
mod format;
pub mod inspect;
mod io_errors;
mod journal;
mod lanes;
mod large_values;
mod maintenance;
mod manifest;
mod memtable_scan;
mod mirror;
mod open;
mod output_sync;
mod overlay;
mod precheck;
mod queue;
mod quiet;
mod range_scan;
mod read;
mod sizes;
mod snapshots;
mod space_debt;
mod store;
mod sweep;
mod syncer;
mod threads;
mod tree;
mod tree_id;
mod tree_options;
mod tree_reclaim;
mod trees;
mod version_file;

#[cfg(all(test, feature = "schedules"))]
mod schedules;
#[cfg(test)]
mod tests;

pub use bulk_store::BulkRows;
pub use descriptors::DESCRIPTORS_MAX;
pub use disk_space::{DiskCapacity, DiskSpace, SpaceReservation, SpaceStats};
pub use io_errors::OpenError;
pub use open::OpenOptions;
pub use sizes::EngineSizes;
pub use store::{CommitterStats, EngineMemory, LocalStore};
pub use sweep::SweepStep;
