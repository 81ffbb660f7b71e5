//! One schedule for each rule of data types.

use bytes::Bytes;
use larder_core::Error;
use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::causality::ContextError;
use larder_kv::rules::datatypes::{
    DatatypeError, DatatypeUpdate, DatatypeValue, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldName, FieldValue,
    SetEdit, ValuePiece,
};
use larder_rows::limits::DATATYPE_PAGE_ROWS;
use larder_testkit::faulty::StoreFaults;

use super::client::{add_types, adds, change_of, fetch_of, field, remove_field, removes};
use crate::simulation::world::{SimWorld, run};

async fn world(gateways: usize) -> SimWorld {
    let world = SimWorld::new(1, gateways).await;
    add_types(&world).await;
    world
}

#[test]
fn an_add_concurrent_with_a_removal_of_the_element_wins() {
    run(async {
        let world = world(2).await;
        world.update(0, "set", "k", adds(&["a", "b"]), None).await.unwrap();
        let (_, seen) = world.elements(1, "k").await.unwrap();
        world.update(0, "set", "k", adds(&["a"]), None).await.unwrap();
        world.update(1, "set", "k", removes(&["a", "b", "never"]), seen.as_ref()).await.unwrap();
        assert_eq!(world.elements(0, "k").await.unwrap().0, ["a"]);
        // Without a context everything that is seen goes.
        world.update(1, "set", "k", removes(&["a"]), None).await.unwrap();
        assert_eq!(
            world.fetch(0, "set", "k").await.unwrap().unwrap().0,
            DatatypeValue::Set(Vec::new()),
            "empty, not gone"
        );
    });
}

#[test]
fn a_removal_without_context_of_something_absent_changes_nothing() {
    run(async {
        let world = world(1).await;
        let edits = vec![SetEdit::Add("new".into()), SetEdit::Remove("zz".into())];
        let refused = world.update(0, "set", "k", DatatypeUpdate::Set(edits), None).await.unwrap_err();
        let Error::Datatype(DatatypeError::NotPresent(absent)) = refused else { panic!("{refused:?}") };
        assert_eq!(absent, "{precondition,{not_present,<<\"zz\">>}}");
        assert_eq!(world.fetch(0, "set", "k").await.unwrap(), None);
        let name = FieldName::new("f", EmbeddedType::Register);
        let refused = world.update(0, "map", "k", remove_field(name), None).await;
        assert!(matches!(refused, Err(Error::Datatype(DatatypeError::NotPresent(_)))), "{refused:?}");
    });
}

#[test]
fn requests_that_come_together_share_batches_and_have_their_own_answers() {
    run(async {
        let world = world(1).await;
        world.set_faults(StoreFaults { pause_ms_max: 50, pause_per_mille: 1000, ..StoreFaults::none() });
        let kv = &world.nodes[0].gateway.kv;
        let one = |at: usize| async move {
            let update = if at % 10 == 3 { removes(&["absent"]) } else { adds(&[format!("{at}").as_str()]) };
            (at % 10 == 3) == kv.update_datatype(change_of("set", "k", update)).await.is_err()
        };
        let mut tasks = tokio::task::JoinSet::new();
        let begun = world.micros();
        for at in 0..100 {
            let gateway = std::sync::Arc::clone(&world.nodes[0].gateway);
            tasks.spawn(async move {
                let update = DatatypeUpdate::Counter(at);
                gateway.kv.update_datatype(change_of("counter", "k", update)).await.unwrap();
            });
        }
        tasks.join_all().await;
        assert!(world.micros() - begun < 2_000_000, "a hundred increments take a few batches, not a hundred");
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(99 * 50));
        let (a, b, c) = tokio::join!(one(1), one(3), one(5));
        assert!(a && b && c);
        assert_eq!(world.elements(0, "k").await.unwrap().0, ["1", "5"]);
    });
}

#[test]
fn a_removed_counter_does_not_return_with_the_next_increment_of_another_gateway() {
    run(async {
        let world = world(2).await;
        let increment = |by| field("n", EmbeddedUpdate::Counter(by));
        world.update(0, "map", "k", increment(10), None).await.unwrap();
        let name = FieldName::new("n", EmbeddedType::Counter);
        world.update(1, "map", "k", remove_field(name.clone()), None).await.unwrap();
        world.update(0, "map", "k", increment(1), None).await.unwrap();
        let value = EmbeddedValue::Counter(1);
        let shown = world.fetch(1, "map", "k").await.unwrap().unwrap().0;
        assert_eq!(shown, DatatypeValue::Map(vec![FieldValue { field: name, value }]));
        world.update(0, "counter", "k", DatatypeUpdate::Counter(10), None).await.unwrap();
        assert!(world.delete(1, "counter", "k", None).await.unwrap());
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), None);
        world.update(0, "counter", "k", DatatypeUpdate::Counter(1), None).await.unwrap();
        assert_eq!(world.total(1, "counter", "k").await.unwrap(), Some(1));
    });
}

