//! Bucket properties: what a bucket promises, who may change it, and every text that says no.
//!
//! One static table names the properties; everything else reads it. A type or a bucket stores only what was set
//! explicitly; what applies to a request is computed from three layers and kept in a small typed struct.
//!
//! ```text
//! table     name, kind, defaults, help          request JSON ──validate──▶ Overrides ──▶ stored
//! value     one value: JSON in, JSON/text out                                 │
//! reason    every refusal and its wording       table defaults ◀─ type ◀─ bucket ──▶ Effective (hot path)
//! types     a bucket type and its lifecycle                                   └────▶ display lists
//! ```
//!
//! Invariants: nothing here panics on any JSON; nothing is accepted when one property of a request is refused; an
//! [`Overrides`] only ever holds values its property's kind can decode; what a type fixes at creation never sits in the
//! overrides of a bucket.
//!
//! Differences from Riak KV, on purpose: unknown names are refused by name; values Riak stores without looking
//! (`young_vclock`, `dvv_enabled`, `repl`, `search`, hooks, functions) are checked; a bucket keeps only what was set on
//! it, so a later change of its type reaches everything else; `datatype` on a bucket of type `default` is accepted and
//! dropped.

mod decode;
pub mod display;
pub mod effective;
mod erlang;
#[cfg(test)]
mod manual;
pub mod quorum;
pub mod reason;
pub mod set;
pub mod table;
pub mod types;
pub mod validate;
pub mod value;

pub use effective::Effective;
pub use quorum::Quorum;
pub use reason::{Invalid, Reason, Refused, Whole};
pub use set::{BadBody, Overrides};
pub use table::{Change, Defaults, Kind, PROPS, Prop};
pub use types::{State, StoredError, TypeKind, TypeRecord};
pub use value::{Datatype, Hook, LinkFun, ModFun, Repl, SyncOnWrite, Value};
