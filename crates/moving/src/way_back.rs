//! The way back: what changes here is handed back to the Riak that it came from, until the move ends.
//!
//! ```text
//! pass over all keys here ──changed since the last import or return──> BackQueue ──fetched──> Riak merges it by its clock
//!                         └──<── the key at the Riak has it: noted in the row of the moved key ──<──┘
//! ```
//! The clock of an element is what this store has seen of the Riak's, and an entry of the move's own actor: the newest write of
//! the key. So it replaces what was moved, and stays beside what clients of the Riak wrote since [invariant 204].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::{Error, Result};
use larder_kv::{
    HeldKey, HeldState, ImportComparison, ImportedValue, KvImport, ReplicationQueue, rules::datatypes::SourceDatatype,
};
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_rows::limits::MOVED_SHARDS;
use larder_rows::{ActorId, MoveWish, MovedRow, MovedState, Timestamp};
use tokio::time::sleep;

use crate::back_queue::{BACK_QUEUE, OpenBackQueue, WaitingKey};
use crate::move_run::{KeyFailure, KeyOutcome, MoveRun, MoveStopped, SweepKind};
use crate::move_store::MoveStore;
use crate::moved_key::imported;
use crate::mover::Mover;
use crate::progress::{MoveCount, MovePhase, MoveVerification};
use crate::rules::{
    ElementKey, HandedOut, QueueAnswer, QueueElement, RiakObject, RiakSibling, SourceObject, SourceOrder, SourceValue,
    VectorClock, VectorClockEntry,
};
use crate::source::{Source, SourceState};
use crate::sweep::SweptKey;

/// Most bytes of an object that goes back, siblings together.
const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// Pauses before the Riak is asked whether it has an element that it fetched.
const RETURN_PAUSES: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(300), Duration::from_secs(1)];
/// How often a key is handed out in one pass.
const HANDED_OUT_MAX: usize = 3;
/// Seconds between the year 0, from which clocks of Riak count, and 1970.
const YEAR_0: u64 = 62_167_219_200;

/// A key as it is here, and what is known of it at the Riak.
struct ReturnedKey {
    before: Option<MovedRow>,
    held: HeldState,
    /// The writes of the Riak that are in it, and those that were returned.
    seen: VectorClock,
    actor: ActorId,
}

impl ReturnedKey {
    async fn read(store: &MoveStore, actor: ActorId, address: &Address) -> Result<Self> {
        let before = store.moved_row(address).await?;
        let held = store.gateway.kv.held_state(HeldKey { address, actor, before: before.as_ref() }).await?;
        let seen = VectorClock::from_moved(before.as_ref().map(|row| &row.clock[..]).unwrap_or_default());
        let seen = seen.map_err(|_| Error::Internal("the source of the move is no Riak".to_owned()))?;
        Ok(Self { before, held, seen, actor })
    }

    /// Whether the Riak has it as it is here.
    fn is_returned(&self) -> bool {
        !self.held.is_changed || self.held.is_live && self.returned() >= self.held.latest.0
    }

    /// The newest write here that the Riak has.
    fn returned(&self) -> u64 {
        self.seen.writes(&actor_name(self.actor))
    }

    /// What the Riak is to have seen with this write.
    fn clock(&self, write: Timestamp) -> VectorClock {
        let seconds = YEAR_0 + write.as_secs();
        let entry = VectorClockEntry { actor: actor_name(self.actor), count: write.0, seconds };
        self.seen.merge(&VectorClock::new(vec![entry]))
    }

    /// The row of the moved key in this state, of which the Riak has seen these writes.
    fn row(&self, state: MovedState, seen: &VectorClock) -> MovedRow {
        MovedRow {
            state,
            concurrent: false,
            complete: true,
            written: 0,
            stamp: self.before.as_ref().map(|row| row.stamp).unwrap_or_default(),
            clock: seen.to_deflated(),
        }
    }
}

#[async_trait]
impl ReplicationQueue for Mover {
    async fn next(&self, name: &[u8]) -> Result<Option<Bytes>> {
        if name != BACK_QUEUE || !self.back.is_open() {
            return Ok(None);
        }
        let empty = Bytes::from_static(QueueAnswer::EMPTY);
        let Some(WaitingKey { address, actor, fetched }) = self.back.take().await else { return Ok(Some(empty)) };
        // Bound: each holds an object in memory.
        let _reading = self.back.reading.acquire().await;
        match element(&self.store, actor, &address).await {
            Ok(element) => {
                let Element { answer, handed_out } = element;
                let _ = fetched.send(Ok(handed_out));
                Ok(Some(answer))
            }
            Err(error) => {
                let _ = fetched.send(Err(error.to_string()));
                Ok(Some(empty))
            }
        }
    }
}

