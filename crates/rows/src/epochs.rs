//! The epochs of a bucket: generations of the shards of its `$key` view and of its indexes.
//!
//! ```text
//! epoch 0     4 shards    read   removals reach it
//! epoch 1    16 shards    read   removals reach it   written
//! ```
//! A key has one shard in each epoch. A write adds its rows in the newest epoch and removes rows in every epoch, and a reader
//! merges all of them, so rows stay where they are when an epoch opens. An epoch opens in three stages ([`EpochStage`]).

use serde_json::{Value, json};

use crate::codec::DecodeError;
use crate::limits::{EPOCH_GROWTH, KEY_VIEW_SHARDS};

/// Most epochs of a bucket: 4, 16, 64 and 255 shards are four.
const EPOCHS_MAX: usize = 8;

/// How far the opening of the newest epoch is. A gateway may be one stage behind another one, never two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochStage {
    /// Readers merge it and removals reach it. Additions go to the epoch before it.
    Known,
    /// Additions go to it and to the epoch before it.
    Both,
    /// Additions go to it alone.
    Open,
}

impl EpochStage {
    const ALL: [Self; 3] = [Self::Known, Self::Both, Self::Open];

    /// Its name, as stored and shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Both => "both",
            Self::Open => "open",
        }
    }
}

/// The shard counts of a bucket's epochs, and the stage of the newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketEpochs {
    counts: [u8; EPOCHS_MAX],
    length: u8,
    stage: EpochStage,
}

/// A shard of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochShard {
    /// The number of the epoch.
    pub epoch: u8,
    /// The number of the shard in it.
    pub shard: u8,
    /// The shards of the epoch.
    pub of: u8,
}

impl EpochShard {
    /// Whether one key may be in this shard and in `other` of another epoch.
    #[must_use]
    pub fn may_share_keys(self, other: Self) -> bool {
        let (few, many) = if self.of <= other.of { (self, other) } else { (other, self) };
        many.of % few.of != 0 || many.shard % few.of == few.shard
    }
}

impl Default for BucketEpochs {
    fn default() -> Self {
        Self::ONE
    }
}

impl BucketEpochs {
    /// The one epoch of a bucket that was never split.
    pub const ONE: Self = {
        let mut counts = [0; EPOCHS_MAX];
        counts[0] = KEY_VIEW_SHARDS;
        Self { counts, length: 1, stage: EpochStage::Open }
    };

    /// The shard count of each epoch, the oldest first.
    #[must_use]
    pub fn counts(&self) -> &[u8] {
        &self.counts[..usize::from(self.length)]
    }

    /// The stage of the newest epoch.
    #[must_use]
    pub fn stage(&self) -> EpochStage {
        self.stage
    }

