//! One element of a replication queue is brought to its key: by itself where its clock decides, else by a read of the source.
//!
//! The key's turn is held from the read of what was moved to the import, by passes as well [invariant 193].

use std::time::Duration;

use bytes::Bytes;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::{MovedRow, MovedState, Timestamp};
use tokio::time::sleep;

use crate::move_run::{KeyFailure, KeyOutcome, MoveRun, MoveStopped, SweepKind};
use crate::moved_key::{DOUBT_PAUSE, SETTLE_PAUSE, Settled, key_address, order_of, shown};
use crate::progress::MoveCount;
use crate::queue_source::TakenElement;
use crate::rules::{ElementKey, QueueElement, QueueStep, ReplicatedChange, SourceObject, SourceOrder, VectorClock};
use crate::source::{Source, SourceState};

/// The type of buckets without one.
const DEFAULT_TYPE: &[u8] = b"default";
/// Reads of a key that does not show the state of its element yet.
const READS_MAX: u32 = 3;
/// Pause before an element is tried again that the store or the source did not take; each further one doubles it.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most buckets whose properties are known to be moved.
const BUCKETS_MAX: usize = 1_000_000;

/// What an element says about its key.
struct ElementReading {
    /// `None`: it could not be read.
    clock: Option<VectorClock>,
    is_deleted: bool,
    /// The object as a GET shows it; `None`: the element does not tell.
    object: Option<SourceObject>,
    /// The node that handed it out.
    node: usize,
}

impl ElementReading {
    fn new(element: Option<&QueueElement>, node: usize) -> Self {
        match element.map(|element| &element.change) {
            Some(ReplicatedChange::Object(object)) => Self {
                clock: Some(object.clock.clone()),
                is_deleted: object.is_tombstone(),
                // A data type goes on from here once it is moved.
                object: object.to_source(),
                node,
            },
            // The tombstone of before is gone: nothing changes, unless the deletion was missed.
            Some(ReplicatedChange::Reap { clock, .. }) => {
                Self { clock: Some(clock.clone()), is_deleted: true, object: None, node }
            }
            None => Self { clock: None, is_deleted: false, object: None, node },
        }
    }

    fn step(&self, row: Option<&MovedRow>) -> QueueStep {
        match &self.clock {
            Some(clock) => QueueStep::behind(clock, self.is_deleted, row),
            None => QueueStep::Fetch,
        }
    }
}

impl MoveRun<Source> {
    /// Brings an element of a type that moves to its key; returns whether it changed something here. It tries as long as the
    /// store or the source does not answer, since nobody hands the element out again.
    pub(crate) async fn take_in(&self, taken: TakenElement, node: usize) -> bool {
        let TakenElement { key, element, memory } = taken;
        let Some(address) = self.element_address(&key) else { return false };
        let state = ElementReading::new(element.as_ref(), node);
        drop(element);
        let mut pause = FAILURE_PAUSE;
        let outcome = loop {
            match self.bring_element(&address, &state).await {
                Ok(outcome) => break outcome,
                Err(MoveStopped(why)) => {
                    self.note(|progress| progress.queue.error = format!("{}: {why}", shown(&address)));
                    sleep(pause).await;
                    pause = (pause * 2).min(FAILURE_PAUSE_MAX);
                }
            }
        };
        self.note(|progress| progress.queue.error.clear());
        drop((state, memory));
        if outcome.is_doubted {
            // Its clock begins again, or a node lags behind: the second look takes what it finds.
            sleep(DOUBT_PAUSE).await;
            let again = ElementReading::new(None, node);
            return self.bring_element(&address, &again).await.is_ok_and(|outcome| outcome.changed);
        }
        outcome.changed
    }

    /// The address of an element; a name that no key here may have is set aside.
    fn element_address(&self, key: &ElementKey) -> Option<Address> {
        let ElementKey { bucket_type, bucket, key } = key.clone();
        let bucket_type = if bucket_type.is_empty() { DEFAULT_TYPE.into() } else { bucket_type };
        match BucketAddress::new(bucket_type, bucket.clone()) {
            Ok(bucket) => match key_address(&bucket, key.clone()) {
                Ok(address) => Some(address),
                Err(why) => {
                    self.set_aside(shown(&Address { bucket, key }), why);
                    None
                }
            },
            Err(error) => {
                self.tell(format!("bucket {}: {error}", bucket.escape_ascii()));
                None
            }
        }
    }

    async fn bring_element(&self, address: &Address, state: &ElementReading) -> Result<KeyOutcome, MoveStopped> {
        self.know_bucket(&address.bucket).await?;
        let turn = self.source.turns.wait(address).await;
        let result = self.try_element(address, state).await;
        drop(turn);
        self.end_key_result(address, result).await
    }