/// An element.
struct Element {
    answer: Bytes,
    handed_out: HandedOut,
}

/// The element of a key as it is now.
async fn element(store: &MoveStore, actor: ActorId, address: &Address) -> Result<Element> {
    let kv = &store.gateway.kv;
    // Race: before the values, so that a write between the two is one that the Riak has not [invariant 204].
    let key = ReturnedKey::read(store, actor, address).await?;
    let values = kv.held_values(address, OBJECT_BYTES_MAX).await?;
    if is_unknown_there(key.before.as_ref()) {
        // Crash: before it is handed out; a key that is deleted here then, and whose return was not noted, has no other trace of what
        // the Riak got [invariant 204].
        store.write_moved_row(address, &key.row(MovedState::Kept, &key.seen)).await?;
    }
    // A deletion may have left no row that tells its time, so it is of now: above all that was here.
    let deletion = if values.is_empty() { Some(store.gateway.issuer().issue().await?) } else { None };
    let siblings = match deletion {
        Some(now) => vec![RiakSibling::tombstone(now)],
        None => values.into_iter().map(sibling).collect(),
    };
    let object = RiakObject { clock: key.clock(deletion.unwrap_or(key.held.latest)), siblings };
    let BucketAddress { bucket_type, bucket } = address.bucket.clone();
    let bucket_type = if bucket_type == DEFAULT_TYPE { Bytes::new() } else { bucket_type };
    let answer = QueueElement::answer(&ElementKey { bucket_type, bucket, key: address.key.clone() }, &object);
    Ok(Element { answer, handed_out: HandedOut { clock: object.clock, is_deletion: deletion.is_some() } })
}

/// Whether the Riak does not have the key, by all that is noted: once it is absent here, nothing is done about it.
fn is_unknown_there(before: Option<&MovedRow>) -> bool {
    before.is_none_or(|row| row.state == MovedState::Deleted)
}

fn sibling(value: ImportedValue) -> RiakSibling {
    let ImportedValue { content, modified, vtag } = value;
    RiakSibling { content, is_term: false, modified, vtag, deleted: false, dot: None, unknown: Vec::new() }
}

/// Whether the clock of an answer has seen all of another one.
fn has_seen(there: &[u8], clock: &VectorClock) -> bool {
    VectorClock::from_deflated(there).is_ok_and(|there| there.descends(clock))
}

fn actor_name(actor: ActorId) -> Bytes {
    Bytes::copy_from_slice(&actor.0.to_be_bytes())
}

impl MoveRun<Source> {
    /// Whether the way back is open, or is to be.
    pub(crate) fn is_back(&self) -> bool {
        self.phase() == MovePhase::Back || self.order.wish == MoveWish::Back
    }

    pub(crate) fn open_back_queue(&self) -> OpenBackQueue {
        self.source.back.open()
    }

    /// Passes over all keys here: hands back those that changed, and compares them all in a verification.
    ///
    /// # Errors
    /// The Riak or the store does not answer.
    pub(crate) async fn sweep_back(
        self: &Arc<Self>,
        types: &[Bytes],
        kind: SweepKind,
    ) -> std::result::Result<MoveVerification, MoveStopped> {
        let mut found = self.begin_pass(kind);
        let buckets = self.buckets_here(types).await?;
        self.note(|progress| progress.sweep.buckets_known = buckets.len() as u64);
        for bucket in &buckets {
            self.begin_bucket(bucket.to_string());
            self.sweep_moved(bucket, kind, &mut found).await?;
            self.sweep_new(bucket, kind, &mut found).await?;
            self.note(|progress| progress.sweep.buckets += 1);
        }
        self.end_pass(&mut found);
        Ok(found)
    }

