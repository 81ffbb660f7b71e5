//! Key-value, and the core that S3 stands on too: a [`Gateway`] is its parts over one [`GatewayCore`]. Its edges are Riak's HTTP
//! and protocol buffers and `kv-admin`, and S3 through a crate of its own.
//!
//! ```text
//! Gateway ─┬─ kv       objects: get, put, delete; views: keys, buckets, indexes
//!          │           datatypes: counters, sets, maps, HyperLogLogs
//!          ├─ jobs     MapReduce jobs that run
//!          ├─ types    bucket types, properties; a copy of the catalogue, kept fresh, with rows that S3 decodes
//!          └─ members  the gateways that run; the lease: until when the others wait for this one
//!   under them:
//!     clock_issuer  the clocks of writes          blobs        bytes of large bodies: leases, releases, the sweeper
//!     contention    writers of one key queue      metrics      counters and distributions
//!     downgrade     lower levels of calls         gateway_core ports, settings, metrics, admission
//!     outbox        notices for webhooks
//!     epochs        splits indexes of large buckets
//! ```
//! It knows no protocol: edges pass decoded values and match every kind of its errors. It owns no data: everything is in the
//! store, so gateways can be started and stopped at will.

mod adaptive_timeout;
mod audit;
pub mod blobs;
pub mod body;
pub mod clock_issuer;
mod cluster;
mod config;
pub mod contention;
mod core;
pub mod datatypes;
mod downgrade;
mod epochs;
mod error;
mod gateway;
pub mod gateway_core;
mod heartbeats;
mod hooks;
pub mod kv;
pub mod links;
pub mod mapreduce;
mod members;
pub mod metrics;
mod outbox;
mod ports;
mod precommit_refusal;
mod readiness;
mod running_jobs;
mod scripts;
pub mod security;
mod transfer;
pub mod types;
pub mod views;
mod webhooks;

pub use audit::{AuditEvent, AuditOutcome, AuditSink};
pub use blobs::sweep::BlobSweep;
pub use clock_issuer::ClockIssuer;
pub use cluster::{ClusterState, MemberState};
pub use config::{Config, DeleteMode, IndexSplitting};
pub use core::Core;
pub use error::{Error, Feature, QuorumParam, Result};
pub use gateway::Gateway;
pub use gateway_core::{AdmissionGuard, GatewayCore};
pub use hooks::HOOKED_BYTES_MAX;
pub use members::{Member, Members};
pub use outbox::{HOST_DELIVERIES_MAX, WebhookBacklog, WebhookChoice};
pub use ports::{EngineNode, EngineSample, EngineStatus, GatewayPorts, StoredBytes};
pub use precommit_refusal::PrecommitRefusal;
pub use readiness::NotReadyReason;
pub use running_jobs::{JobTicket, RunningJob, RunningJobs};
pub use scripts::{ScriptArguments, ScriptCall, ScriptError, ScriptFunction, Scripts};
pub use webhooks::Webhooks;
