//! Rows that a key keeps: as many as its value needs, however long its history is.

use std::sync::Arc;
use std::time::Duration;

use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::datatypes::{
    DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldName, FieldValue, SetEdit,
};
use larder_rows::limits::DATATYPE_REMOVAL_ROWS_MAX;
use larder_testkit::faulty::StoreFaults;

use super::client::{add_types, adds, change_of, field, remove_field, removes};
use crate::simulation::world::{SimWorld, run};

/// Times that a history repeats itself.
const CYCLES: usize = 40;
/// Clients of a key that is never idle.
const WRITERS: i128 = 500;

fn counter() -> FieldName {
    FieldName::new("n", EmbeddedType::Counter)
}

fn increment(by: i64) -> DatatypeUpdate {
    field("n", EmbeddedUpdate::Counter(by))
}

fn bytes(rows: &[larder_rows::Row]) -> usize {
    rows.iter().map(|row| row.name.len() + row.value.len()).sum()
}

async fn alone() -> SimWorld {
    let world = SimWorld::alone(1).await;
    add_types(&world).await;
    world
}

/// A map with a large set, and some other field.
async fn with_large_set(world: &SimWorld) {
    let count = DATATYPE_REMOVAL_ROWS_MAX + 500;
    for begin in (0..count).step_by(5000) {
        let elements = (begin..count.min(begin + 5000)).map(|at| SetEdit::Add(format!("{at:06}").into()));
        world.update(0, "map", "k", field("s", EmbeddedUpdate::Set(elements.collect())), None).await.unwrap();
    }
    world.update(0, "map", "k", increment(1), None).await.unwrap();
}

fn large_set() -> DatatypeUpdate {
    remove_field(FieldName::new("s", EmbeddedType::Set))
}

#[test]
fn a_counter_that_is_removed_again_and_again_keeps_few_rows() {
    run(async {
        let world = alone().await;
        for _ in 0..CYCLES {
            world.update(0, "map", "k", increment(3), None).await.unwrap();
            world.update(0, "map", "k", remove_field(counter()), None).await.unwrap();
        }
        world.update(0, "map", "k", increment(5), None).await.unwrap();
        let shown = world.fetch(0, "map", "k").await.unwrap().unwrap().0;
        let value = EmbeddedValue::Counter(5);
        assert_eq!(shown, DatatypeValue::Map(vec![FieldValue { field: counter(), value }]));
        let rows = world.stored_rows("map", "k").await.len();
        assert!(rows <= 4, "{rows} rows: clock, presence, counter, and the zeros of the last removal");
        world.update(0, "map", "k", remove_field(counter()), None).await.unwrap();
        world.advance(13 * 3600 * 1000).await;
        let absent = world.update(0, "map", "k", remove_field(counter()), None).await;
        assert!(absent.is_err(), "{absent:?}");
        let (_, seen) = world.fetch(0, "map", "k").await.unwrap().unwrap();
        world.update(0, "map", "k", remove_field(counter()), seen.as_ref()).await.unwrap();
        world.advance(13 * 3600 * 1000).await;
        assert_eq!(
            world.stored_rows("map", "k").await.len(),
            1,
            "the zeros are gone after a day, whatever came meanwhile"
        );
    });
}

#[test]
fn a_counter_that_gateways_remove_in_turn_keeps_few_rows_and_short_resets() {
    run(async {
        let world = SimWorld::new(1, 2).await;
        add_types(&world).await;
        for _ in 0..CYCLES {
            for (adder, remover) in [(0, 1), (0, 0), (1, 0), (1, 1)] {
                world.update(adder, "map", "k", increment(3), None).await.unwrap();
                world.update(remover, "map", "k", remove_field(counter()), None).await.unwrap();
            }
        }
        world.update(0, "map", "k", increment(5), None).await.unwrap();
        let shown = world.fetch(1, "map", "k").await.unwrap().unwrap().0;
        let value = EmbeddedValue::Counter(5);
        assert_eq!(shown, DatatypeValue::Map(vec![FieldValue { field: counter(), value }]));
        let rows = world.stored_rows("map", "k").await;
        assert!(rows.len() <= 10 && bytes(&rows) < 1200, "{} rows, {} bytes", rows.len(), bytes(&rows));
    });
}

