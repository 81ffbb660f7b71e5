//! Random changes, compared step by step with a simple model.

use std::sync::Arc;

use bytes::Bytes;

use super::ManualClock;
use super::subject::{CheckScope, StoreSubject, options};
use crate::SplitMix64;
use larder_store::{
    Batch, CasResult, Change, Clock, Kind, Partition, PartitionChanges, Range, ReadOrder, ReadQuery, Row, RowPage,
    Stopped, Store, Table, Timestamp,
};

const NAMES: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"ab", b"b", b"b\xff", b"\xff"];

/// Makes `steps` random changes and reads, and compares every answer with the model.
///
/// # Panics
/// At the first answer that differs; the text has `seed` and the step.
pub async fn random_changes_match_the_model(store: Arc<dyn Store>, clock: Arc<ManualClock>, seed: u64, steps: usize) {
    let subject = StoreSubject::new(store, clock, CheckScope::new().for_check("model"));
    let mut walk = ModelWalk::new(subject, seed);
    for step in 0..steps {
        walk.step(&format!("seed {seed}, step {step}")).await;
    }
}

/// The expected rows of one partition, unordered. For each name, `floors` has the stamp above which the order of
/// arrival does not matter.
struct PartitionModel {
    partition: Partition,
    rows: Vec<Row>,
    floors: Vec<Timestamp>,
}

struct ModelWalk {
    subject: StoreSubject,
    random: SplitMix64,
    models: Vec<PartitionModel>,
}

impl PartitionModel {
    fn find(&self, name: &Bytes) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == *name)
    }

    /// The rows after a change.
    fn after(mut rows: Vec<Row>, change: &Change) -> Vec<Row> {
        match change {
            Change::Put(new) => {
                let newer = |row: &Row| row.stamp > new.stamp || (row.stamp == new.stamp && row.value > new.value);
                if !rows.iter().any(|row| row.name == new.name && newer(row)) {
                    rows.retain(|row| row.name != new.name);
                    rows.push(new.clone());
                }
            }
            Change::Remove { name, stamp } => rows.retain(|row| row.name != *name || row.stamp > *stamp),
            Change::Clear { stamp } => rows.retain(|row| row.stamp > *stamp),
        }
        rows
    }

    fn page(&self, query: &ReadQuery) -> RowPage {
        let Range { from, to } = &query.range;
        let mut rows = self.rows.clone();
        rows.retain(|row| from.as_ref().is_none_or(|from| row.name >= *from));
        rows.retain(|row| to.as_ref().is_none_or(|to| row.name < *to));
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        if query.order == ReadOrder::Reverse {
            rows.reverse();
        }
        let stopped = if rows.len() > query.limit { Stopped::Limit } else { Stopped::End };
        rows.truncate(query.limit);
        RowPage { rows, stopped }
    }

    fn expire(&mut self, now: Timestamp) {
        self.rows.retain(|row| row.expires.is_none_or(|expires| expires > now));
    }

    fn highest(&self) -> Timestamp {
        self.rows.iter().map(|row| row.stamp).chain(self.floors.iter().copied()).max().unwrap_or_default()
    }
}

impl ModelWalk {
    fn new(subject: StoreSubject, seed: u64) -> Self {
        let tables = [Table::Objects, Table::Objects, Table::Keys, Table::Keys, Table::Consistent, Table::Catalogue];
        let models = (0..).zip(tables).map(|(which, table): (u8, Table)| PartitionModel {
            partition: subject.other(table, [which % 2]),
            rows: Vec::new(),
            floors: vec![Timestamp::ZERO; NAMES.len()],
        });
        let models = models.collect();
        Self { subject, random: SplitMix64::new(seed), models }
    }

    async fn step(&mut self, at: &str) {
        match self.random.below(10) {
            0..=4 => self.apply(at).await,
            5 | 6 => self.compare_and_set(at).await,
            7 => self.wait(),
            _ => {}
        }
        self.read(at).await;
    }

    fn wait(&mut self) {
        self.subject.wait_seconds(self.random.number_below(20));
        let now = self.subject.clock.now();
        self.models.iter_mut().for_each(|model| model.expire(now));
    }

    /// Applies a batch to one or two plain partitions, sometimes with a row limit.
    async fn apply(&mut self, at: &str) {
        let first = self.random.below(4);
        let chosen = if self.random.chance(500) { vec![first] } else { vec![first, (first + 1) % 4] };
        let (mut batch, mut after, mut refusals) = (Batch::default(), Vec::new(), Vec::new());
        for &which in &chosen {
            let changes = self.changes(which);
            let rows = changes.iter().fold(self.models[which].rows.clone(), PartitionModel::after);
            let count = rows.iter().filter(|row| row.expires.is_none()).count();
            let rows_max = self.random.chance(300).then(|| self.random.below(6));
            if rows_max.is_some_and(|rows_max| count > rows_max) {
                refusals.push(Kind::TooManyRows { rows: count });
            }
            after.push(rows);
            let partition = self.models[which].partition.clone();
            batch.partitions.push(PartitionChanges { rows_max, ..PartitionChanges::new(partition, changes) });
        }
        match self.subject.apply(batch.clone()).await {
            Ok(()) => {
                assert!(refusals.is_empty(), "{at}: accepted, not refused with one of {refusals:?}: {batch:?}");
                for (which, rows) in chosen.into_iter().zip(after) {
                    self.models[which].rows = rows;
                }
            }
            Err(error) => {
                assert!(refusals.contains(&error.kind), "{at}: {:?}, not {refusals:?}: {batch:?}", error.kind)
            }
        }
    }

