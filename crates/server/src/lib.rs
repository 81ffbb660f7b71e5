//! The server: settings, composition, listeners, shutdown, and the commands of `kv-admin`.
//!
//! ```text
//! main ─▶ settings (one table) ─▶ serve ─┬─▶ engine    what keeps the data, and its sweeper
//!                                        ├─▶ gateway   what the product does
//!                                        ├─▶ http      larder-api-riak on a listener
//!                                        ├─▶ admin     the commands of kv-admin on a Unix socket
//!                                        └─▶ node_watch  log lines about the engine's nodes
//! ```
//! This crate alone knows every other one; it holds no logic of the product.

pub mod admin;
mod banner;
mod calls;
mod cassandra;
pub mod descriptors;
mod engine;
mod figures;
pub mod inspect;
pub mod log;
mod memory;
mod node_watch;
pub mod private;
mod serve;
pub mod settings;
mod signals;

pub use engine::{Engine, Sweeper};
pub use serve::{Failure, serve};
