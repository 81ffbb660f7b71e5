//! The base of the products of one process: one [`Core`], its parts over one [`NodeContext`].
//!
//! ```text
//! Core ─┬─ types     bucket types, properties; a copy of the catalogue, kept fresh, with rows that a product decodes
//!       ├─ members   the gateways that run; the lease: until when the others wait for this one
//!       ├─ security  users, grants and sources of Riak's protocols
//!       ├─ blobs     bytes of large bodies: leases, releases, the sweeper
//!       ├─ outbox    notices for receivers over HTTP, delivered at least once
//!       └─ issuer    the clocks of writes
//!   under them:
//!     node_context  ports, settings, admission        metrics     counters and distributions
//!     contention    writers of one key queue          downgrade   lower levels of calls
//!     body          bodies on their way               rules       what is decided, pure
//! ```
//! It knows no object, and no bytes of a protocol; its errors carry refusals of key-value as values. It owns no data: everything is in the store, so gateways can be started and stopped at
//! will.

mod adaptive_timeout;
mod audit;
pub mod blobs;
pub mod body;
pub mod clock_issuer;
pub mod config;
pub mod contention;
pub mod core;
pub mod downgrade;
mod error;
mod heartbeats;
pub mod members;
pub mod metrics;
pub mod node_context;
pub mod outbox;
pub mod ports;
mod readiness;
pub mod rules;
mod scripts;
pub mod security;
pub mod types;

pub use audit::{AuditEvent, AuditOutcome, AuditSink};
pub use blobs::sweep::BlobSweep;
pub use clock_issuer::ClockIssuer;
pub use config::{Config, DeleteMode, IndexSplitting};
pub use core::Core;
pub use error::{Error, Feature, PrecommitRefusal, QuorumParam, Result};
pub use members::{ClusterState, Member, MemberState, Members};
pub use node_context::{AdmissionGuard, NodeContext};
pub use ports::{
    CertificateStatus, EngineNode, EngineSample, EngineStatus, GatewayPorts, StoredBytes, WebhookRequest, Webhooks,
};
pub use readiness::NotReadyReason;
pub use scripts::{
    JobTicket, RunningJob, RunningJobs, ScriptArguments, ScriptCall, ScriptError, ScriptFunction, Scripts,
};
