//! The embedded engine: packed and wide tables on `fjall`, one committer, blob files.
//!
//! ```text
//! store       what callers hold: reads here, writes to the queue
//! queue       bounded, waiting bounded          committer  the one thread that writes: group, commit, sync, answer
//! overlay     queued writes see each other      merge      stamps decide, pure
//! journal     commit and sync, which may fail   spaces     the three keyspaces of the engine below
//! keys, entry the bytes                         read       pages                          sweep   expired rows
//! descriptors how many files it has open
//! disk_space  what may still be written, asked before anything is: by rows here, by blobs, by purpose
//! open        lock, format, damage              synced     what is known to be on disk    journal_file   what is in it
//! ```
//! `docs/format.md` has every byte.

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
mod journal;
mod keys;
mod maintenance;
mod manifest;
mod merge;
mod open;
mod overlay;
mod precheck;
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