#[test]
fn an_element_that_comes_and_goes_keeps_no_row() {
    run(async {
        let world = SimWorld::new(1, 2).await;
        add_types(&world).await;
        for at in 0..CYCLES {
            world.update(at % 2, "set", "k", adds(&["a"]), None).await.unwrap();
            world.update(at / 2 % 2, "set", "k", removes(&["a"]), None).await.unwrap();
        }
        assert_eq!(world.stored_rows("set", "k").await.len(), 2, "a clock of each gateway");
    });
}

#[test]
fn ids_of_increments_are_gone_after_a_day() {
    run(async {
        let world = alone().await;
        for at in 0..CYCLES {
            let request_id = Some(format!("{at}").into());
            let change = DatatypeChange { request_id, ..change_of("counter", "k", DatatypeUpdate::Counter(1)) };
            world.nodes[0].gateway.kv.update_datatype(change).await.unwrap();
        }
        assert_eq!(world.stored_rows("counter", "k").await.len(), CYCLES + 2);
        world.advance(25 * 3600 * 1000).await;
        assert_eq!(world.stored_rows("counter", "k").await.len(), 2, "clock and total");
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(CYCLES as i128));
    });
}

#[test]
fn a_deleted_counter_knows_the_ids_of_its_increments_and_leaves_nothing_else() {
    run(async {
        let world = alone().await;
        // So long that they fill more than a removal names one by one.
        let change = |at: usize| {
            let request_id = Some(format!("{at:0>250}").into());
            DatatypeChange { request_id, ..change_of("counter", "k", DatatypeUpdate::Counter(1)) }
        };
        let kv = &world.nodes[0].gateway.kv;
        for at in 0..2200 {
            kv.update_datatype(change(at)).await.unwrap();
        }
        assert!(world.delete(0, "counter", "k", None).await.unwrap());
        kv.update_datatype(change(7)).await.unwrap();
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), None, "a repeated request makes no counter anew");
        kv.update_datatype(change(9999)).await.unwrap();
        world.advance(60_000).await;
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(1));
        world.advance(25 * 3600 * 1000).await;
        assert_eq!(world.stored_rows("counter", "k").await.len(), 2, "clock and total");
    });
}

#[test]
fn a_large_removal_is_cleaned_though_the_key_is_never_idle() {
    run(async {
        let world = Arc::new(alone().await);
        with_large_set(&world).await;
        let pauses = StoreFaults { pause_ms_max: 5, pause_per_mille: 1000, ..StoreFaults::none() };
        world.set_faults(pauses);
        world.update(0, "map", "k", large_set(), None).await.unwrap();
        // They come at their own pace: when a batch ends, others have waited for it.
        let mut writers = tokio::task::JoinSet::new();
        for _ in 0..WRITERS {
            let world = Arc::clone(&world);
            writers.spawn(async move { world.update(0, "map", "k", increment(1), None).await });
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let rows = world.stored_rows("map", "k").await.len();
        assert!(rows < 10, "{rows} rows, and the key is busy");
        writers.join_all().await.into_iter().for_each(Result::unwrap);
        let shown = world.fetch(0, "map", "k").await.unwrap().unwrap().0;
        let value = EmbeddedValue::Counter(1 + WRITERS);
        assert_eq!(shown, DatatypeValue::Map(vec![FieldValue { field: counter(), value }]));
    });
}

#[test]
fn a_cleaner_that_was_killed_is_followed_by_the_next_reader() {
    run(async {
        let mut world = alone().await;
        with_large_set(&world).await;
        world.set_faults(StoreFaults { pause_ms_max: 50, pause_per_mille: 1000, ..StoreFaults::none() });
        world.update(0, "map", "k", large_set(), None).await.unwrap();
        world.advance(200).await;
        world.nodes[0].faulty.cut(true);
        world.restart(0, 0).await;
        world.advance(60_000).await;
        let left = world.stored_rows("map", "k").await.len();
        assert!(left > 1000, "{left} rows: it was killed before its end");
        let shown = world.fetch(0, "map", "k").await.unwrap().unwrap().0;
        let value = EmbeddedValue::Counter(1);
        assert_eq!(shown, DatatypeValue::Map(vec![FieldValue { field: counter(), value }]), "hidden all the time");
        world.advance(60_000).await;
        assert_eq!(world.stored_rows("map", "k").await.len(), 3, "clock, presence and counter");
    });
}
