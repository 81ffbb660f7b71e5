//! Objects: get, put, delete. An edge decodes a request into one of these values; HTTP and PB build the same ones.

mod body;
mod commit;
mod consistent;
mod delete;
mod fence;
mod get;
pub(crate) mod patience;
mod permit;
mod put;
pub(crate) mod slots;
pub(crate) mod step_down;

use std::time::Duration;

use bytes::Bytes;

use larder_model::address::Address;
use larder_model::causality::{Conditions, Versions};
use larder_model::content::Content;
use larder_model::props::Quorum;

use crate::body::{Download, Upload};

/// Replica counts of a request; `None` takes the bucket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quorums {
    /// Replies to a read.
    pub r: Option<Quorum>,
    /// Replies of primaries to a read.
    pub pr: Option<Quorum>,
    /// Acknowledgements of a write.
    pub w: Option<Quorum>,
    /// Acknowledgements of durable writes; 0 lets the answer go before the disk.
    pub dw: Option<Quorum>,
    /// Acknowledgements of primaries to a write.
    pub pw: Option<Quorum>,
    /// For deletes that give neither r nor w.
    pub rw: Option<Quorum>,
    /// Distinct machines.
    pub node_confirms: Option<Quorum>,
    /// Stop early on not-founds.
    pub basic_quorum: Option<bool>,
    /// Whether a not-found counts as a reply.
    pub notfound_ok: Option<bool>,
}

/// Reads an object.
#[derive(Debug, Clone)]
pub struct GetObject {
    /// Which.
    pub address: Address,
    /// Replica counts.
    pub quorums: Quorums,
    /// Whether the bodies are wanted; HEAD does not.
    pub bodies: bool,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// Writes an object.
#[derive(Debug)]
pub struct PutObject {
    /// Which.
    pub address: Address,
    /// The client's context as it came, decoded from base64 by the edge; `None` for a blind write.
    pub context: Option<Bytes>,
    /// Conditions, checked against a read before the write.
    pub conditions: Conditions,
    /// The client's `if_not_modified` context as it came.
    pub if_not_modified: Option<Bytes>,
    /// Metadata; its body is ignored.
    pub content: Content,
    /// The value.
    pub upload: Upload,
    /// Replica counts.
    pub quorums: Quorums,
    /// Whether to answer what a read would show now.
    pub return_body: bool,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// Deletes an object.
#[derive(Debug, Clone)]
pub struct DeleteObject {
    /// Which.
    pub address: Address,
    /// The client's context as it came; `None` deletes what a read shows now.
    pub context: Option<Bytes>,
    /// Conditions, checked against a read before the write.
    pub conditions: Conditions,
    /// Replica counts.
    pub quorums: Quorums,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// What a read shows.
#[derive(Debug)]
pub struct Found {
    /// Siblings, newest first; none when nothing lives.
    pub versions: Versions,
    /// Their bodies, in the same order; empty when not wanted.
    pub bodies: Vec<Download>,
    /// The context to send back with the next write; `None` when the key was never written.
    pub context: Option<Bytes>,
    /// Whether fewer replicas answered than were asked for: the others may have newer values.
    pub stepped_down: bool,
}

/// Outcome of a put.
#[derive(Debug)]
pub struct Stored {
    /// What a read shows now, when it was wanted. Never for `write_once` (as Riak).
    pub found: Option<Found>,
}

/// Outcome of a delete.
#[derive(Debug)]
pub enum Deleted {
    /// A tombstone stands.
    Done,
    /// There was nothing to delete; the context of a tombstone that stood already.
    NotFound(Option<Bytes>),
}