    /// A few changes to different names, with an outcome that is the same on every engine.
    fn changes(&mut self, which: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.random.chance(60) {
            let stamp = self.stamp(which, 0);
            self.models[which].floors.iter_mut().for_each(|floor| *floor = stamp.max(*floor));
            changes.push(Change::Clear { stamp });
        }
        for name in 0..NAMES.len() {
            if self.random.chance(250) {
                changes.push(self.one_change(which, name));
            }
        }
        changes
    }

    fn one_change(&mut self, which: usize, name: usize) -> Change {
        let bytes = Bytes::from_static(NAMES[name]);
        match self.random.below(10) {
            0..=2 => {
                let stamp = self.stamp(which, name);
                let floor = &mut self.models[which].floors[name];
                *floor = stamp.max(*floor);
                Change::Remove { name: bytes, stamp }
            }
            3 | 4 => {
                // Newer than all rows so far: the store promises nothing about writes older than an expired row.
                let stamp = self.models[which].highest() + 1;
                self.models[which].floors[name] = stamp;
                let expires = Some(self.subject.clock.now() + (1 + self.random.number_below(60)) * 1_000_000);
                Change::Put(Row { name: bytes, value: self.value(), stamp, expires })
            }
            _ => {
                let stamp = self.models[which].floors[name] + 1 + self.random.number_below(5);
                Change::Put(Row { name: bytes, value: self.value(), stamp, expires: None })
            }
        }
    }

    /// A stamp near those of the row.
    fn stamp(&mut self, which: usize, name: usize) -> Timestamp {
        self.models[which].floors[name] + self.random.number_below(6)
    }

    fn value(&mut self) -> Bytes {
        let length = self.random.below(4);
        Bytes::from(vec![b'0' + self.random.below(3) as u8; length])
    }

    /// A compare-and-set of the head with the empty name, often with the right stamp.
    async fn compare_and_set(&mut self, at: &str) {
        let which = 4 + self.random.below(2);
        let current = self.models[which].find(&Bytes::new()).cloned();
        let stamp = current.as_ref().map(|row| row.stamp);
        let expected =
            if self.random.chance(700) { stamp } else { [None, stamp.map(|stamp| stamp - 1)][self.random.below(2)] };
        let newest = self.models[which].highest() + 1;
        let head = Row { name: Bytes::new(), value: self.value(), stamp: newest, expires: None };
        let mut changes = Vec::new();
        for name in &NAMES[1..] {
            match self.random.below(6) {
                0 => changes.push(Change::Put(Row { name: Bytes::from_static(name), ..head.clone() })),
                1 => changes.push(Change::Remove { name: Bytes::from_static(name), stamp: newest }),
                _ => {}
            }
        }
        self.models[which].floors.fill(newest);
        let partition = self.models[which].partition.clone();
        let answer = self.subject.compare_and_set(&partition, expected, head.clone(), changes.clone()).await;
        if stamp != expected {
            assert_eq!(answer, CasResult::Conflict(current), "{at}");
            return;
        }
        assert_eq!(answer, CasResult::Applied, "{at}");
        changes.push(Change::Put(head));
        let rows = std::mem::take(&mut self.models[which].rows);
        self.models[which].rows = changes.iter().fold(rows, PartitionModel::after);
    }

    /// Reads a random page of each partition.
    async fn read(&mut self, at: &str) {
        for which in 0..self.models.len() {
            let query = self.query();
            let model = &self.models[which];
            let page = self.subject.store.read(&model.partition, &query, &options()).await.expect("a read is answered");
            let expected = model.page(&query);
            assert_eq!(page.rows, expected.rows, "{at}: {query:?} of {:?}", model.partition);
            // A page that is exactly full may not know that it is the last.
            if page.stopped != expected.stopped {
                assert_eq!((page.rows.len(), page.stopped), (query.limit, Stopped::Limit), "{at}: {query:?}");
            }
            // An engine may always say nothing.
            if let Some(single) = self.subject.store.try_read_single_row(&model.partition) {
                let all = model.page(&ReadQuery::all(NAMES.len())).rows;
                assert_eq!(all, [single], "{at}: the single row of {:?}", model.partition);
            }
            let name = Bytes::from_static(NAMES[self.random.below(NAMES.len())]);
            if let Some(row) = self.subject.store.try_read_row(&self.models[which].partition, &name) {
                let named = self.models[which].page(&ReadQuery::one(name)).rows;
                assert_eq!(named, [row], "{at}: a row by its name");
            }
        }
    }

    fn query(&mut self) -> ReadQuery {
        let mut bound = || {
            let name = NAMES[self.random.below(NAMES.len())];
            self.random.chance(400).then(|| Bytes::from_static(name))
        };
        let range = Range { from: bound(), to: bound() };
        let order = if self.random.chance(500) { ReadOrder::Forward } else { ReadOrder::Reverse };
        ReadQuery { range, limit: 1 + self.random.below(9), order }
    }
}
