//! Bucket properties: their values and defaults, the rules for changing them, and the texts of every refusal.
//!
//! One static table names the properties, and everything else reads it. A type or a bucket stores only the properties set
//! explicitly. The properties of a request are computed from three layers into a typed struct.
//!
//! ```text
//! table     name, kind, defaults, help          request JSON ──validate──▶ Overrides ──▶ stored
//! value     one value: JSON in, JSON/text out                                 │
//! reason    every refusal and its wording       table defaults ◀─ type ◀─ bucket ──▶ EffectiveProps (hot path)
//! types     a bucket type and its states                                      └────▶ display lists
//! ```
//!
//! Invariants: no JSON makes this module panic. A request with one refused property changes nothing. An [`Overrides`] holds
//! only values that the kind of their property decodes. The overrides of a bucket never hold a property that its type fixes at
//! creation.
//!
//! Deliberate differences from Riak KV: unknown names are refused by name. Values that Riak stores unchecked (`young_vclock`,
//! `dvv_enabled`, `repl`, `search`, hooks, functions) are checked. A bucket stores only its own overrides, so a later change of
//! its type reaches all other properties. A `datatype` on a bucket of type `default` is accepted and dropped.

mod decode;
pub mod display;
pub mod effective;
mod native_hook;
pub mod quorum;
pub mod reason;
pub mod table;
pub mod types;
pub mod validate;
pub mod value;
mod webhook_url;

#[cfg(test)]
mod manual;

pub use effective::{EffectiveProps, HLL_PRECISION_DEFAULT, Overrides, PropsBodyError};
pub use native_hook::{HookFault, HookStage, NativeHook, check_hooks, schemas_in, webhook_in, webhooks_in};
pub use quorum::Quorum;
pub use reason::{InvalidProp, InvalidReason, PropsError, TypeRefusal};
pub use table::{Defaults, PROPS, Prop, PropKind, PropMutability};
pub use types::{TypeKind, TypeRecord, TypeRecordError, TypeState};
pub use value::{Datatype, Hook, LinkFun, ModFun, Repl, SyncOnWrite, Value};
pub use webhook_url::{WEBHOOK_URL_BYTES_MAX, WebhookHost, WebhookUrl, WebhookUrlFault};
