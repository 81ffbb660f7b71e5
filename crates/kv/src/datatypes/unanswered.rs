//! Batches over replicas whose fate is not known: some replicas may have them, and no quorum is known to.
//!
//! The next batch of the key is decided on what such a batch wrote and carries its changes again, at their own stamps. So totals
//! go on from it, and a clock that a quorum has stands for all batches before it [invariant 153].

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use larder_admission::{FairBudget, HeldUnits};
use larder_core::{Error, Result};
use larder_rows::address::BucketAddress;
use larder_rows::{Batch, Change, Row, Timestamp, hash};
use larder_store::{Partition, Range};
use parking_lot::Mutex;

/// Most bytes of all unanswered batches of a gateway.
const BYTES_MAX: usize = 64 << 20;

/// Keys whose last clock a gateway remembers.
const CLOCKS_MAX: usize = 200_000;

/// The batch of a key of which the engine has not said that a quorum has it.
#[derive(Debug)]
pub(super) struct UnansweredBatch {
    pub(super) batch: Batch,
    /// The clock of this gateway that a quorum had before it.
    pub(super) confirmed: Timestamp,
    /// Its own clock.
    pub(super) clock: Timestamp,
    /// Its memory, of its bucket's share.
    _bytes: HeldUnits<BucketAddress>,
}

/// The memory for batches without an answer. A bucket whose replicas are down leaves half of it to the others.
#[derive(Debug)]
pub(super) struct UnansweredMemory(FairBudget<BucketAddress>);

impl UnansweredMemory {
    pub(super) fn new() -> Self {
        Self(FairBudget::new(BYTES_MAX))
    }

    /// Keeps a batch of a key of this bucket.
    ///
    /// # Errors
    /// [`Error::Overloaded`]: a batch that could not be sent again must not be sent.
    pub(super) fn keep(
        &self,
        bucket: &BucketAddress,
        batch: Batch,
        confirmed: Timestamp,
        clock: Timestamp,
    ) -> Result<UnansweredBatch> {
        // Bound: while replicas are down, every key may have one.
        let bytes = self.0.try_take(bucket, batch.bytes()).ok_or(Error::Overloaded { retry_after: 1 })?;
        Ok(UnansweredBatch { batch, confirmed, clock, _bytes: bytes })
    }
}

impl UnansweredBatch {
    /// The rows of a range as they are once the batch is stored.
    pub(super) fn shown_over(&self, partition: &Partition, range: &Range, rows: Vec<Row>) -> Vec<Row> {
        let mut shown: BTreeMap<Bytes, Row> = rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        let own = self.batch.partitions.iter().filter(|part| part.partition == *partition);
        for change in own.flat_map(|part| &part.changes) {
            match change {
                Change::Put(row) if is_in(range, &row.name) => {
                    let is_newer = shown.get(&row.name).is_none_or(|known| row.stamp >= known.stamp);
                    if is_newer {
                        shown.insert(row.name.clone(), row.clone());
                    }
                }
                Change::Remove { name, stamp } if shown.get(name).is_some_and(|known| known.stamp <= *stamp) => {
                    shown.remove(name);
                }
                _ => {}
            }
        }
        shown.into_values().collect()
    }

    /// A batch that makes these changes and, where they name other rows, those of this one.
    pub(super) fn followed_by(&self, next: Batch) -> Batch {
        let mut joined = next;
        for earlier in &self.batch.partitions {
            match joined.partitions.iter_mut().find(|part| part.partition == earlier.partition) {
                Some(part) => part.changes = joined_changes(&earlier.changes, std::mem::take(&mut part.changes)),
                None => joined.partitions.push(earlier.clone()),
            }
        }
        joined
    }
}

fn is_in(range: &Range, name: &Bytes) -> bool {
    range.from.as_ref().is_none_or(|from| from <= name) && range.to.as_ref().is_none_or(|to| name < to)
}

/// The changes of both; of a row that both change the later ones, which know the earlier.
fn joined_changes(earlier: &[Change], later: Vec<Change>) -> Vec<Change> {
    let name = |change: &Change| match change {
        Change::Put(row) => Some(row.name.clone()),
        Change::Remove { name, .. } => Some(name.clone()),
        Change::Clear { .. } => None,
    };
    let changed: std::collections::HashSet<_> = later.iter().filter_map(name).collect();
    let kept = earlier.iter().filter(|change| name(change).is_none_or(|name| !changed.contains(&name)));
    kept.cloned().chain(later).collect()
}

/// The last clock of this gateway that a quorum has, by key.
#[derive(Debug, Default)]
pub(super) struct ConfirmedClocks(Mutex<ConfirmedByKey>);

#[derive(Debug, Default)]
struct ConfirmedByKey {
    /// By a hash of the key.
    clocks: HashMap<u64, Timestamp>,
    has_forgotten: bool,
}

impl ConfirmedClocks {
    /// The clock of a key, zero before its first batch; `None` if it may have been forgotten.
    pub(super) fn known(&self, partition: &Partition) -> Option<Timestamp> {
        let known = self.0.lock();
        let forgotten = if known.has_forgotten { None } else { Some(Timestamp::ZERO) };
        known.clocks.get(&hash::id64(&[&partition.key])).copied().or(forgotten)
    }

    pub(super) fn note(&self, partition: &Partition, clock: Timestamp) {
        let mut known = self.0.lock();
        // Bound: keys without number are written, and a key that was forgotten costs its next batch one read.
        let key = hash::id64(&[&partition.key]);
        if known.clocks.len() >= CLOCKS_MAX && !known.clocks.contains_key(&key) {
            known.clocks.clear();
            known.has_forgotten = true;
        }
        known.clocks.insert(key, clock);
    }
}

#[cfg(test)]
mod tests {
    use larder_store::Table;

    use super::*;

    #[test]
    fn a_bucket_without_its_replicas_once_took_the_memory_of_all_others() {
        let memory = UnansweredMemory::new();
        let keep = |bucket: &'static str| {
            let bucket = BucketAddress::new("sets".into(), bucket.into()).unwrap();
            let value = Bytes::from(vec![0; 1 << 20]);
            let row = Row { name: "r".into(), value, stamp: Timestamp(1), expires: None };
            let batch = Batch::single(Partition::new(Table::DataTypes, "k"), vec![Change::Put(row)]);
            memory.keep(&bucket, batch, Timestamp::ZERO, Timestamp(1))
        };
        let kept: Vec<_> = std::iter::from_fn(|| keep("down").ok()).collect();
        assert!(kept.len() >= 30 && kept.len() <= 32, "{}", kept.len());
        let other = keep("up").unwrap();
        drop((kept, other));
        assert!(keep("down").is_ok(), "what is answered gives its memory back");
    }
}