#[test]
fn an_update_after_a_delete_by_another_gateway_is_listed() {
    run(async {
        let world = world(2).await;
        world.update(0, "set", "k", adds(&["a"]), None).await.unwrap();
        assert_eq!(world.list(1, "set").await.unwrap().0, ["k"]);
        assert!(world.delete(1, "set", "k", None).await.unwrap());
        assert!(!world.delete(1, "set", "k", None).await.unwrap(), "nothing is there any more");
        assert_eq!(world.list(0, "set").await.unwrap(), (Vec::<Bytes>::new(), Vec::new()));
        world.update(0, "set", "k", adds(&["b"]), None).await.unwrap();
        assert_eq!(world.list(1, "set").await.unwrap(), (vec!["k".into()], vec!["b".into()]));
        assert_eq!(world.elements(1, "k").await.unwrap().0, ["b"]);
    });
}

#[test]
fn a_delete_with_a_context_keeps_what_its_client_never_saw() {
    run(async {
        let world = world(2).await;
        world.update(0, "set", "k", adds(&["a"]), None).await.unwrap();
        let (_, seen) = world.elements(1, "k").await.unwrap();
        world.update(0, "set", "k", adds(&["b"]), None).await.unwrap();
        assert!(world.delete(1, "set", "k", seen.as_ref()).await.unwrap());
        let (elements, seen) = world.elements(0, "k").await.unwrap();
        assert_eq!(elements, ["b"]);
        assert_eq!(world.list(0, "set").await.unwrap(), (vec!["k".into()], vec!["b".into()]), "it is still listed");
        assert!(world.delete(1, "set", "k", seen.as_ref()).await.unwrap());
        assert_eq!(world.fetch(0, "set", "k").await.unwrap(), None);
        assert!(world.list(1, "set").await.unwrap().0.is_empty());
        let junk = Bytes::from_static(b"hello");
        let foreign = world.delete(0, "set", "k", Some(&junk)).await;
        assert!(matches!(foreign, Err(Error::Context(ContextError::Foreign))), "{foreign:?}");
    });
}

#[test]
fn a_value_of_long_names_is_deleted_though_its_names_fill_no_batch() {
    run(async {
        let world = world(1).await;
        let name = |at: usize| format!("{at:04}{}", "x".repeat(8000));
        for begin in (0..600).step_by(100) {
            let names: Vec<String> = (begin..begin + 100).map(name).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            world.update(0, "set", "k", adds(&names), None).await.unwrap();
            world.update(0, "map", "k", field("s", set_of(&names)), None).await.unwrap();
        }
        assert!(world.delete(0, "set", "k", None).await.unwrap());
        assert_eq!(world.fetch(0, "set", "k").await.unwrap(), None);
        world.update(0, "map", "k", remove_field(FieldName::new("s", EmbeddedType::Set)), None).await.unwrap();
        assert_eq!(world.fetch(0, "map", "k").await.unwrap().unwrap().0, DatatypeValue::Map(Vec::new()));
        world.update(0, "set", "k", adds(&["new"]), None).await.unwrap();
        world.advance(60_000).await;
        assert_eq!(world.elements(0, "k").await.unwrap().0, ["new"], "the cleaner takes the old ones alone");
    });
}

