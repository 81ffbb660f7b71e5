//! The embedded engine: packed and wide tables on trees of `lsm-tree`, a journal of our own, one committer, blob files.
//!
//! ```text
//! store       what callers hold: reads here, writes to the queue
//! queue       bounded, waiting bounded          committer    the one thread that writes: group, journal, memtables, sync
//! overlay     queued writes see each other      merge        stamps decide, pure
//! journal     frames in sealed files            manifest     which files must be there
//! spaces      the three trees                   tree, flush  memtables and tables           snapshots  what readers may ask for
//! maintenance flushes, compacts, releases       disk_space   what may still be written, by purpose
//! open        opens everything or nothing       precheck     read before it is opened       version_file  what a tree names
//! archive     the frame of tables, files of large values and versions
//! keys, entry the bytes                         read         pages                          sweep      expired rows
//! proof       before a compaction believes a table
//! inspect     check and repair, offline         sizes, descriptors  how large, how many files
//! ```
//! `docs/format.md` has every byte, `docs/decisions/0014` why.

mod archive;
pub mod blobs;
mod bulk;
mod bulk_store;
mod cache;
mod committer;
mod descriptors;
mod disk;
mod disk_space;
mod entry;
mod flush;
mod format;
pub mod inspect;
mod journal;
mod keys;
mod lanes;
mod maintenance;
mod manifest;
mod merge;
mod open;
mod overlay;
mod precheck;
mod proof;
mod queue;
mod read;
mod sizes;
mod snapshots;
mod spaces;
mod store;
mod sweep;
mod synced;
mod tree;
mod version_file;

#[cfg(test)]
mod tests;

pub use bulk::BulkRows;
pub use descriptors::DESCRIPTORS_MAX;
pub use disk_space::{DiskRoom, DiskSpace, SpaceFigures, SpaceReservation};
pub use open::{OpenError, OpenOptions};
pub use sizes::EngineSizes;
pub use store::{LocalStore, Stats};
pub use sweep::Swept;
