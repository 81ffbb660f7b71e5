use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::memory::MemoryStore;
use crate::{
    Batch, Change, EngineLimits, Head, Micros, Options, Page, Partition, PartitionChanges, PartitionPage, ReadQuery,
    Result, Row, Stamp, Swap, Table,
};

/// What an engine could get wrong.
#[derive(Clone, Copy)]
enum Defect {
    /// Rows come in another order.
    Unordered,
    /// Removals of the row's own stamp are forgotten.
    TiesSurvive,
    /// `rows_max` is not looked at.
    Unbounded,
    /// The guard is read and not held while the head is written.
    Unguarded,
    /// A batch arrives change by change.
    Piecemeal,
    /// Rows stay for ever.
    Eternal,
    /// A shadow is written after its head.
    LateShadow,
    /// A shadow is written before it is known whether its head will be.
    EarlyShadow,
    /// A shadow is not removed.
    LastingShadow,
}

/// How long a defect lies open: others are at work by then, however few cores there are.
const OPEN: std::time::Duration = std::time::Duration::from_millis(2);
/// Batches and races of the suite are small; a large one need not lie open too.
const SMALL: usize = 8;

/// A memory engine with a defect.
struct Broken {
    inner: MemoryStore,
    defect: Defect,
}

impl Broken {
    fn change(&self, change: Change) -> Option<Change> {
        match (self.defect, change) {
            (Defect::TiesSurvive, Change::Remove { name, stamp }) => {
                Some(Change::Remove { name, stamp: stamp.saturating_sub(1) })
            }
            (Defect::Eternal, Change::Put(row)) => Some(Change::Put(Row { expires: None, ..row })),
            (_, change) => Some(change),
        }
    }

    fn batch(&self, mut batch: Batch) -> Batch {
        for one in &mut batch.partitions {
            one.changes = one.changes.drain(..).filter_map(|change| self.change(change)).collect();
            if matches!(self.defect, Defect::Unbounded) {
                one.rows_max = None;
            }
        }
        batch
    }
}

#[async_trait]
impl Store for Broken {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        let mut page = self.inner.read(partition, query, options).await?;
        if matches!(self.defect, Defect::Unordered) {
            page.rows.sort_by_key(|row| row.name.len());
        }
        Ok(page)
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        let batch = self.batch(batch);
        let is_refusable = |one: &PartitionChanges| one.rows_max.is_some() || one.seen.is_some();
        let refusable = batch.partitions.len() != 1 || batch.partitions.iter().any(is_refusable);
        if !matches!(self.defect, Defect::Piecemeal) || refusable {
            return self.inner.apply(batch, options).await;
        }
        let small = batch.partitions[0].changes.len() <= SMALL;
        for one in batch.partitions {
            for change in one.changes {
                self.inner.apply(Batch::of(one.partition.clone(), vec![change]), options).await?;
                if small {
                    tokio::time::sleep(OPEN).await;
                }
            }
        }
        Ok(())
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        mut expected: Option<Stamp>,
        mut head: Head,
        changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        let shadow = head.shadow_change().map(|(partition, change)| Batch::of(partition, vec![change]));
        match (self.defect, shadow) {
            (Defect::LateShadow, Some(shadow)) if head.check(expected).is_ok() => {
                head.shadow = None;
                let swap = self.inner.apply_if(partition, expected, head, changes, options).await?;
                if swap == Swap::Applied {
                    tokio::time::sleep(OPEN).await;
                    self.inner.apply(shadow, options).await?;
                }
                return Ok(swap);
            }
            (Defect::EarlyShadow, Some(shadow)) if head.check(expected).is_ok() => {
                self.inner.apply(shadow, options).await?;
            }
            (Defect::LastingShadow, _) if head.shadow.as_ref().is_some_and(|shadow| shadow.value.is_none()) => {
                head.shadow = None;
            }
            _ => {}
        }
        if matches!(self.defect, Defect::Unguarded) && expected < Some(head.row.stamp) {
            let page = self.inner.read(partition, &ReadQuery::all(1), options).await?;
            let current = page.rows.first().map(|row| row.stamp);
            if current == expected {
                tokio::time::sleep(OPEN).await;
                let page = self.inner.read(partition, &ReadQuery::all(1), options).await?;
                expected = page.rows.first().map(|row| row.stamp).filter(|stamp| *stamp < head.row.stamp);
            }
        }
        self.inner.apply_if(partition, expected, head, changes, options).await
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// What the suite says about an engine with this defect.
async fn verdict(defect: Defect) -> String {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(Broken { inner: MemoryStore::new(clock.clone()), defect });
    let proof = tokio::spawn(conformance(store, clock)).await;
    said(proof.expect_err("the defect is found").into_panic())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unordered_engine_does_not_conform() {
    let verdict = verdict(Defect::Unordered).await;
    assert!(verdict.contains("rows_come_back_in_key_order"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_ties_survive_removal_does_not_conform() {
    let verdict = verdict(Defect::TiesSurvive).await;
    assert!(verdict.contains("a_removal_wins_a_tie"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_does_not_count_does_not_conform() {
    let verdict = verdict(Defect::Unbounded).await;
    assert!(verdict.contains("beyond_rows_max_nothing_is_written"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_guard_is_not_held_does_not_conform() {
    let verdict = verdict(Defect::Unguarded).await;
    assert!(verdict.contains("racing_swaps"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_batches_arrive_in_pieces_does_not_conform() {
    let verdict = verdict(Defect::Piecemeal).await;
    assert!(verdict.contains("a_batch_is_seen_whole_or_not_at_all"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_keeps_what_expired_does_not_conform() {
    let verdict = verdict(Defect::Eternal).await;
    assert!(verdict.contains("expire"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_shadows_come_late_does_not_conform() {
    let verdict = verdict(Defect::LateShadow).await;
    assert!(verdict.contains("a_shadow_is_never_behind_its_head"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_writes_shadows_of_refused_heads_does_not_conform() {
    let verdict = verdict(Defect::EarlyShadow).await;
    assert!(verdict.contains("a_conflict_writes_neither_head_nor_shadow"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_shadows_stay_does_not_conform() {
    let verdict = verdict(Defect::LastingShadow).await;
    assert!(verdict.contains("a_shadow_goes_and_comes_back"), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_random_walk_alone_finds_a_defect() {
    for defect in [Defect::TiesSurvive, Defect::Unbounded, Defect::Eternal, Defect::Unordered] {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(Broken { inner: MemoryStore::new(clock.clone()), defect });
        let walk = tokio::spawn(random_changes_match_the_model(store, clock, 7, 300));
        let verdict = said(walk.await.expect_err("the defect is found").into_panic());
        assert!(verdict.contains("seed 7, step"), "{verdict}");
    }
}
