//! What the product does, as one protocol-free type: five faces (HTTP, PB, S3, console, `kv-admin`) of one [`Gateway`].
//!
//! ```text
//! kv        get, put, delete of objects          types     bucket types and properties: the catalogue
//! views     keys of a bucket, buckets of a type  members   heartbeats: who runs, and what they know
//! objects   S3: buckets, objects, uploads, users
//! cluster   gateways and nodes, up or not
//! clock     hybrid clocks, never undercut        metrics   what operators see
//! blobs     bytes of large bodies: leases, releases, the one sweeper of both sides
//! contention  writers of one key line up, and give way to other gateways
//! ```
//! It knows no protocol: edges hand it decoded values and match every kind of its errors. It owns no data: everything is in
//! the store, so gateways can be started and stopped at will.

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
pub mod metrics;
pub mod objects;
mod rules;
mod transfer;
pub mod types;
pub mod views;

pub use blobs::sweep::BlobSweep;
pub use cluster::{ClusterState, EngineNode, MemberState};
pub use config::{Config, DeleteMode};
pub use error::{Error, Feature, Result, Which};
pub use gateway::{Admitted, EngineView, Gateway, Gauge, Ports};
pub use members::Member;
pub use rules::{Rule, Rules};
