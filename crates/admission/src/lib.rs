//! Admission control: it bounds the connections and the memory that clients take of a server, for any protocol.
//!
//! ```text
//! shares    permits, of which no listener and no address gets all
//! budget    bytes in memory that all clients hold together
//! account   the part of the budget that one client holds
//! pace      the least rate of a client that holds a shared place
//! ```
//! A client waits a bounded time for a free share, and is refused after that. It never takes the share of another client.

mod account;
mod budget;
mod pace;
mod shares;

pub use account::{ClientAccount, HeldMemory, MemorySpent};
pub use budget::{MemoryBudget, MemoryUsage};
pub use pace::Pace;
pub use shares::{HeldShare, ShareGates, SharedPermits};
