//! Random merges that reclaim space, in any order and room, beside flushes and compactions: every read shows what a map shows.

use std::collections::BTreeMap;

use larder_store::ReadOrder;
use larder_testkit::{Scale, SplitMix64};

use super::*;
use crate::flush::{flush, restore_directory};
use crate::journal::WriteGroup;
use crate::output_sync::is_over_bound;
use crate::range_scan::{ScanBounds, ScannedEntries};
use crate::tree::EngineTree;
use crate::tree_id::TreeId;
use crate::tree_reclaim::ReclaimedPart;
use crate::trees::Trees;

const KEYS: usize = 400;
const TABLE_BYTES: u64 = 4096;

type Values = BTreeMap<Bytes, Bytes>;

/// A tree, and the map that it must equal.
struct ReclaimModel {
    trees: Trees,
    values: Values,
    random: SplitMix64,
    /// Scans that began earlier, each with the entries that it must show.
    scans: Vec<(ScannedEntries, Values)>,
    /// Merges that changed the tree, and those that were over their bound.
    merged: [u32; 3],
    ended: u32,
}

impl ReclaimModel {
    fn tree(&self) -> &EngineTree {
        self.trees.tree(TreeId::Wide)
    }

    /// Writes to keys of a part of all, as long runs of removals or of values do.
    fn write(&mut self) {
        let (first, keys) = (self.random.below(KEYS), self.random.below(80));
        let removed = [0, 5, 95][self.random.below(3)];
        for key in first..first + keys {
            let key = Bytes::from(format!("key {:08}", key % KEYS));
            // Some are beside the tables.
            let length = if self.random.below(12) == 0 { 2048 } else { 1 } + self.random.below(600);
            let value = (self.random.below(100) >= removed).then(|| Bytes::from(self.random.bytes(length)));
            let seqno = self.trees.next_seqno();
            self.trees.insert(&WriteGroup {
                number: seqno,
                seqno,
                writes: vec![(TreeId::Wide, key.clone(), value.clone())],
            });
            match value {
                Some(value) => drop(self.values.insert(key, value)),
                None => drop(self.values.remove(&key)),
            }
        }
    }

    fn flush(&mut self) {
        let slices = 1 + self.random.number_below(8);
        let tree = self.trees.tree(TreeId::Wide);
        tree.rotate();
        if let Some(sealed) = tree.next_sealed() {
            flush(tree, &sealed, slices, self.trees.snapshots.watermark()).unwrap();
            tree.drop_flushed();
        }
    }

    fn reclaim(&mut self) {
        use ReclaimedPart::{Cut, Step, Whole};
        let part = [Step, Cut, Step, Cut, Step, Whole][self.random.below(6)];
        let room = [2_000, 10_000, 50_000, u64::MAX][self.random.below(4)];
        let before = self.tree().version();
        match self.tree().reclaim(part, room, self.trees.snapshots.watermark()) {
            Ok(()) => self.merged[part as usize] += u32::from(self.tree().version() != before),
            Err(error) if is_over_bound(&error) => {
                restore_directory(self.tree()).unwrap();
                self.ended += 1;
            }
            Err(error) => panic!("{part:?}: {error}"),
        }
        self.trees.publish_versions();
        self.tree().release_retired(self.trees.snapshots.watermark()).unwrap();
    }

    fn begin_scan(&mut self) {
        let bounds = ScanBounds { from: Bytes::from("key").into(), to: None, order: ReadOrder::Forward };
        let mut scan = self.tree().scan(bounds, || self.trees.snapshots.acquire());
        // Its first entries are read now, the others after more merges.
        let mut left = self.values.clone();
        for _ in 0..5 {
            let Some(entry) = scan.next() else { break };
            let (key, value) = entry.unwrap();
            assert_eq!(left.remove(&*key), Some(value.into()));
        }
        self.scans.push((scan, left));
    }

    fn end_scan(&mut self) {
        if self.scans.is_empty() {
            return;
        }
        let number = self.random.below(self.scans.len());
        let (scan, expected) = self.scans.swap_remove(number);
        let values: Values = scan.map(|entry| entry.unwrap()).map(|(key, value)| (key.into(), value.into())).collect();
        assert_eq!(values, expected);
    }

    fn check(&self) {
        for key in 0..KEYS {
            let key = Bytes::from(format!("key {key:08}"));
            assert_eq!(self.trees.get(TreeId::Wide, &key).unwrap(), self.values.get(&key).cloned(), "{key:?}");
        }
    }
}

/// `LARDER_TEST_SCALE=soak` does it a hundred times as often.
#[test]
fn merges_that_reclaim_space_change_no_read() {
    let mut seeds = SplitMix64::from_environment("reclaim");
    let (mut merged, mut ended) = ([0; 3], 0);
    for _ in 0..Scale::current().pick(6, 600) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(TreeId::Wide.name())).unwrap();
        let mut model = ReclaimModel {
            trees: Trees::open(dir.path(), 0, TABLE_BYTES).unwrap(),
            values: Values::new(),
            random: SplitMix64::new(seeds.number()),
            scans: Vec::new(),
            merged,
            ended,
        };
        for _ in 0..300 {
            match model.random.below(10) {
                0..=2 => model.write(),
                3 | 4 => model.flush(),
                5..=7 => model.reclaim(),
                8 if model.random.below(2) == 0 => {
                    model.tree().compact(u64::MAX, model.trees.snapshots.watermark()).unwrap()
                }
                8 => model.check(),
                _ if model.scans.len() < 3 => model.begin_scan(),
                _ => model.end_scan(),
            }
        }
        while !model.scans.is_empty() {
            model.end_scan();
        }
        model.check();
        (merged, ended) = (model.merged, model.ended);
    }
    assert!(merged.iter().all(|merges| *merges > 10) && ended > 10, "{merged:?} merges, {ended} over their bound");
}
