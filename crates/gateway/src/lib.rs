//! The product without protocols, as one type: [`Gateway`]. Five edges use it: HTTP, PB, S3, console, `kv-admin`.
//!
//! ```text
//! kv        get, put, delete of objects          types     bucket types and properties: the catalogue
//! views     keys of a bucket, buckets of a type  members   heartbeats: the gateways that run
//! objects   S3: buckets, objects, uploads, users
//! cluster   gateways and nodes, up or down
//! clock     hybrid clocks, always increasing     metrics   counters and distributions
//! blobs     bytes of large bodies: leases, releases, the sweeper of both sides
//! contention  writers of one key queue, and back off from other gateways
//! ```
//! It knows no protocol: edges pass decoded values and match every kind of its errors. It owns no data: everything is in the
//! store, so gateways can be started and stopped at will.

mod blobs;
pub mod body;
mod clock;
mod cluster;
mod config;
mod contention;
mod error;
mod gateway;
pub mod kv;
mod members;
mod membership_lease;
pub mod metrics;
pub mod objects;
mod transfer;
pub mod types;
pub mod views;

pub use blobs::sweep::BlobSweep;
pub use cluster::{ClusterState, EngineNode, MemberState};
pub use config::{Config, DeleteMode};
pub use error::{Error, Feature, QuorumParam, Result};
pub use gateway::{AdmissionGuard, EngineView, Gateway, GatewayPorts, Gauge};
pub use members::Member;
