//! Encryption at rest: a store over an engine that sees sealed values and bodies only.
//!
//! ```text
//! master key (ring) ── wraps ──> data key (a row, one for each start) ─┬─ seals ──> values of rows
//!                                                                     └─ derives ──> a key for each body
//! ```
//! Names of partitions and rows stay clear, since engines order by them. A value says itself that it is sealed, so a store may
//! hold clear and sealed ones. Rows of data keys are clear, and written before the first value that they seal.

mod data_keys;
mod sealed_bodies;
mod sealed_rows;
mod sealed_value;

pub use data_keys::{AtRestError, DataKeyStatus, DataKeys, SealWish};
pub use sealed_bodies::SealedBlobs;
pub use sealed_rows::SealedStore;
pub use sealed_value::RowKeys;
