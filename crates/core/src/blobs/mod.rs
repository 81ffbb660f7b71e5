//! Blob collection: how the bytes of large bodies leave the store, and why no row ever loses its bytes.
//!
//! ```text
//! writer                                          sweeper, one pass over all blobs
//! ──────                                          ────────────────────────────────
//! blob created ───────── lease begins             page of blobs, without those that are leased
//!   │                        │                      │
//! bytes written and synced   │                    first check: do the owner's rows name it? ── yes ──> kept
//!   │                        │                      │ no
//! row names the blob         │                    gc mark at every replica, head fenced   (key-value: unless alone)
//!   │                        │                      │
//! gc mark? ── yes ──> row undone                  second check: named now? ── yes ──> kept
//!   │ no                     │                      │ no
//! acknowledged ───────── lease ends               one sync barrier for the page ──> SyncProof ──> bytes removed
//!   │
//! row replaced or deleted ──> rows synced ──> SyncProof ──> bytes removed
//! ```
//!
//! A blob and the row that names it are two writes. Bytes without a row are garbage and cost disk; a row without its bytes is
//! lost data. So bytes are written and synced first and removed last, and every rule here delays a removal.
//!
//! **Lease** ([`release`]). A blob that is being written, or whose row is, has a lease, and the sweeper passes over it. It
//! ends when the row is written or will never be. It lasts five minutes more when the outcome is unknown: the store may hold
//! the batch of a client that is gone. One process knows its leases exactly. Beside other gateways a lease is a promise that
//! expires, and a writer may sleep longer than that.
//!
//! **Gc mark and fence** ([`release`]). They catch such a writer. The sweeper writes a mark at every replica, rewrites the head
//! where the partition has one, and checks the rows again. The writer looks for the mark: after it wrote a plain row, or
//! between reading a head and swapping it. The first of the two to write is seen by the other, so one gives way. Marks expire
//! after a day and are never removed earlier: another sweeper may rely on one.
//!
//! **Sync before removal** ([`release`]). A file system removes at once, and a power cut takes back rows that were not synced:
//! the old row would name bytes that are gone. Every removal therefore takes a [`release::SyncProof`]: a durable answer to the
//! change that dropped the name, or a sync barrier. A blob that no row ever named needs neither.
//!
//! **Sweep** ([`sweep`]). It removes what crashes, lost answers and blind overwrites leave. The key-value side and the S3 side
//! implement [`sweep::BlobReferences`]: they say whether their rows name a blob; nothing here knows those rows. Any failure
//! leaves a blob to the next pass. Decisions 1, 10 and 15 have the interleavings.

pub mod release;
pub mod sweep;

use std::sync::Arc;

use crate::clock_issuer::ClockIssuer;
use crate::node_context::NodeContext;

/// Removes the bytes that no row names.
pub struct BlobCollector {
    context: Arc<NodeContext>,
    issuer: Arc<ClockIssuer>,
    /// Removes bytes that no row names any more.
    pub releases: release::BlobReleaser,
}

impl BlobCollector {
    /// The collector of the blobs of `core`'s ports.
    pub(crate) fn new(context: Arc<NodeContext>, issuer: Arc<ClockIssuer>) -> Arc<Self> {
        let (store, blobs) = (Arc::clone(&context.ports.store), Arc::clone(&context.ports.blobs));
        let releases = release::BlobReleaser::new(store, blobs, Arc::clone(&context.metrics), context.config.durable);
        Arc::new(Self { context, issuer, releases })
    }
}
