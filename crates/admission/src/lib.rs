//! Admission control for every listener, whatever it speaks: it bounds what clients may take of a server.
//!
//! ```text
//! shares    permits of which no listener and no address gets all
//! budget    bytes in memory that all clients together may hold
//! account   what one client holds of them, and gives back when it goes
//! pace      how slow a client may be that holds a shared place
//! ```
//! A client waits for what is not free, for a bounded time, and is refused then: it never takes what others were given.

mod account;
mod budget;
mod pace;
mod shares;

pub use account::{ClientAccount, HeldMemory, MemorySpent};
pub use budget::{MemoryBudget, MemoryFigures};
pub use pace::Pace;
pub use shares::{HeldShare, ShareGates, SharedPermits};
