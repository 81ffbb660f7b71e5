use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use larder_store::memory::MemoryStore;
use larder_store::{
    Batch, CallOptions, CasResult, Change, EngineLimits, HeadWrite, Partition, PartitionChanges, PartitionPage,
    ReadQuery, Result, Row, RowPage, Table, Timestamp,
};

/// Bugs that an engine could have.
#[derive(Clone, Copy)]
enum Defect {
    /// Rows come in another order.
    Unordered,
    /// A removal with the row's own stamp does nothing.
    TiesSurvive,
    /// `rows_max` is ignored.
    Unbounded,
    /// The guard is checked, but not held while the head is written.
    Unguarded,
    /// A batch is applied change by change.
    Piecemeal,
    /// Rows never expire.
    Eternal,
    /// A derived row is written after its head.
    LateDerivedRow,
    /// A derived row is written even if its head is refused.
    EarlyDerivedRow,
    /// A derived row is never removed.
    LastingDerivedRow,
}

/// How long a defect can be seen: long enough for other tasks to run, even on few cores.
const DEFECT_WINDOW: std::time::Duration = std::time::Duration::from_millis(2);
/// Largest batch that is applied slowly: the races of the suite use small batches.
const SMALL_BATCH: usize = 8;

/// A memory engine with a defect.
struct DefectiveStore {
    inner: MemoryStore,
    defect: Defect,
}

impl DefectiveStore {
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
impl Store for DefectiveStore {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        let mut page = self.inner.read(partition, query, options).await?;
        if matches!(self.defect, Defect::Unordered) {
            page.rows.sort_by_key(|row| row.name.len());
        }
        Ok(page)
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        let batch = self.batch(batch);
        let is_refusable = |one: &PartitionChanges| one.rows_max.is_some() || one.expected_rows.is_some();
        let refusable = batch.partitions.len() != 1 || batch.partitions.iter().any(is_refusable);
        if !matches!(self.defect, Defect::Piecemeal) || refusable {
            return self.inner.apply(batch, options).await;
        }
        let small = batch.partitions[0].changes.len() <= SMALL_BATCH;
        for one in batch.partitions {
            for change in one.changes {
                self.inner.apply(Batch::single(one.partition.clone(), vec![change]), options).await?;
                if small {
                    tokio::time::sleep(DEFECT_WINDOW).await;
                }
            }
        }
        Ok(())
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        mut expected: Option<Timestamp>,
        mut head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        let derived = head.derived_change().map(|(partition, change)| Batch::single(partition, vec![change]));
        match (self.defect, derived) {
            (Defect::LateDerivedRow, Some(derived)) if head.check(expected).is_ok() => {
                head.derived = None;
                let cas = self.inner.apply_if(partition, expected, head, changes, options).await?;
                if cas == CasResult::Applied {
                    tokio::time::sleep(DEFECT_WINDOW).await;
                    self.inner.apply(derived, options).await?;
                }
                return Ok(cas);
            }
            (Defect::EarlyDerivedRow, Some(derived)) if head.check(expected).is_ok() => {
                self.inner.apply(derived, options).await?;
            }
            (Defect::LastingDerivedRow, _) if head.derived.as_ref().is_some_and(|derived| derived.value.is_none()) => {
                head.derived = None;
            }
            _ => {}
        }
        if matches!(self.defect, Defect::Unguarded) && expected < Some(head.row.stamp) {
            let page = self.inner.read(partition, &ReadQuery::all(1), options).await?;
            let current = page.rows.first().map(|row| row.stamp);
            if current == expected {
                tokio::time::sleep(DEFECT_WINDOW).await;
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
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        self.inner.partitions(table, after, limit, options).await
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        self.inner.now(options).await
    }

    fn limits(&self) -> EngineLimits {
        self.inner.limits()
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// The panic text of the suite for an engine with this defect.
async fn panic_of_suite(defect: Defect) -> String {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(DefectiveStore { inner: MemoryStore::new(clock.clone()), defect });
    let proof = tokio::spawn(conformance(store, clock)).await;
    panic_text(proof.expect_err("the suite finds the defect").into_panic())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unordered_engine_does_not_conform() {
    let text = panic_of_suite(Defect::Unordered).await;
    assert!(text.contains("rows_come_back_in_key_order"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_removals_lose_ties_does_not_conform() {
    let text = panic_of_suite(Defect::TiesSurvive).await;
    assert!(text.contains("a_removal_wins_a_tie"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_ignores_rows_max_does_not_conform() {
    let text = panic_of_suite(Defect::Unbounded).await;
    assert!(text.contains("beyond_rows_max_nothing_is_written"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_guard_is_not_held_does_not_conform() {
    let text = panic_of_suite(Defect::Unguarded).await;
    assert!(text.contains("racing_cas"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_applies_batches_in_pieces_does_not_conform() {
    let text = panic_of_suite(Defect::Piecemeal).await;
    assert!(text.contains("a_batch_is_seen_whole_or_not_at_all"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_keeps_expired_rows_does_not_conform() {
    let text = panic_of_suite(Defect::Eternal).await;
    assert!(text.contains("expire"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_derived_rows_come_late_does_not_conform() {
    let text = panic_of_suite(Defect::LateDerivedRow).await;
    assert!(text.contains("a_derived_row_is_never_older_than_its_head"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_writes_derived_rows_of_refused_heads_does_not_conform() {
    let text = panic_of_suite(Defect::EarlyDerivedRow).await;
    assert!(text.contains("a_conflict_writes_neither_head_nor_derived_row"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_derived_rows_stay_does_not_conform() {
    let text = panic_of_suite(Defect::LastingDerivedRow).await;
    assert!(text.contains("a_derived_row_goes_and_comes_back"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_random_walk_alone_finds_a_defect() {
    for defect in [Defect::TiesSurvive, Defect::Unbounded, Defect::Eternal, Defect::Unordered] {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(DefectiveStore { inner: MemoryStore::new(clock.clone()), defect });
        let walk = tokio::spawn(random_changes_match_the_model(store, clock, 7, 300));
        let text = panic_text(walk.await.expect_err("the suite finds the defect").into_panic());
        assert!(text.contains("seed 7, step"), "{text}");
    }
}
