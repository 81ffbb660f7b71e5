//! Causality: which writes of a key replace which others, decided without a read before the write.
//!
//! The rows of a key are one partition, and every write of the key is one row in it. A put adds its row and removes the rows
//! that its context names, in one batch. Two concurrent puts touch different rows, so neither loses the other.
//!
//! ```text
//!   rows of key k       slot (actor, birth)    clock   value
//!                       (3, 100)               100     tea      ┐ siblings: neither writer
//!                       (5, 120)               120     milk     ┘ had seen the other's row
//!
//!   GET k            -> tea, milk, and the context  dots {(3,100)@100, (5,120)@120}  vector {}
//!   PUT k cocoa         with this context, through actor 7, whose clock is at 140; one batch:
//!                       remove (3,100) up to 100      the row stays if its clock is later by now
//!                       remove (5,120) up to 120
//!                       put    (7,140)@140 cocoa      vector {(3,100): 100, (5,120): 120}
//!   PUT k oats          without context, through actor 9, at 130: row (9,130)@130 is named by no removal,
//!                       so the next read shows cocoa and oats as siblings, in whatever order the two arrive
//! ```
//!
//! - An **actor** is one run of one gateway process. The process draws its id at every start, so no two processes share one.
//! - The **clock** is a hybrid clock in microseconds. It orders the writes to one row and names a write within its slot.
//! - A **slot** is the row that one actor reuses for its versions of a key, like Riak's per-key actor epoch. Its `birth` is the
//!   clock of its first write. No other actor writes to it, and its owner never has two writes to it in flight.
//! - A **dot** is `slot @ clock` and names one write, as in dotted version vectors (Preguiça et al.).
//! - A **version vector** maps slots to clocks: every write to the slot up to that clock is superseded. It is the causal past
//!   that is not in dots. A row stores its 16 newest entries, so it never grows and Riak's pruning has no counterpart.
//! - A **context** is the dots of all rows that a read met, also tombstones and superseded rows, and the merged vector. To the
//!   client it is opaque bytes (`X-Riak-Vclock`); a checksum over the address refuses it for any other key.
//! - **Siblings** are the live rows of a key. Two rows of equal content that replaced one non-empty context are a put and its
//!   retry; a read shows them once.
//!
//! The vector matters where removed rows slow down reads (Cassandra's tombstones). There a gateway overwrites its own slot
//! instead of adding a row, once a context or a vector says that everything it ever wrote to the slot is superseded. A reader
//! uses the vector to spot a row that came back from a replica which missed its removal: the row counts as a tombstone, and
//! the next write removes it. A vector entry that no row stores any more costs a row that is not reused, never a value.
//!
//! A delete writes a tombstone row in place of the rows that it saw. A concurrent put survives it like any other write.
//!
//! ```text
//!   ConflictPolicy   bucket property        row of a write            a read shows
//!   Siblings         allow_mult             a slot of the actor       every live row
//!   Newest           none of these three    a slot of the actor       the row with the greatest clock
//!   LastWriteWins    last_write_wins        the one shared slot       that row; the store keeps the greatest clock
//!   WriteOnce        write_once             SHA-1 of the content      the row with the smallest SHA-1
//! ```
//!
//! `Newest` alone reads before it writes: a put without context reads the key first and supersedes the rows of that read.
//!
//! `write` makes the batch of a put or delete and checks its preconditions, `versions` turns rows into siblings and a context,
//! `context` is the wire form with the dots, `version_vector` the rest of the past. `kv/slots.rs` picks slots.

mod context;
mod version_vector;
mod versions;
mod write;

pub use context::{Context, Dot, DotFlags, SHARED_SLOT, Slot, Vtag};
pub use larder_core::rules::refusals::{ContextError, FailedCondition};
pub use version_vector::{CarriedVector, VectorEntry, VersionVector};
pub use versions::{KeyVersions, Sibling, SingleVersion};
pub use write::{Conditions, ConflictPolicy, CurrentValue, EtagMatcher, IndexRemovals, KeyWrite, SupersededRow};
