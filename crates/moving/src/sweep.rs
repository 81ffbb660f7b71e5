//! One pass over all keys of a source, bucket by bucket.
//!
//! ```text
//! listing of the bucket ──> keys of one slice, in memory ──> each is brought to the state of its source
//!                                                       └──> moved keys that it does not list: deleted there, perhaps
//! ```
//! The keys of a bucket are listed at once and then worked on, since a source keeps a fold open while a listing is read. Keys
//! that take too much memory are split into slices by their hash, and the bucket is listed once for each slice.
//!
//! A pass that follows asks for the clock of each key, or for those of many at once where the source has trees ([`KeyClocks`](crate::rules::KeyClocks)).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use larder_kv::ImportComparison;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::limits::MOVED_SHARDS;
use larder_rows::{MovedRow, MovedState, hash};
use tokio::task::{JoinError, JoinSet};

use crate::move_run::{KeyOutcome, MoveRun, MoveStopped, SweepKind};
use crate::moved_key::{key_address, shown};
use crate::progress::{MovePhase, MoveVerification};
use crate::source::Source;
use crate::source_folds::WITHOUT_TREES;

/// Keys that are worked on at a time.
const KEYS_AT_ONCE: usize = 16;
/// Keys that are handed back at a time: each waits for its Riak.
const RETURNED_AT_ONCE: usize = 64;
/// Most bytes of the keys of a slice.
const SLICE_BYTES_MAX: usize = 32 << 20;
/// Bytes that a key takes beside its name.
const KEY_BYTES: usize = 48;
/// Most slices of a bucket.
const SLICES_MAX: u64 = 1 << 16;
/// Keys of which a fold shows the clocks, in a bucket of one slice, and the fewest that are worth a fold.
const FOLDED_KEYS: usize = 1000;
const FOLDED_KEYS_MIN: usize = 16;
/// Most slices of a bucket with folds: each one folds over the keys of all.
const FOLDED_SLICES_MAX: u64 = 4;
/// Every so many passes one asks for each key.
const WITHOUT_FOLDS: u64 = 10;
/// Most buckets of a source.
const BUCKETS_MAX: usize = 1_000_000;

/// A key that was worked on.
type EndedKey = (Address, Result<KeyOutcome, MoveStopped>);

/// A key of the source that a pass looks at, and the clock that a fold showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SweptKey {
    pub(crate) key: Bytes,
    pub(crate) folded: Option<Bytes>,
}

impl From<Bytes> for SweptKey {
    fn from(key: Bytes) -> Self {
        Self { key, folded: None }
    }
}

/// A share of the keys of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeySlice {
    number: u64,
    of: u64,
}

impl KeySlice {
    fn holds(self, key: &[u8]) -> bool {
        hash::id64(&[key]) % self.of == self.number
    }
}

impl MoveRun<Source> {
    /// Passes over all keys of these types; returns what a comparison found.
    ///
    /// # Errors
    /// The source or the store does not answer. The pass begins again then; what was copied is not copied again.
    pub(crate) async fn sweep(
        self: &Arc<Self>,
        types: &[Bytes],
        kind: SweepKind,
    ) -> Result<MoveVerification, MoveStopped> {
        let (gaps, changes) = (self.gaps(), self.queue_changes());
        let may_fold =
            kind == SweepKind::Follow && !self.note(|progress| progress.sweeps).is_multiple_of(WITHOUT_FOLDS);
        // A fold shows what one replica has. So what a gap has lost is asked of a quorum [invariant 206].
        self.source.begin_folds(may_fold && self.open_gaps() == 0);
        let mut found = self.begin_pass(kind);
        let buckets = self.all_buckets(types).await?;
        self.note(|progress| progress.sweep.buckets_known = buckets.len() as u64);
        for bucket in &buckets {
            self.begin_bucket(bucket.to_string());
            self.sweep_bucket(bucket, kind, &mut found).await?;
            self.note(|progress| progress.sweep.buckets += 1);
        }
        if kind != SweepKind::Seed {
            // Race: elements are lost while a pass is under way, behind the keys that it has read [invariant 195].
            self.close_gaps(gaps);
        }
        if kind == SweepKind::Verify {
            // What a queue brought meanwhile changed there, too.
            found.changed_there += self.queue_changes() - changes;
        }
        self.end_pass(&mut found);
        Ok(found)
    }

    /// The buckets that the source lists, and those of moved keys that it lists no more.
    async fn all_buckets(&self, types: &[Bytes]) -> Result<Vec<BucketAddress>, MoveStopped> {
        let noted = self.store.buckets().await?;
        let mut buckets: BTreeSet<BucketAddress> =
            noted.iter().filter(|bucket| types.contains(&bucket.bucket_type)).cloned().collect();
        for bucket_type in types {
            let mut wrong = None;
            let mut add = |name: Bytes| {
                match BucketAddress::new(bucket_type.clone(), name.clone()) {
                    Ok(bucket) => drop(buckets.insert(bucket)),
                    Err(error) => wrong = Some(format!("bucket {}: {error}", name.escape_ascii())),
                }
                buckets.len() < BUCKETS_MAX
            };
            if !self.source.list_buckets(bucket_type, &mut add).await? {
                return Err(MoveStopped(format!("the source has more than {BUCKETS_MAX} buckets")));
            }
            wrong.into_iter().for_each(|note| self.tell(note));
        }
        for bucket in buckets.iter().filter(|bucket| !noted.contains(bucket)) {
            self.move_bucket_props(bucket).await?;
            self.store.note_bucket(bucket).await?;
        }
        Ok(buckets.into_iter().collect())
    }

