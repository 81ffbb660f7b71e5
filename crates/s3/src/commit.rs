//! The only way a key changes: a compare-and-set on its head, under a catalogue guard.
//!
//! ```text
//! queue ─> guard catalogue ─> read head ─> check own gc mark ─> caller decides ─> compare and set ─> release replaced bytes
//!   ^                                                                                 │ conflict
//!   └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! A sweeper writes a gc mark for a blob, *fences* the head ([`HeadStore::fence_head`]), checks that no version references
//! the blob, and only then removes it. A writer reads the head first and the mark second: in any interleaving one of the
//! two gives way.

mod versions;

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_core::Core;
use larder_core::contention::{WriterArrival, WriterTurn};
use larder_core::node_context::internal_options;
use larder_core::outbox::PendingNotices;
use larder_rows::content::BlobId;
use larder_rows::keyspace::entry_shard;
use larder_rows::limits::DELETED_HEAD_MICROS;
use larder_rows::{Change, Row, Timestamp};
use larder_store::{
    CallOptions, CasResult, ConsistencyLevel, DerivedRow, Durability, HeadWrite, Kind, Partition, Purpose,
};
use tokio::time::Instant;

use super::catalogue::CatalogueGuard;
use super::events::ChangeEvent;
use super::lock_clock::LockClock;
use super::object_source::ReadThrough;
use super::release::Pins;
use super::{Error, Result};
use crate::rules::{Bucket, BucketId, ListingEntry, ObjectHead};

pub(super) use crate::object_location::{
    ObjectLocation, client_version_id, external_body, lifecycle_expiry, read_head_row, version_id_text,
};

/// Most attempts of one change before the client gets `Overloaded`.
const ATTEMPTS_MAX: usize = 1000;

/// The heads of keys and of uploads, each changed by compare-and-set only.
pub(super) struct HeadStore {
    pub(super) gateway: Arc<Core>,
    /// The manifests that clients read.
    pub(super) pins: Pins,
    /// The time by which locks end.
    pub(super) lock_clock: Arc<LockClock>,
    /// The region of the server, for events.
    pub(super) region: String,
    /// The source of moving buckets.
    pub(super) read_through: ReadThrough,
}

/// The head of a key as read.
#[derive(Debug, Clone)]
pub(super) struct ObservedHead {
    /// The decoded head; the default when there is no row.
    pub(super) head: ObjectHead,
    /// The stamp of its row, if there is one.
    pub(super) stamp: Option<Timestamp>,
}

/// Retries a change of a key until its compare-and-set succeeds.
pub(super) struct CasLoop<'a> {
    heads: &'a HeadStore,
    location: &'a ObjectLocation,
    /// The blob the change makes referenced.
    blob: Option<BlobId>,
    purpose: Purpose,
    attempts: usize,
    deadline: Instant,
}

/// One attempt of a [`CasLoop`]: the state that [`CasAttempt::commit`] compares with.
pub(super) struct CasAttempt<'a> {
    pub(super) heads: &'a HeadStore,
    pub(super) location: &'a ObjectLocation,
    guard: CatalogueGuard<'a>,
    /// The place of this writer in the queue of the key's writers in this gateway.
    writer: WriterTurn<'a>,
    /// The head's partition.
    pub(super) partition: Partition,
    /// The head this attempt read.
    pub(super) head: ObjectHead,
    /// The stamp of that head: the compare-and-set expects it.
    expected: Option<Timestamp>,
    /// The stamp of the new head.
    pub(super) stamp: Timestamp,
    /// Level, deadline and durability of the store calls.
    pub(super) options: CallOptions,
    /// The last writer that had arrived when this attempt began.
    arrived: WriterArrival,
    /// When the locks of new versions begin.
    locks_begin: Timestamp,
}

/// The new head and rows of a change.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyChange {
    /// The new head; its `release` lists the bytes this change stops referencing.
    pub(crate) head: ObjectHead,
    /// Other rows of the partition.
    pub(crate) changes: Vec<Change>,
    /// Whether it replaces whatever another put of a `null` version would have stored.
    pub(crate) replaces_all: bool,
}

impl HeadStore {
    /// Begins a change of the key at `location` that references `blob`. The caller loops over [`CasLoop::next_attempt`]
    /// and [`CasAttempt::commit`] until the commit returns `true`.
    pub(super) fn cas_loop<'a>(&'a self, location: &'a ObjectLocation, blob: Option<BlobId>) -> CasLoop<'a> {
        let deadline = Instant::now() + self.gateway.context().config.timeout;
        CasLoop { heads: self, location, blob, purpose: Purpose::Data, attempts: 0, deadline }
    }

    /// Store options of a request.
    pub(super) fn options(&self) -> CallOptions {
        self.options_until(Instant::now() + self.gateway.context().config.timeout)
    }

