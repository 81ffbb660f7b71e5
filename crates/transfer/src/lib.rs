//! Everything a store keeps, into a folder and out of it again: the way from one machine to many, and back.
//!
//! ```text
//! store ── scan ──> records ──> segment-000001 … ──> manifest.json
//!            │                        │
//!            └─ totals, cursor ───────┘ (at the end of each segment)
//!
//! folder ── segments ──> apply, apply_if, blobs ──> target; the marker there says how far it has come
//! ```
//! - Rows are copied as they are, stamps and expiries with them: contexts that clients hold stay valid. Two things are made
//!   anew: a head's shadow, which engines keep in different ways, and the rows of S3 users, which every server has some of.
//! - A segment is there whole or not at all. What was interrupted goes on behind the last whole segment; repeating what was
//!   done is harmless, because a row's stamp decides and a blob has its name for ever.
//! - Rows go before the blobs they name, heads before what belongs to them: no sweeper ever sees a thing without its owner.
//! - A checksum per table adds up a digest of each row, so the order in which an engine lists them does not matter.
//! - Memory is bounded: pages of rows, pieces of blobs, a fixed number of calls at once.

mod calls;
mod catalogue;
mod cursor;
mod error;
mod export;
mod folder;
mod guarded;
mod import;
mod marker;
mod progress;
mod record;
mod scan;
mod scope;
mod segment;
mod shadow;
mod sink;
mod totals;
mod users;
mod verify;

pub use error::{Error, Result};
pub use export::{ExportOptions, Exported, SEGMENT_BYTES, export};
pub use folder::summary;
pub use import::{Imported, import};
pub use progress::{Phase, Progress};
pub use totals::Totals;
pub use verify::verify;

use std::sync::Arc;

use larder_store::{Blobs, Store};

/// A store and its blobs.
#[derive(Clone)]
pub struct Ends {
    /// Where rows are.
    pub store: Arc<dyn Store>,
    /// Where large bodies are.
    pub blobs: Arc<dyn Blobs>,
}

#[cfg(test)]
mod tests;
