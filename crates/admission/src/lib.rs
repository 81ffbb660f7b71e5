//! Admission control: it bounds the connections and the memory that clients take of a server, for any protocol.
//!
//! ```text
//! shares    permits, of which no listener and no address gets all
//! budget    bytes in memory that all clients hold together, and the account of each client
//! fair_budget   places or bytes, of which a source has no more than are free
//! turns     things that few may do at a time, in rotation over the sources that ask
//! ```
//! A client waits a bounded time for a free share, and is refused after that. It never takes the share of another client.

use std::hash::Hash;

mod budget;
mod fair_budget;
mod shares;
mod turns;

pub use budget::{ClientAccount, HeldMemory, MemoryBudget, MemorySpent, MemoryUsage};
pub use fair_budget::{FairBudget, HeldUnits};
pub use shares::{HeldShare, ShareGates, SharedPermits, client_key};
pub use turns::{FairTurns, HeldTurn, TurnLimits, TurnsTaken};

/// The name of a source, such as a bucket, a user or an address.
pub trait ShareSource: Clone + Eq + Hash {}

impl<S: Clone + Eq + Hash> ShareSource for S {}