    async fn sweep_bucket(
        self: &Arc<Self>,
        bucket: &BucketAddress,
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> Result<(), MoveStopped> {
        let mut slice = KeySlice { number: 0, of: 1 };
        while slice.number < slice.of {
            let Some(keys) = self.list_slice(bucket, slice).await? else {
                // From the first one on, since a finer slice is another share. What was copied is only looked at again.
                slice = KeySlice { number: 0, of: slice.of * 2 };
                if slice.of > SLICES_MAX {
                    return Err(MoveStopped(format!("{bucket} has more keys than a pass can list")));
                }
                continue;
            };
            self.note(|progress| progress.sweep.keys_known += keys.len() as u64);
            self.sweep_listed(bucket, slice, &keys, kind, found).await?;
            self.sweep_unlisted(bucket, slice, &keys, kind, found).await?;
            slice.number += 1;
        }
        Ok(())
    }

    /// The keys of a slice, in order; `None`: they take too much memory.
    async fn list_slice(&self, bucket: &BucketAddress, slice: KeySlice) -> Result<Option<Vec<Bytes>>, MoveStopped> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let mut add = |key: Bytes| {
            if slice.holds(&key) {
                bytes += key.len() + KEY_BYTES;
                keys.push(key);
            }
            bytes <= SLICE_BYTES_MAX
        };
        if !self.source.list_keys(bucket, &mut add).await? {
            return Ok(None);
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(Some(keys))
    }

    /// Works on the keys of a slice, with their clocks where a fold shows them.
    async fn sweep_listed(
        self: &Arc<Self>,
        bucket: &BucketAddress,
        slice: KeySlice,
        keys: &[Bytes],
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> Result<(), MoveStopped> {
        let may_fold = kind == SweepKind::Follow && slice.of <= FOLDED_SLICES_MAX;
        // A range has the keys of all slices. Without folds no key waits for those before it.
        let at_once = if may_fold { FOLDED_KEYS / slice.of as usize } else { keys.len().max(1) };
        for keys in keys.chunks(at_once) {
            let is_worth = may_fold && keys.len() >= FOLDED_KEYS_MIN;
            let clocks = if is_worth { self.source.folded_clocks(bucket, keys).await } else { Ok(None) };
            match clocks {
                Ok(Some(_)) => self.untell(WITHOUT_TREES),
                Ok(None) => {}
                Err(note) => self.tell(note.to_owned()),
            }
            let clocks = clocks.ok().flatten().unwrap_or_default();
            let folded = |key: &Bytes| SweptKey { folded: clocks.get(key).cloned(), key: key.clone() };
            self.sweep_keys(bucket, keys.iter().map(folded), kind, found).await?;
        }
        Ok(())
    }

    /// Looks at moved keys that the listing does not have. A listing alone deletes nothing: each is read at the source.
    async fn sweep_unlisted(
        self: &Arc<Self>,
        bucket: &BucketAddress,
        slice: KeySlice,
        listed: &[Bytes],
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> Result<(), MoveStopped> {
        if kind == SweepKind::Seed {
            return Ok(());
        }
        for shard in 0..MOVED_SHARDS {
            let mut after: Option<Bytes> = None;
            loop {
                let (rows, has_more) = self.store.moved_keys(bucket, shard, after.as_ref()).await?;
                after = rows.last().map(|(key, _)| key.clone());
                // A deleted key that is written again is listed again.
                let is_settled = |row: &MovedRow| row.state == MovedState::Deleted && kind == SweepKind::Follow;
                let is_unlisted = |(key, row): &(Bytes, MovedRow)| {
                    slice.holds(key) && !is_settled(row) && listed.binary_search(key).is_err()
                };
                let unlisted = rows.into_iter().filter(is_unlisted).map(|(key, _)| SweptKey::from(key));
                self.sweep_keys(bucket, unlisted, kind, found).await?;
                if !has_more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Works on keys of a bucket, some at a time.
    pub(crate) async fn sweep_keys(
        self: &Arc<Self>,
        bucket: &BucketAddress,
        keys: impl Iterator<Item = SweptKey>,
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> Result<(), MoveStopped> {
        let mut under_way = JoinSet::new();
        let at_once = if self.phase() == MovePhase::Back { RETURNED_AT_ONCE } else { KEYS_AT_ONCE };
        for SweptKey { key, folded } in keys {
            let address = match key_address(bucket, key.clone()) {
                Ok(address) => address,
                Err(why) => {
                    let address = Address { bucket: bucket.clone(), key };
                    self.set_aside(shown(&address), why);
                    continue;
                }
            };
            while under_way.len() >= at_once {
                self.end_joined(under_way.join_next().await, kind, found)?;
            }
            let run = Arc::clone(self);
            under_way.spawn(async move {
                let outcome = match run.phase() == MovePhase::Back {
                    true => run.return_key(&address, kind).await,
                    false => run.sync_key(&address, folded.as_ref(), kind).await,
                };
                (address, outcome)
            });
        }
        while !under_way.is_empty() {
            self.end_joined(under_way.join_next().await, kind, found)?;
        }
        Ok(())
    }

    fn end_joined(
        &self,
        ended: Option<Result<EndedKey, JoinError>>,
        kind: SweepKind,
        found: &mut MoveVerification,
    ) -> Result<(), MoveStopped> {
        let Some(ended) = ended else { return Ok(()) };
        let (address, outcome) = ended.map_err(|error| MoveStopped(error.to_string()))?;
        let outcome = outcome.map_err(|MoveStopped(why)| MoveStopped(format!("{}: {why}", shown(&address))))?;
        if outcome.comparison == Some(ImportComparison::Differs) {
            self.note_difference(shown(&address));
        }
        self.end_key(outcome, kind, found);
        Ok(())
    }
}