    /// The buckets that were moved, and those that hold a key here.
    async fn buckets_here(&self, types: &[Bytes]) -> Result<Vec<BucketAddress>> {
        let mut buckets = self.store.buckets().await?;
        buckets.retain(|bucket| types.contains(&bucket.bucket_type));
        for bucket_type in types {
            let mut after = None;
            loop {
                let page = self.gateway.kv.list_buckets(bucket_type, after, None).await?;
                let named = |bucket| BucketAddress { bucket_type: bucket_type.clone(), bucket };
                buckets.extend(page.names.into_iter().map(named));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        buckets.sort_unstable();
        buckets.dedup();
        Ok(buckets)
    }

    /// The keys that were moved, also those that are deleted here.
    async fn sweep_moved(
        self: &Arc<Self>,
        bucket: &BucketAddress,
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> std::result::Result<(), MoveStopped> {
        for shard in 0..MOVED_SHARDS {
            let (mut after, mut has_more) = (None, true);
            while has_more {
                let rows;
                (rows, has_more) = self.store.moved_keys(bucket, shard, after.as_ref()).await?;
                after = rows.last().map(|(key, _)| key.clone());
                self.note(|progress| progress.sweep.keys_known += rows.len() as u64);
                self.sweep_keys(bucket, rows.into_iter().map(|(key, _)| SweptKey::from(key)), kind, found).await?;
            }
        }
        Ok(())
    }

    /// The keys that no move brought.
    async fn sweep_new(
        self: &Arc<Self>,
        bucket: &BucketAddress,
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> std::result::Result<(), MoveStopped> {
        let mut after = None;
        loop {
            let page = self.gateway.kv.list_keys(bucket, after, None).await?;
            let mut new = Vec::new();
            for key in page.names {
                let address = Address { bucket: bucket.clone(), key };
                if self.store.moved_row(&address).await?.is_none() {
                    new.push(address.key);
                }
            }
            self.note(|progress| progress.sweep.keys_known += new.len() as u64);
            self.sweep_keys(bucket, new.into_iter().map(SweptKey::from), kind, found).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Hands a key back if it changed. One that cannot go back is set aside.
    ///
    /// # Errors
    /// The Riak or the store does not answer.
    pub(crate) async fn return_key(
        &self,
        address: &Address,
        kind: SweepKind,
    ) -> std::result::Result<KeyOutcome, MoveStopped> {
        let result = self.try_return(address, kind).await;
        self.end_key_result(address, result).await
    }

    async fn try_return(&self, address: &Address, kind: SweepKind) -> std::result::Result<KeyOutcome, KeyFailure> {
        let key = self.returned_key(address).await?;
        let changed = !key.is_returned() && !self.has_returned(address, self.as_held(&key).await?).await?;
        if changed {
            self.hand_out(address).await?;
        }
        let comparison = match kind {
            SweepKind::Verify => Some(self.compare_returned(address).await?),
            SweepKind::Seed | SweepKind::Follow => None,
        };
        Ok(KeyOutcome { changed: changed && kind != SweepKind::Verify, comparison, is_doubted: false })
    }

    async fn returned_key(&self, address: &Address) -> Result<ReturnedKey> {
        ReturnedKey::read(&self.store, self.order.actor, address).await
    }

    /// What the Riak would have been handed, if a run before did so.
    async fn as_held(&self, key: &ReturnedKey) -> Result<HandedOut> {
        Ok(match key.held.is_live {
            true => HandedOut { clock: key.clock(key.held.latest), is_deletion: false },
            // No deletion is known, so the Riak has none of this time.
            false => HandedOut { clock: key.clock(self.gateway.issuer().issue().await?), is_deletion: true },
        })
    }

    /// Hands a key out until the Riak has it. It may have changed again meanwhile: the next pass finds that.
    async fn hand_out(&self, address: &Address) -> std::result::Result<(), KeyFailure> {
        for _ in 0..HANDED_OUT_MAX {
            let handed_out = self.await_fetch(address).await?;
            for pause in RETURN_PAUSES {
                sleep(pause).await;
                if self.has_returned(address, handed_out.clone()).await? {
                    self.count(MoveCount::Returned, 1);
                    return Ok(());
                }
            }
        }
        Err(KeyFailure::Aside("the Riak fetched it, and does not show it".to_owned()))
    }

    /// Waits until the Riak has fetched the object of a key.
    async fn await_fetch(&self, address: &Address) -> std::result::Result<HandedOut, KeyFailure> {
        let tell = |waiting| {
            let error = format!("{waiting} keys wait in the queue back, and no Riak fetches them");
            self.note(|progress| progress.error = error);
        };
        let handed_out = match self.source.back.fetched(address, self.order.actor, tell).await {
            Some(Ok(handed_out)) => handed_out,
            Some(Err(why)) => return Err(KeyFailure::Aside(why)),
            None => return Err(KeyFailure::Stopped(MoveStopped("the queue of the way back is closed".to_owned()))),
        };
        self.count(MoveCount::Fetched, 1);
        self.note(|progress| progress.error.clear());
        Ok(handed_out)
    }

    /// Asks the Riak whether it has what was handed out, and notes it.
    async fn has_returned(&self, address: &Address, handed_out: HandedOut) -> std::result::Result<bool, KeyFailure> {
        let HandedOut { clock, is_deletion } = handed_out;
        let seen = match is_deletion {
            true => self.clock_of_deletion(address, clock).await?,
            false => match self.source.head(address).await? {
                Some(there) => Some(clock).filter(|clock| has_seen(&there, clock)),
                None => {
                    self.forget_clock(address).await?;
                    None
                }
            },
        };
        let Some(seen) = seen else { return Ok(false) };
        let state = if is_deletion { MovedState::Deleted } else { MovedState::Kept };
        let key = self.returned_key(address).await?;
        self.store.write_moved_row(address, &key.row(state, &seen)).await?;
        Ok(true)
    }

    /// The clock that the Riak has seen of a key whose deletion it has; `None`: it has it not.
    async fn clock_of_deletion(
        &self,
        address: &Address,
        clock: VectorClock,
    ) -> std::result::Result<Option<VectorClock>, KeyFailure> {
        Ok(match &self.source.fetch(address, true).await?.state {
            SourceState::Absent => Some(clock.of_actor(&actor_name(self.order.actor))),
            SourceState::Found(object) => {
                // A client of the Riak may have written beside the deletion. What it has of ours may also be a value of before, whose
                // return was not noted [invariant 204].
                let has_it = object.values.is_empty() || has_seen(&object.clock, &clock);
                Some(clock).filter(|_| has_it)
            }
        })
    }

    /// Forgets what was seen of a key's clock if the Riak knows nothing of the key: its next write there begins anew, and the clock
    /// of before would hide it [invariant 205].
    async fn forget_clock(&self, address: &Address) -> std::result::Result<(), KeyFailure> {
        let key = self.returned_key(address).await?;
        let ours = key.seen.of_actor(&actor_name(self.order.actor));
        if ours != key.seen && self.source.fetch(address, true).await?.state == SourceState::Absent {
            self.store.write_moved_row(address, &key.row(MovedState::Kept, &ours)).await?;
        }
        Ok(())
    }

    /// Compares a key with its state at the Riak.
    async fn compare_returned(&self, address: &Address) -> std::result::Result<ImportComparison, KeyFailure> {
        let key = self.returned_key(address).await?;
        let there = self.source.fetch(address, true).await?;
        let (clock, is_equal) = match &there.state {
            SourceState::Absent => (Bytes::new(), !key.held.is_live),
            SourceState::Found(object) => {
                let is_equal = match key.held.is_datatype {
                    true => {
                        let both = self.state_there(address, &there.state)?.zip(self.state_here(address).await?);
                        both.is_some_and(|(there, here)| there.shows_as(&here))
                    }
                    false => self.is_here(address, object, &key).await?,
                };
                (object.clock.clone(), is_equal)
            }
        };
        let seen = key.seen.to_deflated();
        Ok(match SourceOrder::of_answer(&clock, &seen) {
            _ if is_equal => ImportComparison::Equal,
            // Clients of the Riak wrote it since, or the clock of a deleted key begins again there.
            SourceOrder::Newer | SourceOrder::Concurrent if there.state != SourceState::Absent => {
                ImportComparison::ChangedThere
            }
            _ => ImportComparison::Differs,
        })
    }

    async fn is_here(&self, address: &Address, object: &SourceObject, key: &ReturnedKey) -> Result<bool> {
        let import = KvImport {
            address: address.clone(),
            values: object.values.iter().cloned().map(imported).collect(),
            replaces: true,
            actor: key.actor,
            clock: object.clock.clone(),
            before: key.before.clone(),
        };
        Ok(self.gateway.kv.compare_import(&import).await? == ImportComparison::Equal)
    }

    /// The data type at a key here, as its Riak knows it.
    async fn state_here(&self, address: &Address) -> std::result::Result<Option<SourceDatatype>, KeyFailure> {
        let values = self.gateway.kv.held_values(address, OBJECT_BYTES_MAX).await?;
        let shown = |ImportedValue { content, modified, vtag }| SourceValue { content, modified, vtag };
        let values = values.into_iter().map(shown).collect();
        self.merged_state(address, &SourceObject { clock: Bytes::new(), values })
    }

    fn state_there(
        &self,
        address: &Address,
        there: &SourceState,
    ) -> std::result::Result<Option<SourceDatatype>, KeyFailure> {
        match there {
            SourceState::Absent => Ok(None),
            SourceState::Found(object) => self.merged_state(address, object),
        }
    }
}