fn set_of(names: &[&str]) -> EmbeddedUpdate {
    match adds(names) {
        DatatypeUpdate::Set(edits) => EmbeddedUpdate::Set(edits),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_context_is_of_its_own_key_and_of_the_past() {
    run(async {
        let world = world(1).await;
        world.update(0, "set", "k", adds(&["a"]), None).await.unwrap();
        let (_, seen) = world.elements(0, "k").await.unwrap();
        let other = world.update(0, "set", "l", removes(&["a"]), seen.as_ref()).await;
        assert!(matches!(other, Err(Error::Datatype(DatatypeError::Context(ContextError::OtherAddress)))), "{other:?}");
        let junk = Bytes::from_static(b"hello");
        let foreign = world.update(0, "set", "k", removes(&["a"]), Some(&junk)).await;
        assert!(matches!(foreign, Err(Error::Datatype(DatatypeError::Context(ContextError::Foreign)))), "{foreign:?}");
        world.update(0, "counter", "k", DatatypeUpdate::Counter(1), Some(&junk)).await.unwrap();
    });
}

#[test]
fn a_repeated_increment_with_an_id_is_counted_once() {
    run(async {
        let mut world = SimWorld::alone(1).await;
        add_types(&world).await;
        let increment = |id: &'static str| DatatypeChange {
            request_id: Some(id.into()),
            ..change_of("counter", "k", DatatypeUpdate::Counter(5))
        };
        let faults =
            StoreFaults { lose_per_mille: 400, fail_per_mille: 100, late_per_mille: 200, ..StoreFaults::none() };
        for (at, id) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
            world.set_faults(faults);
            while world.nodes[0].gateway.kv.update_datatype(increment(id)).await.is_err() {}
            world.set_faults(StoreFaults::none());
            world.nodes[0].gateway.kv.update_datatype(increment(id)).await.unwrap();
            assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(5 * (at as i128 + 1)));
        }
        world.advance(60_000).await;
        world.restart(0, 0).await;
        world.nodes[0].gateway.kv.update_datatype(increment("a")).await.unwrap();
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(40), "also after late writes and a restart");
        world.advance(25 * 3600 * 1000).await;
        world.nodes[0].gateway.kv.update_datatype(increment("a")).await.unwrap();
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(45), "the id is known for a day");
    });
}

#[test]
fn the_ids_of_counted_increments_once_made_each_read_of_a_counter_slower() {
    run(async {
        let world = SimWorld::alone(1).await;
        add_types(&world).await;
        for at in 0..2 * DATATYPE_PAGE_ROWS {
            let request_id = Some(format!("{at}").into());
            let change = DatatypeChange { request_id, ..change_of("counter", "k", DatatypeUpdate::Counter(1)) };
            world.nodes[0].gateway.kv.update_datatype(change).await.unwrap();
        }
        let mut reader = world.nodes[0].gateway.kv.fetch_datatype(fetch_of("counter", "k")).await.unwrap().unwrap();
        let total = 2 * DATATYPE_PAGE_ROWS as i128;
        assert_eq!(reader.next_page().await.unwrap(), Some(vec![ValuePiece::Counter(total)]), "one page has it");
    });
}

#[test]
fn a_later_assignment_through_a_slow_clock_is_not_lost() {
    run(async {
        let world = world(2).await;
        world.nodes[0].clock.set_skew(400_000);
        let assign = |value: &'static str| field("r", EmbeddedUpdate::Register(value.into()));
        for (at, value) in [(0, "fast"), (1, "slow"), (0, "again"), (1, "last")] {
            world.update(at, "map", "k", assign(value), None).await.unwrap();
        }
        let shown = world.fetch(0, "map", "k").await.unwrap().unwrap().0;
        let value = EmbeddedValue::Register(Some("last".into()));
        assert_eq!(
            shown,
            DatatypeValue::Map(vec![FieldValue { field: FieldName::new("r", EmbeddedType::Register), value }])
        );
    });
}

#[test]
fn a_restarted_single_gateway_goes_on_in_its_own_rows() {
    run(async {
        let mut world = SimWorld::alone(1).await;
        add_types(&world).await;
        for _ in 0..5 {
            world.update(0, "counter", "k", DatatypeUpdate::Counter(2), None).await.unwrap();
            world.update(0, "set", "k", adds(&["a"]), None).await.unwrap();
            world.restart(0, -100_000).await;
        }
        assert_eq!(world.total(0, "counter", "k").await.unwrap(), Some(10));
        let (elements, context) = world.elements(0, "k").await.unwrap();
        assert_eq!(elements, ["a"]);
        assert!(context.as_ref().unwrap().len() < 48, "one actor in {} bytes", context.unwrap().len());
        let (_, seen) = world.elements(0, "k").await.unwrap();
        world.restart(0, -400_000).await;
        world.update(0, "set", "k", adds(&["b"]), None).await.unwrap();
        world.update(0, "set", "k", removes(&["a", "b"]), seen.as_ref()).await.unwrap();
        assert_eq!(world.elements(0, "k").await.unwrap().0, ["b"], "no clock is issued twice");
    });
}

