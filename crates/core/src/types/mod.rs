//! The catalogue: bucket types, bucket properties, epochs of buckets and the rows of S3, of which every gateway holds a copy.
//!
//! ```text
//! gateway A, which makes a change         store                              gateway B
//! ───────────────────────────────         ─────                              ─────────
//! copy is 7
//! compare-and-set 7 ──> 9  ─────────────> catalogue: head 9, changed row
//! copy is 9                                    └────── polled every 500 ms ──> copy is 9
//! heartbeat: A has 9  ──────────────────> members: A 9, B 7                    an S3 write still holds a guard on 7
//! poll members: B has 7, wait                                                  the write ends, its guard is dropped
//!                                         members: A 9, B 9 <───────────────── heartbeat: B has min(copy, oldest guard) = 9
//! poll members: all have 9, answer
//!
//! create ──> created ──(all live members have its number)──> ready ──activate──> active ──update──> active
//! ```
//!
//! **Number.** The catalogue is one guarded partition, and the stamp of its head is its number. Every change is a
//! compare-and-set on that head, so changes are linearizable and each gets a greater number. The loser of a race reads the new
//! state and decides again. "Does B know the change?" is a comparison of two numbers.
//!
//! **Propagation.** A gateway polls the number and reads the rows when it grew: at a quorum, and again if the number moved
//! during the read. Then it writes a heartbeat at once instead of waiting for the next one. A change is answered when the
//! heartbeats of all live members show its number. The store's clock alone expires a heartbeat, ten seconds after it was
//! written, so a dead gateway delays a change no longer than that.
//!
//! **Guards.** A copy that is new is not enough: a write that began under the old copy may still be under way, and would, for
//! example, put an object into a bucket that was just deleted. An S3 write therefore holds a guard
//! on the number that it relies on. A heartbeat shows the smaller of the copy's number and the oldest
//! guard, so "all members show 9" also means that no guarded write relies on an older catalogue.
//!
//! **Freshness.** A gateway that is suspended or cut off loses its heartbeat, and the others stop waiting for it. When it
//! continues, its copy is old. So no request is served from a copy whose last check began more than five seconds ago: the
//! gateway checks first, and answers 503 if it cannot. Five seconds are less than the ten of a heartbeat, so its copy turns
//! stale before the others stop waiting. A check may ask fewer replicas than a quorum while the others are down; an older
//! number than the copy's is ignored.

mod catalogue;
mod catalogue_copy;
mod lifecycle;
mod product_rows;
mod props;
mod shared_map;
mod type_state_error;

use std::sync::Arc;

use crate::members::Members;
use crate::node_context::NodeContext;
use crate::rules::props::display::PropList;

pub use catalogue::{Catalogue, CatalogueEdit};
pub use catalogue_copy::CatalogueCopy;
pub use product_rows::{NoProductRows, ProductRow, ProductRows, damaged_catalogue, decode_catalogue_json};
pub use shared_map::SharedMap;
pub use type_state_error::TypeStateError;

/// Bucket types and bucket properties: their changes, and what clients see of them.
pub struct Types {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) catalogue: Arc<CatalogueCopy>,
    pub(crate) members: Arc<Members>,
}

/// Stage of a type's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeStage {
    /// Created, not yet on all running nodes.
    Created,
    /// On all running nodes: may be activated.
    Ready,
    /// In use.
    Active,
}

/// A type as `status` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeStatus {
    /// Its stage.
    pub stage: TypeStage,
    /// Its properties, in the order Riak prints them.
    pub props: PropList,
}
