//! Random changes to a store and to a map as its model, with reopens.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use larder_store::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{SteppedClock, call, clock, open};
use bytes::Bytes;
use larder_store::{
    Batch, Change, Durability, Kind, Partition, PartitionChanges, Range, ReadOrder, ReadQuery, Row, Store, Table,
};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

type MapModel = BTreeMap<Partition, BTreeMap<Bytes, Row>>;

#[derive(Debug, Clone)]
enum ModelStep {
    Apply(Vec<PartitionChanges>),
    AdvanceClock(u64),
    Sweep,
    Reopen,
}

fn partition() -> impl Strategy<Value = Partition> {
    (prop_oneof![Just(Table::Objects), Just(Table::Keys)], 0..3_u8)
        .prop_map(|(table, key)| Partition::new(table, vec![b'p'; usize::from(key)]))
}

fn name() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(prop_oneof![Just(0_u8), Just(255), Just(b'a')], 0..3).prop_map(Bytes::from)
}

fn change() -> impl Strategy<Value = Change> {
    let expires = prop_oneof![3 => Just(None), 1 => (0..40_u64).prop_map(|at| Some(1_000_000 + at))];
    let put = (name(), 1..20_u64, 0..3_u8, expires).prop_map(|(name, stamp, value, expires)| {
        Change::Put(Row { name, value: vec![value].into(), stamp: Timestamp(stamp), expires: expires.map(Timestamp) })
    });
    prop_oneof![
        6 => put,
        2 => (name(), 1..20_u64).prop_map(|(name, stamp)| Change::Remove { name, stamp: Timestamp(stamp) }),
        1 => (1..20_u64).prop_map(|stamp| Change::Clear { stamp: Timestamp(stamp) }),
    ]
}

/// Changes that name no row twice, as the contract requires.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    proptest::collection::vec(change(), 1..4).prop_map(|mut changes| {
        let mut names = BTreeSet::new();
        changes.retain(|change| match change {
            Change::Put(Row { name, .. }) | Change::Remove { name, .. } => names.insert(name.clone()),
            Change::Clear { .. } => true,
        });
        changes
    })
}

fn step() -> impl Strategy<Value = ModelStep> {
    let part = (partition(), changes(), proptest::option::weighted(0.2, 1..4_usize)).prop_map(
        |(partition, changes, rows_max)| PartitionChanges { rows_max, ..PartitionChanges::new(partition, changes) },
    );
    prop_oneof![
        16 => proptest::collection::vec(part, 1..3).prop_map(ModelStep::Apply),
        2 => (1..10_u64).prop_map(ModelStep::AdvanceClock),
        2 => Just(ModelStep::Sweep),
        1 => Just(ModelStep::Reopen),
    ]
}

fn model_apply(model: &MapModel, parts: &[PartitionChanges], now: u64) -> Option<MapModel> {
    let mut model = model.clone();
    for part in parts {
        let rows = model.entry(part.partition.clone()).or_default();
        rows.retain(|_, row| row.is_live(Timestamp(now)));
        for change in &part.changes {
            match change {
                Change::Put(row)
                    if rows.get(&row.name).is_none_or(|old| row.supersedes(old) || !old.is_live(Timestamp(now))) =>
                {
                    rows.insert(row.name.clone(), row.clone());
                }
                Change::Put(_) => {}
                Change::Remove { name, stamp } => rows.retain(|key, row| key != name || row.stamp > *stamp),
                Change::Clear { stamp } => rows.retain(|_, row| row.stamp > *stamp),
            }
        }
        let lasting = rows.values().filter(|row| row.expires.is_none()).count();
        if part.rows_max.is_some_and(|max| lasting > max) {
            return None;
        }
    }
    Some(model)
}

fn expected_rows(model: &MapModel, partition: &Partition, query: &ReadQuery, now: u64) -> Vec<Row> {
    let rows =
        model.get(partition).into_iter().flat_map(|rows| rows.values()).filter(|row| row.is_live(Timestamp(now)));
    let from = query.range.from.clone().unwrap_or_default();
    let mut rows: Vec<Row> = rows
        .filter(|row| row.name >= from && query.range.to.as_ref().is_none_or(|to| row.name < *to))
        .cloned()
        .collect();
    if query.order == ReadOrder::Reverse {
        rows.reverse();
    }
    rows.truncate(query.limit);
    rows
}

fn queries() -> Vec<ReadQuery> {
    let range = |from: Option<&'static [u8]>, to: Option<&'static [u8]>| Range {
        from: from.map(Bytes::from_static),
        to: to.map(Bytes::from_static),
    };
    let ranges = [
        range(None, None),
        range(Some(b"\0\0"), Some(b"a")),
        range(Some(b"a"), None),
        range(Some(b"b"), Some(b"a")),
        range(Some(b"a"), Some(b"a\0")),
    ];
    let mut queries = Vec::new();
    for range in ranges {
        for (limit, order) in [(1, ReadOrder::Forward), (100, ReadOrder::Forward), (2, ReadOrder::Reverse)] {
            queries.push(ReadQuery { range: range.clone(), limit, order });
        }
    }
    queries
}

async fn compare(store: &impl Store, model: &MapModel, clock: &SteppedClock) {
    let now = clock.0.load(Ordering::SeqCst);
    for table in [Table::Objects, Table::Keys] {
        let mut live = Vec::new();
        for length in 0..3_usize {
            let partition = Partition::new(table, vec![b'p'; length]);
            for query in queries() {
                let page = store.read(&partition, &query, &call(Durability::Disk)).await.unwrap();
                assert_eq!(page.rows, expected_rows(model, &partition, &query, now), "{partition:?} {query:?}");
            }
            if !expected_rows(model, &partition, &ReadQuery::all(1), now).is_empty() {
                live.push(partition);
            }
        }
        let page = store.partitions(table, None, 100, &call(Durability::Disk)).await.unwrap();
        assert_eq!(page.partitions, live);
    }
}

async fn run(steps: Vec<ModelStep>) {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let mut store = open(dir.path(), &clock);
    let mut model = MapModel::new();
    for step in steps {
        match step {
            ModelStep::Apply(partitions) => {
                let after = model_apply(&model, &partitions, clock.0.load(Ordering::SeqCst));
                let applied = store.apply(Batch { partitions }, &call(Durability::Buffered)).await;
                match after {
                    Some(after) => model = applied.map(|()| after).unwrap(),
                    None => assert!(matches!(applied.unwrap_err().kind, Kind::TooManyRows { .. })),
                }
            }
            ModelStep::AdvanceClock(micros) => {
                clock.0.fetch_add(micros, Ordering::SeqCst);
            }
            ModelStep::Sweep => while !store.sweep_expired(3).await.unwrap().complete {},
            ModelStep::Reopen => {
                drop(store);
                store = open(dir.path(), &clock);
            }
        }
        compare(&store, &model, &clock).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_equals_its_model(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