#[test]
fn key_value_calls_see_data_types_and_do_not_overwrite_them() {
    run(async {
        let world = world(1).await;
        let put = world.put(0, "set", "k", "raw", None).await;
        assert!(matches!(put, Err(Error::DatatypePut)), "{put:?}");
        assert!(world.read(0, "set", "k").await.unwrap().texts.is_empty());
        world.update(0, "set", "k", adds(&["a"]), None).await.unwrap();
        assert_eq!(world.read(0, "set", "k").await.unwrap().texts.len(), 1);
        let found = world.nodes[0].gateway.kv.get(crate::simulation::world::get_of("set", "k")).await.unwrap();
        let first = found.versions.etag();
        assert_eq!(found.versions.siblings[0].content.content_type, Some("application/riak_set".into()));
        world.update(0, "set", "k", adds(&["b"]), None).await.unwrap();
        let found = world.nodes[0].gateway.kv.get(crate::simulation::world::get_of("set", "k")).await.unwrap();
        assert_ne!(found.versions.etag(), first, "every update has another tag");
        world.add_type("plain", "{}").await;
        let refused = world.update(0, "plain", "k", adds(&["a"]), None).await;
        assert!(matches!(refused, Err(Error::NotDatatype)), "{refused:?}");
        let wrong = world.update(0, "map", "k", adds(&["a"]), None).await;
        assert!(matches!(wrong, Err(Error::Datatype(DatatypeError::WrongOperation { .. }))), "{wrong:?}");
    });
}

#[test]
fn a_legacy_counter_stands_beside_objects_and_is_listed_and_deleted_like_them() {
    run(async {
        let world = world(1).await;
        world.set_props(0, "default", r#"{"allow_mult":false}"#).await.unwrap();
        let refused = world.update(0, "default", "k", DatatypeUpdate::Counter(3), None).await;
        assert!(matches!(refused, Err(Error::DatatypeNeedsSiblings)), "{refused:?}");
        world.set_props(0, "default", r#"{"allow_mult":true}"#).await.unwrap();
        world.update(0, "default", "k", DatatypeUpdate::Counter(3), None).await.unwrap();
        assert_eq!(world.total(0, "default", "k").await.unwrap(), Some(3));
        world.put(0, "default", "k", "object", None).await.unwrap();
        let object = world.read(0, "default", "k").await.unwrap();
        assert_eq!(object.texts, ["object"]);
        assert!(world.delete(0, "default", "k", object.context.as_ref()).await.unwrap(), "what the context saw");
        world.advance(26 * 3600 * 1000).await;
        assert_eq!(world.list(0, "default").await.unwrap().0, ["k"], "the counter is still there");
        let shown = world.nodes[0].gateway.kv.get(crate::simulation::world::get_of("default", "k")).await.unwrap();
        assert!(world.delete(0, "default", "k", shown.context.as_ref()).await.unwrap(), "with the context of its read");
        assert_eq!(world.total(0, "default", "k").await.unwrap(), None);
        assert!(world.list(0, "default").await.unwrap().0.is_empty());
    });
}

#[test]
fn a_delete_of_an_object_once_brought_the_counter_back_that_it_hid() {
    run(async {
        let world = world(1).await;
        world.set_props(0, "default", r#"{"allow_mult":true}"#).await.unwrap();
        world.update(0, "default", "k", DatatypeUpdate::Counter(3), None).await.unwrap();
        world.put(0, "default", "k", "object", None).await.unwrap();
        assert!(world.delete(0, "default", "k", None).await.unwrap());
        assert_eq!(world.total(0, "default", "k").await.unwrap(), None);
        world.advance(26 * 3600 * 1000).await;
        assert!(world.list(0, "default").await.unwrap().0.is_empty());
    });
}

#[test]
fn a_lost_key_task_leaves_no_queue_behind_and_late_requests_are_not_made() {
    run(async {
        let world = world(1).await;
        world.nodes[0].faulty.freeze();
        let timeout = Some(std::time::Duration::from_secs(1));
        let change = DatatypeChange { timeout, ..change_of("counter", "k", DatatypeUpdate::Counter(1)) };
        let kv = &world.nodes[0].gateway.kv;
        let (first, second) = tokio::join!(kv.update_datatype(change.clone()), kv.update_datatype(change));
        assert!(matches!((first, second), (Err(_), Err(_))));
        world.nodes[0].faulty.thaw();
        world.advance(60_000).await;
        world.update(0, "counter", "k", DatatypeUpdate::Counter(10), None).await.unwrap();
        let total = world.total(0, "counter", "k").await.unwrap().unwrap();
        assert!((10..=12).contains(&total), "{total}");
        let size = kv.datatype_size(fetch_of("counter", "k")).await.unwrap();
        assert_eq!(size, Some(0), "a counter has no elements");
    });
}