    /// Whether there is one epoch alone.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.length == 1
    }

    /// The epochs that additions go to, from the first to the last.
    fn written(&self) -> std::ops::RangeInclusive<u8> {
        let newest = self.length - 1;
        match self.stage {
            EpochStage::Known => newest - 1..=newest - 1,
            EpochStage::Both => newest - 1..=newest,
            EpochStage::Open => newest..=newest,
        }
    }

    /// Whether additions go to this epoch.
    #[must_use]
    pub fn is_written(&self, epoch: u8) -> bool {
        self.written().contains(&epoch)
    }

    /// The shards of all epochs, the oldest epoch first: a reader merges them.
    pub fn shards(&self) -> impl Iterator<Item = EpochShard> + use<> {
        let epochs = *self;
        (0..epochs.length).flat_map(move |epoch| {
            let of = epochs.counts[usize::from(epoch)];
            (0..of).map(move |shard| EpochShard { epoch, shard, of })
        })
    }

    /// The shard of `key` in each epoch, the oldest epoch first.
    pub fn key_shards(&self, key: &[u8]) -> impl Iterator<Item = EpochShard> + use<> {
        let (epochs, hash) = (*self, crate::hash::id64(&[key]));
        (0..epochs.length).map(move |epoch| {
            let of = epochs.counts[usize::from(epoch)];
            EpochShard { epoch, shard: (hash % u64::from(of)) as u8, of }
        })
    }

    /// The shard of `key` in the newest epoch that additions go to.
    #[must_use]
    pub fn newest_shard(&self, key: &[u8]) -> EpochShard {
        let (epoch, hash) = (*self.written().end(), crate::hash::id64(&[key]));
        let of = self.counts[usize::from(epoch)];
        EpochShard { epoch, shard: (hash % u64::from(of)) as u8, of }
    }

    /// The same with one more epoch, which is known; `None` while an epoch opens, or when the newest one has as many shards as
    /// there can be.
    #[must_use]
    pub fn with_new_epoch(&self) -> Option<Self> {
        let newest = *self.counts().last()?;
        let grown = newest.saturating_mul(EPOCH_GROWTH);
        if self.stage != EpochStage::Open || grown == newest || usize::from(self.length) == EPOCHS_MAX {
            return None;
        }
        let mut more = Self { length: self.length + 1, stage: EpochStage::Known, ..*self };
        more.counts[usize::from(self.length)] = grown;
        Some(more)
    }

    /// The same in the next stage; `None` when the newest epoch is open.
    #[must_use]
    pub fn in_next_stage(&self) -> Option<Self> {
        let stage = match self.stage {
            EpochStage::Known => EpochStage::Both,
            EpochStage::Both => EpochStage::Open,
            EpochStage::Open => return None,
        };
        Some(Self { stage, ..*self })
    }

    /// The stored form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"shards": self.counts(), "stage": self.stage.name()})
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn from_json(json: &Value) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid("epochs");
        let list = json["shards"].as_array().filter(|list| (1..=EPOCHS_MAX).contains(&list.len()));
        let mut epochs = Self { counts: [0; EPOCHS_MAX], length: 0, stage: EpochStage::Open };
        for count in list.ok_or(invalid)? {
            let count = count.as_u64().and_then(|count| u8::try_from(count).ok()).filter(|count| *count > 0);
            epochs.counts[usize::from(epochs.length)] = count.ok_or(invalid)?;
            epochs.length += 1;
        }
        let is_named = |stage: &EpochStage| json["stage"] == stage.name();
        epochs.stage = EpochStage::ALL.into_iter().find(is_named).ok_or(invalid)?;
        // Only an epoch that follows another one is not open yet.
        if epochs.is_single() && epochs.stage != EpochStage::Open { Err(invalid) } else { Ok(epochs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A bucket after so many openings, and so many stages of the next one.
    fn epochs_after(opened: usize, stages: usize) -> BucketEpochs {
        let mut epochs = BucketEpochs::ONE;
        for _ in 0..opened {
            epochs = epochs.with_new_epoch().unwrap().in_next_stage().unwrap().in_next_stage().unwrap();
        }
        if stages > 0 {
            epochs = epochs.with_new_epoch().unwrap();
        }
        (1..stages).fold(epochs, |epochs, _| epochs.in_next_stage().unwrap())
    }

    proptest! {
        #[test]
        fn a_key_is_in_one_shard_of_each_epoch_that_readers_merge(opened in 0..3_usize, stages in 0..3_usize, key: Vec<u8>) {
            let epochs = epochs_after(opened, stages);
            let all: Vec<EpochShard> = epochs.shards().collect();
            let key_shards: Vec<EpochShard> = epochs.key_shards(&key).collect();
            prop_assert_eq!(key_shards.len(), epochs.counts().len());
            for (shard, other) in key_shards.iter().zip(key_shards.iter().skip(1)) {
                prop_assert!(shard.may_share_keys(*other) && other.may_share_keys(*shard));
            }
            prop_assert!(key_shards.iter().all(|shard| all.contains(shard)));
            let newest = epochs.newest_shard(&key);
            prop_assert!(key_shards.contains(&newest) && epochs.is_written(newest.epoch));
            prop_assert_eq!(BucketEpochs::from_json(&epochs.to_json()), Ok(epochs));
        }
    }

    /// Two gateways are one stage apart at most: some epoch is written by both, and each removes where the other one writes.
    #[test]
    fn neighbouring_stages_share_a_written_epoch_and_know_the_epochs_of_each_other() {
        let stages: Vec<_> = (0..4).map(|stages| epochs_after(1, stages)).collect();
        for (earlier, later) in stages.iter().zip(&stages[1..]) {
            let both = |epoch: &u8| earlier.is_written(*epoch) && later.is_written(*epoch);
            assert!((0..3).any(|epoch| both(&epoch)), "{earlier:?} {later:?}");
            let known = |epoch: u8| usize::from(epoch) < earlier.counts().len();
            assert!((0..3).filter(|epoch| later.is_written(*epoch)).all(known), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn shards_grow_by_four_up_to_255() {
        let last = epochs_after(3, 0);
        assert_eq!((last.counts(), last.stage()), (&[4, 16, 64, 255][..], EpochStage::Open));
        assert_eq!(last.with_new_epoch(), None);
        assert_eq!(epochs_after(0, 1).with_new_epoch(), None, "an epoch opens");
    }

    #[test]
    fn the_golden_epochs_still_decode() {
        let golden = json!({"shards": [4, 16], "stage": "both"});
        assert_eq!(epochs_after(0, 2).to_json(), golden);
        assert_eq!(BucketEpochs::from_json(&golden), Ok(epochs_after(0, 2)));
        for wrong in [
            json!({"shards": [], "stage": "open"}),
            json!({"shards": [4, 0], "stage": "open"}),
            json!({"shards": [256], "stage": "open"}),
            json!({"shards": [4, 4, 4, 4, 4, 4, 4, 4, 4], "stage": "open"}),
            json!({"shards": [4], "stage": "known"}),
            json!({"shards": [4, 16], "stage": "closed"}),
            json!([4]),
            json!(null),
        ] {
            assert!(BucketEpochs::from_json(&wrong).is_err(), "{wrong}");
        }
    }
}
