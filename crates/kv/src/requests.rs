//! The requests of key-value objects, and what they return. Edges decode into these; all protocols use the same ones.

use std::time::Duration;

use bytes::Bytes;
use larder_core::body::{GetBody, PutBody};
use larder_core::rules::props::Quorum;
use larder_rows::address::Address;
use larder_rows::content::KvContent;

use crate::rules::causality::{Conditions, KeyVersions};

/// Replica counts of a request; `None` takes the bucket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quorums {
    /// Replies to a read.
    pub r: Option<Quorum>,
    /// Replies of primaries to a read.
    pub pr: Option<Quorum>,
    /// Acknowledgements of a write.
    pub w: Option<Quorum>,
    /// Acknowledgements of durable writes; 0: the answer does not wait for the disk.
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
    /// False: never fewer replicas than the counts say, also while others are down.
    pub sloppy_quorum: Option<bool>,
}

/// Reads an object.
#[derive(Debug, Clone)]
pub struct KvGet {
    /// Its address.
    pub address: Address,
    /// Replica counts.
    pub quorums: Quorums,
    /// Whether to read the bodies; false for HEAD.
    pub bodies: bool,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// Writes an object.
#[derive(Debug)]
pub struct KvPut {
    /// Its address.
    pub address: Address,
    /// The client's context, decoded from base64 by the edge; `None` for a blind write.
    pub context: Option<Bytes>,
    /// Conditions, checked against a read before the write.
    pub conditions: Conditions,
    /// The client's `if_not_modified` context.
    pub if_not_modified: Option<Bytes>,
    /// Metadata; its body is ignored.
    pub content: KvContent,
    /// The value.
    pub upload: PutBody,
    /// Replica counts.
    pub quorums: Quorums,
    /// Whether to answer the object as a read shows it after the write.
    pub return_body: bool,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// Deletes an object.
#[derive(Debug, Clone)]
pub struct KvDelete {
    /// Its address.
    pub address: Address,
    /// The client's context; `None` deletes the versions that a read shows.
    pub context: Option<Bytes>,
    /// Conditions, checked against a read before the write.
    pub conditions: Conditions,
    /// Replica counts.
    pub quorums: Quorums,
    /// Own deadline.
    pub timeout: Option<Duration>,
}

/// An object as a read shows it.
#[derive(Debug)]
pub struct FetchedObject {
    /// Siblings, newest first; none for a key without a live value.
    pub versions: KeyVersions,
    /// Their bodies, in the same order; empty when not wanted.
    pub bodies: Vec<GetBody>,
    /// The context to send back with the next write; `None` when the key was never written.
    pub context: Option<Bytes>,
    /// Whether fewer replicas answered than the request asked for: the others may have newer values.
    pub downgraded: bool,
}

/// Outcome of a delete.
#[derive(Debug)]
pub enum KvDeleteOutcome {
    /// A tombstone was written.
    Done,
    /// There was nothing to delete; the context of an earlier tombstone, if any.
    NotFound(Option<Bytes>),
}
