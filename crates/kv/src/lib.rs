//! Key-value: a [`Gateway`] is a core and [`Kv`] over it. Its edges are Riak's HTTP and protocol buffers.
//!
//! ```text
//! Gateway ── Kv ─┬─ get put delete    objects: one step of a request each; request_plan: levels and durability
//!                ├─ datatypes         counters, sets, maps, HyperLogLogs
//!                ├─ views             keys, buckets, indexes
//!                ├─ links             walks along links
//!                ├─ import            values of a key as another store has them; held_state: what goes back to it
//!                └─ hooks             commit hooks; the notices of webhooks go to the outbox of the core
//!   under them:
//!     epochs      splits indexes of large buckets     rules   what is decided, pure
//! ```
//! It knows no protocol and nothing of S3: edges pass decoded values and match every kind of its errors.

mod commit;
mod consistent;
pub mod datatypes;
mod delete;
mod epochs;
mod fence;
mod gateway;
mod get;
mod held_state;
mod hooked;
mod hooks;
mod import;
mod known_buckets;
mod kv;
pub mod links;
mod put;
mod replication_queue;
mod request_plan;
mod requests;
pub mod rules;
mod slots;
pub mod views;

#[cfg(test)]
mod blob_release_tests;
#[cfg(test)]
mod testing;

pub use gateway::Gateway;
pub use get::SingleObject;
pub use held_state::{HeldKey, HeldState};
pub use hooks::HOOKED_BYTES_MAX;
pub use import::{ImportedValue, KvImport};
pub use kv::Kv;
pub use replication_queue::ReplicationQueue;
pub use requests::{FetchedObject, KvDelete, KvDeleteOutcome, KvGet, KvPut, Quorums};
pub use rules::import_result::{ImportComparison, ImportOutcome};