    async fn try_element(&self, address: &Address, state: &ElementReading) -> Result<KeyOutcome, KeyFailure> {
        let before = self.store.moved_row(address).await?;
        // Race: the element is of before a gap, and what deleted or replaced its state is lost in the gap; the pass that closed
        // it saw no such key [invariant 190].
        let is_unsure = before.is_none() && self.source.queue.state.lock().is_behind(state.node);
        match (state.step(before.as_ref()), &state.object) {
            (QueueStep::Drop, _) => Ok(KeyOutcome::default()),
            (QueueStep::Apply, Some(object)) if !is_unsure => match before.is_none() && object.values.is_empty() {
                true => self.note_deletion(address, object.clock.clone()).await,
                false => {
                    let settled = Settled { order: SourceOrder::Newer, object: object.clone() };
                    self.settle(address, before, settled, SweepKind::Follow).await
                }
            },
            (QueueStep::Apply | QueueStep::Fetch, _) => self.read_for(address, before, state).await,
        }
    }

    /// Notes that a key which was not moved yet is deleted, so that an older state of it is known as one.
    async fn note_deletion(&self, address: &Address, clock: Bytes) -> Result<KeyOutcome, KeyFailure> {
        // Race: another node hands out the write that was deleted, and the deleted key is here for good [invariant 190].
        let row = MovedRow {
            state: MovedState::Deleted,
            concurrent: false,
            complete: true,
            written: 0,
            stamp: Timestamp::ZERO,
            clock,
        };
        self.store.write_moved_row(address, &row).await?;
        Ok(KeyOutcome::default())
    }

    /// Brings a key to the state that the source shows now. The nodes may not have agreed yet on the write of the element: it is
    /// read again until they have.
    async fn read_for(
        &self,
        address: &Address,
        before: Option<MovedRow>,
        state: &ElementReading,
    ) -> Result<KeyOutcome, KeyFailure> {
        let mut reads = 0;
        let fetched = loop {
            let fetched = self.source.fetch(address, true).await?;
            reads += 1;
            if reads >= READS_MAX || state.is_in(&fetched.state, before.as_ref()) {
                break fetched;
            }
            // The memory of this answer goes before that of the next is asked for.
            drop(fetched);
            sleep(SETTLE_PAUSE * reads).await;
        };
        let clock = match &fetched.state {
            SourceState::Absent => state.clock.as_ref().map(VectorClock::to_deflated),
            SourceState::Found(object) => Some(object.clock.clone()).filter(|_| object.values.is_empty()),
        };
        if let Some(clock) = clock.filter(|_| before.is_none()) {
            return self.note_deletion(address, clock).await;
        }
        if fetched.state == SourceState::Absent && before.is_none() {
            return Ok(KeyOutcome::default());
        }
        let settled = order_of(&fetched.state, before.as_ref());
        if settled.order == SourceOrder::Concurrent {
            self.count(MoveCount::Concurrent, 1);
        }
        self.settle(address, before, settled, SweepKind::Follow).await
    }

    /// Moves the properties of a bucket before its first key, and notes it, so that passes look at its keys.
    async fn know_bucket(&self, bucket: &BucketAddress) -> Result<(), MoveStopped> {
        let mut known = self.source.queue.buckets.lock().await;
        let known = match &mut *known {
            Some(known) => known,
            empty => empty.insert(self.store.buckets().await?.into_iter().collect()),
        };
        if known.contains(bucket) {
            return Ok(());
        }
        self.move_bucket_props(bucket).await?;
        self.store.note_bucket(bucket).await?;
        if known.len() < BUCKETS_MAX {
            known.insert(bucket.clone());
        }
        Ok(())
    }
}

impl ElementReading {
    /// Whether a read shows the element's state or a later one, or may be taken as it is.
    fn is_in(&self, read: &SourceState, before: Option<&MovedRow>) -> bool {
        let Some(clock) = &self.clock else { return true };
        let moved = before.and_then(|row| VectorClock::from_deflated(&row.clock).ok());
        if moved.as_ref().is_some_and(|moved| moved.descends(clock)) {
            // What was moved is later than the element, so it waits for nothing.
            return true;
        }
        let here = moved.filter(|_| before.is_some_and(|row| row.state != MovedState::Deleted));
        let SourceState::Found(object) = read else { return self.is_deleted };
        let has_both = |read: VectorClock| read.descends(clock) && here.is_none_or(|here| read.descends(&here));
        VectorClock::from_deflated(&object.clock).is_ok_and(has_both)
    }
}