    fn options_until(&self, deadline: Instant) -> CallOptions {
        let durability = if self.gateway.context().config.durable { Durability::Disk } else { Durability::Buffered };
        CallOptions::new(ConsistencyLevel::Quorum, deadline, durability)
    }

    /// Reads the head of a partition.
    ///
    /// # Errors
    /// Any error of the store.
    pub(super) async fn read_head(&self, partition: &Partition, options: &CallOptions) -> Result<ObservedHead> {
        let row = read_head_row(&self.gateway, partition, options).await?;
        Ok(match row {
            Some(row) => ObservedHead { stamp: Some(row.stamp), head: ObjectHead::decode(row.value)? },
            None => ObservedHead { head: ObjectHead::default(), stamp: None },
        })
    }

    /// Fences a head: rewrites it unchanged with a greater stamp, so that a writer that read it before fails its
    /// compare-and-set. Creates an empty head if there is none, works on a closing bucket too, and drains the release
    /// list. Returns the head.
    ///
    /// # Errors
    /// Any error of the store; `Overloaded` after too many conflicts.
    pub(super) async fn fence_head(&self, bucket: BucketId, key: &Bytes) -> Result<ObjectHead> {
        let partition = Partition::head(bucket, key);
        for attempt in 0..ATTEMPTS_MAX {
            let options = self.options().reclaiming();
            let writer = self.gateway.context().writer_queues.wait_for_turn(&partition, options.deadline).await?;
            let observed = self.read_head(&partition, &options).await?;
            let stamp = self.stamp_above(observed.stamp).await?;
            let mut head = observed.head;
            // Crash: the writer of this head may have died before it released these bytes [invariant 62].
            let releases = std::mem::take(&mut head.release);
            let row = head_row(&self.gateway, &head, bucket, key, stamp);
            match self
                .gateway
                .context()
                .ports
                .store
                .apply_if(&partition, observed.stamp, row, Vec::new(), &options)
                .await?
            {
                CasResult::Applied => {
                    drop(writer);
                    self.pins.release(&self.gateway, releases).await;
                    return Ok(head);
                }
                CasResult::Conflict(_) => drop(writer),
            }
            self.gateway.context().writer_queues.back_off(attempt, options.deadline).await?;
        }
        Err(larder_core::Error::Overloaded { retry_after: 1 }.into())
    }

    /// A stamp for a head that replaces one with the stamp `expected`: at least two above it.
    pub(super) async fn stamp_above(&self, expected: Option<Timestamp>) -> Result<Timestamp> {
        // Race: the intent is stamped one below the new head, and must be above the old head's entry [invariant 52].
        self.gateway.issuer().clock.observe(expected.map_or(Timestamp::ZERO, |stamp| stamp + 1));
        Ok(self.gateway.issuer().issue().await?)
    }
}

impl<'a> CasLoop<'a> {
    /// Marks the change as one that frees space: the store accepts it on a full disk.
    pub(super) fn reclaiming(self) -> Self {
        Self { purpose: Purpose::Reclaim, ..self }
    }

    /// The next attempt: reads the bucket and the head anew, and checks that no sweeper has marked the blob.
    ///
    /// # Errors
    /// `NoSuchBucket`; `Overloaded` after too many conflicts or when the blob has a gc mark; any error of the store.
    pub(super) async fn next_attempt(&mut self) -> Result<CasAttempt<'a>> {
        let Self { heads, location, .. } = *self;
        if let Some(conflicts) = self.attempts.checked_sub(1) {
            heads.gateway.context().writer_queues.back_off(conflicts, self.deadline).await?;
        }
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX || Instant::now() >= self.deadline {
            return Err(larder_core::Error::Overloaded { retry_after: 1 }.into());
        }
        let partition = location.partition();
        // Queue before guard: a guard that waits in a queue would hold back changes of its bucket.
        let writer = heads.gateway.context().writer_queues.wait_for_turn(&partition, self.deadline).await?;
        let arrived = writer.last_arrival();
        // Race: guard before head. A bucket deletion that misses this guard has closed the bucket before it, and
        // the guard fails [invariant 64].
        let guard = CatalogueGuard::take(&heads.gateway, &location.name, location.id).await?;
        // Race: after the lease the others may delete the bucket while this commit puts an object into it [invariant 81].
        let deadline = guard.deadline.map_or(self.deadline, |end| end.min(self.deadline));
        let options = CallOptions { purpose: self.purpose, ..heads.options_until(deadline) };
        let observed = heads.read_head(&partition, &options).await?;
        // Race: head before mark. A sweeper that marks later fences the head, and the commit conflicts [invariant 57].
        if let Some(blob) = self.blob
            && heads.gateway.blobs().has_gc_mark(blob, &options).await?
        {
            return Err(larder_core::Error::Overloaded { retry_after: 1 }.into());
        }
        let stamp = heads.stamp_above(observed.stamp).await?;
        let locks_begin = match guard.bucket.object_lock {
            Some(_) => heads.lock_clock.read().await?.begins,
            None => Timestamp::ZERO,
        };
        Ok(CasAttempt {
            heads,
            location,
            guard,
            writer,
            partition,
            head: observed.head,
            expected: observed.stamp,
            stamp,
            options,
            arrived,
            locks_begin,
        })
    }
}

