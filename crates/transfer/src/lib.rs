//! Export of everything in a store to a folder, and import from it: the way from one machine to many, and back.
//!
//! ```text
//! store ── scan ──> records ──> segment-000001 … ──> manifest.json
//!            │                        │
//!            └─ totals, cursor ───────┘ (at the end of each segment)
//!
//! folder ── segments ──> apply, apply_if, blobs ──> target, with the import's checkpoint
//! ```
//! - Rows are copied unchanged, with stamps and expiries, so the contexts of clients stay valid. Two kinds are rebuilt: a head's
//!   derived row, which engines store in different ways, and the rows of S3 users, which every server already has.
//! - A segment exists whole or not at all. An interrupted transfer resumes after the last whole segment. Repeated writes are
//!   harmless: the greatest stamp of a row wins, and a blob keeps its name for ever.
//! - Rows go before the blobs they name, and heads before their versions: no sweeper sees a blob or a version without its owner.
//! - A checksum per table adds up a digest of each row, so the order in which an engine lists them does not matter.
//! - Memory is bounded: pages of rows, pieces of blobs, a fixed number of calls at once.

mod catalogue;
mod checkpoint;
mod cursor;
mod derived;
mod error;
mod export;
mod folder;
mod guarded;
mod import;
mod record;
mod retry;
mod scan;
mod scope;
mod segment;
mod sink;
mod totals;
mod users;
mod verify;

#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use export::{ExportOptions, Exported, SEGMENT_BYTES, export};
pub use import::{Imported, import};
pub use scope::StorePair;
pub use totals::{Phase, Totals, TransferProgress};
pub use verify::verify;
