//! The server: settings, composition, listeners, shutdown, and the commands of `kv-admin`.
//!
//! ```text
//! program ─▶ settings (one table) ─▶ serve ─┬─▶ engine    stores the data; with its background tasks
//!                                           ├─▶ gateway   the product
//!                                           ├─▶ http      larder-api-riak on a listener
//!                                           ├─▶ admin     the commands of kv-admin on a Unix socket
//!                                           ├─▶ audit_log  lines about changes and refused requests
//!                                           ├─▶ scripts   the pool of script workers
//!                                           └─▶ node_watch  log lines about the engine's nodes
//! ```
//! This crate alone depends on every other one; it holds no logic of the product.

mod admin;
mod at_rest;
mod audit_log;
mod banner;
mod blob_references;
mod cluster_engine;
mod console;
pub mod descriptors;
mod engine;
mod failure;
pub mod healthcheck;
pub mod inspect;
mod key_ring_file;
mod listeners;
pub mod log;
mod memory;
mod metrics_listener;
mod node_watch;
pub mod private;
mod program;
mod receiver_connector;
pub mod recent_log;
pub mod scripts;
mod serve;
pub mod settings;
mod signals;
mod source_client;
mod start_buckets;
mod store_metrics;
mod webhook_client;

pub use engine::OpenEngine;
pub use failure::ServerFailure;
pub use program::run;