impl CasAttempt<'_> {
    /// The bucket of this attempt: the guard keeps it valid until the commit.
    pub(super) fn bucket(&self) -> &Bucket {
        &self.guard.bucket
    }

    /// Whether a change that replaces any `null` version was made while this one waited: a put of one may count as made just before.
    pub(super) fn is_replaced(&self) -> bool {
        self.writer.is_replaced()
    }

    /// Writes the head and the rows of the partition if the head is unchanged, with the notices of its event, then releases the
    /// bytes in `next.head.release` and in the release list of the replaced head. `false`: another writer changed the head first.
    ///
    /// # Errors
    /// Any error of the store; `TimedOut` when the change may or may not have happened; `Overloaded` when the outbox has no room.
    pub(super) async fn commit(self, next: KeyChange, event: &ChangeEvent<'_>) -> Result<bool> {
        let notices = self.reserve_notices(event)?;
        // Crash: beside the head, so that no change is made whose receivers get no notice [invariant 172].
        let beside = match &notices {
            Some(notices) => notices.changes(self.row_clock().await?),
            None => None,
        };
        let Self { heads, location, guard, writer, partition, head, expected, stamp, options, arrived, .. } = self;
        let gateway = &heads.gateway;
        let row = HeadWrite { beside, ..head_row(gateway, &next.head, location.id, &location.key, stamp) };
        let value = row.row.value.clone();
        let swap = gateway.context().ports.store.apply_if(&partition, expected, row, next.changes, &options).await;
        match swap {
            Ok(CasResult::Applied) => {}
            Ok(CasResult::Conflict(_)) => {
                // An engine of many machines may have stored the rows all the same.
                notices.iter().for_each(PendingNotices::withdraw);
                return Ok(false);
            }
            Err(error) if error.kind == Kind::TimedOut => {
                // Race: the store may still apply the change; the guard stays until a read of the head decides [invariant 65].
                let Ok(now) = read_head_row(gateway, &partition, &internal_options(ConsistencyLevel::Quorum)).await
                else {
                    guard.hold_until_decided(Arc::clone(gateway), partition);
                    return Err(larder_core::Error::TimedOut.into());
                };
                if now.is_none_or(|row| (row.stamp, row.value) != (stamp, value)) {
                    return Err(larder_core::Error::TimedOut.into());
                }
                // The change is visible: any other error now would let the caller remove the bytes it references.
                gateway.blobs().releases.await_sync().await.map_err(|_| larder_core::Error::TimedOut)?;
            }
            Err(error) => {
                let refused: larder_core::Result<()> = Err(error.into());
                notices.iter().for_each(|notices| notices.withdraw_if_refused(&refused));
                return refused.map(|()| false).map_err(Into::into);
            }
        }
        notices.iter().for_each(PendingNotices::confirm);
        // Before the turn goes on: the notices of the next writer come after these [invariant 173].
        drop(notices);
        if next.replaces_all {
            // Before the turn goes on: the next writer asks for it.
            writer.note_replaced(arrived);
        }
        // Crash: the committed head lists what to release, so the next writer or the sweeper finishes it [invariant 62].
        drop((guard, writer));
        // Crash: the writer of the replaced head may have died before it released these bytes [invariant 62].
        let releases = head.release.iter().chain(&next.head.release).copied().collect();
        heads.pins.release(gateway, releases).await;
        Ok(true)
    }
}

/// The row of a head with its derived row, the key's listing entry.
fn head_row(gateway: &Core, head: &ObjectHead, bucket: BucketId, key: &Bytes, stamp: Timestamp) -> HeadWrite {
    // Race: without its head the next put, by a slower clock, would stamp below the deletion and not be listed [invariant 56].
    let expires = head.current.is_none().then(|| gateway.context().now() + DELETED_HEAD_MICROS);
    let row = Row { name: Bytes::new(), value: head.encode(), stamp, expires };
    let value = ListingEntry::from_head(head).map(|entry| entry.encode());
    let derived = DerivedRow { partition: Partition::entries(bucket, entry_shard(key)), name: key.clone(), value };
    HeadWrite { derived: Some(derived), ..HeadWrite::from(row) }
}

impl Error {
    /// Whether the change failed by contention: too many conflicts with other writers.
    pub(super) fn is_contention(&self) -> bool {
        matches!(self, Self::Gateway(larder_core::Error::Overloaded { .. }))
    }
}
