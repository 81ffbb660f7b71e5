//! Large values: reads in pages, membership, size, and removals by a marker.

use bytes::Bytes;
use larder_kv::datatypes::{DatatypeBegin, DatatypeFetch};
use larder_kv::rules::datatypes::{
    DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, FieldName, SetEdit, ValuePiece,
};
use larder_rows::limits::DATATYPE_PAGE_ROWS;

use super::client::{add_types, adds, fetch_of, field, remove_field, removes};
use crate::simulation::world::{SimWorld, run};

fn element(at: usize) -> Bytes {
    format!("{at:06}").into()
}

async fn filled(key: &str, count: usize) -> SimWorld {
    let world = SimWorld::new(1, 1).await;
    add_types(&world).await;
    for begin in (0..count).step_by(5000) {
        let edits = (begin..count.min(begin + 5000)).map(|at| SetEdit::Add(element(at))).collect();
        world.update(0, "set", key, DatatypeUpdate::Set(edits), None).await.unwrap();
    }
    world
}

#[test]
fn a_large_set_is_read_in_pages_and_from_any_element_on() {
    run(async {
        let world = filled("k", 2500).await;
        let kv = &world.nodes[0].gateway.kv;
        let mut reader = kv.fetch_datatype(fetch_of("set", "k")).await.unwrap().unwrap();
        let mut shown = Vec::new();
        while let Some(pieces) = reader.next_page().await.unwrap() {
            assert!(pieces.len() <= DATATYPE_PAGE_ROWS);
            shown.extend(pieces);
        }
        assert_eq!(shown, (0..2500).map(|at| ValuePiece::Element(element(at))).collect::<Vec<_>>());
        for begin in [DatatypeBegin::AfterElement(element(2497)), DatatypeBegin::AtElement(element(2498))] {
            let from_there = DatatypeFetch { begin, ..fetch_of("set", "k") };
            let rest = kv.fetch_datatype(from_there).await.unwrap().unwrap().whole(1000).await.unwrap().0;
            assert_eq!(rest, DatatypeValue::Set(vec![element(2498), element(2499)]));
        }
        assert!(kv.fetch_datatype(fetch_of("set", "k")).await.unwrap().unwrap().whole(1000).await.is_err());
        assert_eq!(kv.datatype_size(fetch_of("set", "k")).await.unwrap(), Some(2500));
        for (at, is_there) in [(0, true), (2499, true), (2500, false)] {
            assert_eq!(kv.has_element(fetch_of("set", "k"), &element(at)).await.unwrap(), Some(is_there));
        }
        assert_eq!(kv.has_element(fetch_of("set", "l"), &element(0)).await.unwrap(), None);
    });
}

#[test]
fn a_map_is_read_from_any_field_on_and_misses_no_part_of_one() {
    run(async {
        let world = SimWorld::new(1, 1).await;
        add_types(&world).await;
        for name in ["a", "b", "c", "d"] {
            for update in [EmbeddedUpdate::Counter(2), EmbeddedUpdate::Set(vec![SetEdit::Add("x".into())])] {
                world.update(0, "map", "k", field(name, update), None).await.unwrap();
            }
        }
        let fields_from = async |begin| {
            let fetch = DatatypeFetch { begin, ..fetch_of("map", "k") };
            let reader = world.nodes[0].gateway.kv.fetch_datatype(fetch).await.unwrap().unwrap();
            let DatatypeValue::Map(fields) = reader.whole(10_000).await.unwrap().0 else { panic!("a map") };
            fields
        };
        let all = fields_from(DatatypeBegin::First).await;
        assert_eq!(all.len(), 8);
        for (at, one) in all.iter().enumerate() {
            assert_eq!(fields_from(DatatypeBegin::AtField(one.field.clone())).await, all[at..]);
            assert_eq!(fields_from(DatatypeBegin::AfterField(one.field.clone())).await, all[at + 1..]);
        }
        let between = FieldName::new("bb", EmbeddedType::Map);
        assert_eq!(fields_from(DatatypeBegin::AtField(between.clone())).await, all[4..]);
        assert_eq!(fields_from(DatatypeBegin::AfterField(between)).await, all[4..]);
    });
}

#[test]
fn an_element_added_behind_the_reader_is_not_removed_by_its_context() {
    run(async {
        let world = filled("k", 2500).await;
        let kv = &world.nodes[0].gateway.kv;
        let mut reader = kv.fetch_datatype(fetch_of("set", "k")).await.unwrap().unwrap();
        reader.next_page().await.unwrap();
        // One batch adds an element on a page that was read, and one on a page to come.
        world.update(0, "set", "k", adds(&["000000x", "002000x"]), None).await.unwrap();
        let mut shown = Vec::new();
        while let Some(pieces) = reader.next_page().await.unwrap() {
            shown.extend(pieces);
        }
        assert!(shown.contains(&ValuePiece::Element("002000x".into())));
        let context = reader.context().unwrap();
        world.update(0, "set", "k", removes(&["000000x", "002000x", "000001"]), Some(&context)).await.unwrap();
        for (name, is_there) in [("000000x", true), ("002000x", false), ("000001", false)] {
            let found = kv.has_element(fetch_of("set", "k"), &name.into()).await.unwrap();
            assert_eq!(found, Some(is_there), "{name}");
        }
    });
}

#[test]
fn a_large_value_is_deleted_at_once_and_its_rows_go_afterwards() {
    run(async {
        let world = filled("k", 25_000).await;
        assert!(world.delete(0, "set", "k", None).await.unwrap());
        assert_eq!(world.fetch(0, "set", "k").await.unwrap(), None);
        world.update(0, "set", "k", adds(&["000001", "new"]), None).await.unwrap();
        assert_eq!(world.elements(0, "k").await.unwrap().0, ["000001", "new"]);
        world.advance(60_000).await;
        assert_eq!(world.stored_rows("set", "k").await.len(), 3, "two elements and a clock");
        assert_eq!(world.elements(0, "k").await.unwrap().0, ["000001", "new"]);
    });
}

#[test]
fn a_large_field_is_removed_at_once_and_what_its_remover_did_not_see_stays() {
    run(async {
        let world = SimWorld::new(1, 1).await;
        add_types(&world).await;
        for begin in (0..15_000).step_by(5000) {
            let edits = (begin..begin + 5000).map(|at| SetEdit::Add(element(at))).collect();
            world.update(0, "map", "k", field("s", EmbeddedUpdate::Set(edits)), None).await.unwrap();
        }
        world.update(0, "map", "k", field("r", EmbeddedUpdate::Register("kept".into())), None).await.unwrap();
        let (_, seen) = world.fetch(0, "map", "k").await.unwrap().unwrap();
        let late = vec![SetEdit::Add("late".into())];
        world.update(0, "map", "k", field("s", EmbeddedUpdate::Set(late)), None).await.unwrap();
        let name = FieldName::new("s", EmbeddedType::Set);
        world.update(0, "map", "k", remove_field(name), seen.as_ref()).await.unwrap();
        let fields = world.nodes[0].gateway.kv.datatype_size(fetch_of("map", "k")).await.unwrap();
        assert_eq!(fields, Some(2));
        let before = world.fetch(0, "map", "k").await.unwrap().unwrap().0;
        world.advance(60_000).await;
        assert_eq!(world.fetch(0, "map", "k").await.unwrap().unwrap().0, before, "cleaning changes nothing");
        assert_eq!(world.stored_rows("map", "k").await.len(), 5, "clock, late, two presences, register");
    });
}
