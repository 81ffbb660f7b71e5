//! Causality: a write is a row, a removal names what it saw.
//!
//! ```text
//! slot = (actor, birth)      a row's name          actor: one run of one gateway
//! dot  = slot @ clock        one write             clock: hybrid, in microseconds
//! cover = slot, clock        all of it up to there is dead
//! context                    live dots + covers    what a client has seen, opaque to it
//! ```
//! A put writes one row and removes the rows its context names, each at its own clock: nothing is read first, what the
//! writer did not see survives as a sibling, and there is no clock that grows and has to be pruned. Where removed rows weigh
//! on reads, a gateway takes slots of its own again that it knows to be dead, by covers among others: see `covers`.

mod conditions;
mod context;
mod covers;
mod dot;
mod versions;
mod write;

pub use conditions::{Conditions, Current, Failed, Matcher};
pub use context::{Context, ContextError};
pub use covers::{Known, dead_until};
pub use dot::{ANY_SLOT, Actor, Clock, Cover, Dot, DotFlags, Slot, vtag};
pub use versions::{Reading, Sibling, Versions};
pub use write::{Mode, Removed, Unlisted, Write};
