//! Catalogue guards: a write holds one while it relies on the catalogue's entry of its bucket, as a reader holds an epoch
//! in RCU.
//!
//! A heartbeat advertises the oldest guarded catalogue version. So once every live gateway advertises a change, no write
//! that predates the change is still running [invariant 64] [invariant 65]. The other gateways do not wait for one whose
//! heartbeat expired, so a guarded write ends before that ([`larder_core::Members::await_lease`]).

use std::sync::Arc;
use std::time::Duration;

use larder_core::Core;
use larder_core::gateway_core::internal_options;
use larder_rows::Timestamp;
use larder_store::{ConsistencyLevel, Partition};
use tokio::time::Instant;

use super::commit::read_head_row;
use super::{Error, Result};
use crate::catalogue::S3Catalogue;
use crate::rules::{Bucket, BucketId, BucketState};

/// Pause between two reads of a head whose write is in doubt.
const DECIDE_PAUSE: Duration = Duration::from_secs(1);
/// The longest time after which the store may still apply a write whose answer was lost.
const DECISION_WAIT: Duration = Duration::from_secs(300);

/// Guards the catalogue version a write relies on until dropped. Keep it short: receive the body before.
pub(super) struct CatalogueGuard<'a> {
    gateway: &'a Core,
    number: Timestamp,
    /// Whether a background task releases the guard instead of `drop`.
    is_detached: bool,
    /// The end of the membership lease: the other gateways may not wait for a write that ends later.
    pub(super) deadline: Option<Instant>,
    /// The bucket at the time of the guard.
    pub(super) bucket: Arc<Bucket>,
}

impl<'a> CatalogueGuard<'a> {
    /// Guards the catalogue for a write to the bucket `id`, which had the name `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`] when the bucket is gone, closing, or replaced by another of its name; `NotReady` while heartbeats
    /// fail.
    pub(super) async fn take(gateway: &'a Core, name: &str, id: BucketId) -> Result<Self> {
        // Race: the others wait for the guard below only while this gateway's heartbeat lives [invariant 81].
        let deadline = gateway.members.await_lease().await?;
        let copy = &gateway.catalogue;
        // Race: from here on no heartbeat shows a newer version, so a change of the bucket waits [invariant 64] [invariant 65].
        let catalogue = copy.guards.take(|| copy.current());
        let number = catalogue.number();
        // Race: another bucket may have taken the name, and must not get this object [invariant 64].
        let found = S3Catalogue::within(&catalogue)
            .bucket(name)
            .filter(|bucket| bucket.id == id && bucket.state == BucketState::Active);
        if let Some(bucket) = found {
            return Ok(Self { gateway, number, is_detached: false, deadline, bucket: Arc::clone(bucket) });
        }
        gateway.catalogue.guards.release(number);
        Err(Error::NoSuchBucket(name.to_owned()))
    }

    /// Keeps the guard in a background task until the head can be read: the write that timed out may still reach the
    /// store, and a change of the bucket must wait for it.
    pub(super) fn hold_until_decided(mut self, gateway: Arc<Core>, head: Partition) {
        self.is_detached = true;
        let number = self.number;
        tokio::spawn(async move {
            // Bound: no store applies the write after five minutes, and changes of the bucket must not wait for ever.
            let end = Instant::now() + DECISION_WAIT;
            while Instant::now() < end
                && read_head_row(&gateway, &head, &internal_options(ConsistencyLevel::Quorum)).await.is_err()
            {
                tokio::time::sleep(DECIDE_PAUSE).await;
            }
            gateway.catalogue.guards.release(number);
        });
    }
}

impl Drop for CatalogueGuard<'_> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.gateway.catalogue.guards.release(self.number);
        }
    }
}
