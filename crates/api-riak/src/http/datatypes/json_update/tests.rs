//! Updates as JSON: every form of each type, and the refusals that a Riak 3.2.3 gave.

use super::*;
use proptest::prelude::*;

fn update(datatype: Datatype, document: &str) -> DatatypeUpdate {
    decode(datatype, document.as_bytes()).unwrap().update
}

fn set(adds: &[&'static str], removes: &[&'static str]) -> Vec<SetEdit> {
    let adds = adds.iter().map(|element| SetEdit::Add((*element).into()));
    adds.chain(removes.iter().map(|element| SetEdit::Remove((*element).into()))).collect()
}

#[track_caller]
fn refused(datatype: Datatype, document: &str, text: &str) {
    assert_eq!(decode(datatype, document.as_bytes()).unwrap_err().to_string(), format!("{text}\n"), "{document}");
}

#[test]
fn a_counter_takes_numbers_words_and_one_member() {
    for (document, amount) in [
        ("5", 5),
        ("-3", -3),
        ("0", 0),
        (r#""increment""#, 1),
        (r#""decrement""#, -1),
        (r#"{"increment":5}"#, 5),
        (r#"{"increment":-2}"#, -2),
        (r#"{"decrement":2}"#, -2),
        (r#"{"increment":4,"context":"AAAA"}"#, 4),
        ("9223372036854775807", i64::MAX),
    ] {
        assert_eq!(update(Datatype::Counter, document), DatatypeUpdate::Counter(amount), "{document}");
    }
}

#[test]
fn sets_take_elements_one_by_one_in_lists_and_in_nested_operations() {
    for (document, edits) in [
        (r#"{"add":"x","add_all":["y","z"],"remove":"a","remove_all":["b"]}"#, set(&["x", "y", "z"], &["a", "b"])),
        (r#"{"update":{"add":"x"}}"#, set(&["x"], &[])),
        (r#"{"update":[{"add":"x"},{"remove":"y"}]}"#, set(&["x"], &["y"])),
        (r#"{"update":{}}"#, set(&[], &[])),
        (r#"{"add_all":[]}"#, set(&[], &[])),
        ("{}", set(&[], &[])),
        (r#"{"add":""}"#, set(&[""], &[])),
        (r#"{"add":"\u00e9\u0000x"}"#, set(&["é\0x"], &[])),
    ] {
        assert_eq!(update(Datatype::Set, document), DatatypeUpdate::Set(edits), "{document}");
    }
    let first_removed = [set(&[], &["a"]), set(&["a"], &[])].concat();
    assert_eq!(update(Datatype::Set, r#"{"remove":"a","add":"a"}"#), DatatypeUpdate::Set(first_removed));
    let added = vec!["a".into(), "b".into()];
    assert_eq!(update(Datatype::Gset, r#"{"add":"a","add_all":["b"]}"#), DatatypeUpdate::Gset(added.clone()));
    assert_eq!(update(Datatype::Hll, r#"{"add_all":["a","b"]}"#), DatatypeUpdate::Hll(added));
}

#[test]
fn maps_name_the_type_of_a_field_behind_its_name() {
    let document = r#"{"update":{"n_counter":1,"t_set":{"add":"x"},"r_register":"v","s_register":{"assign":"w"},
        "f_flag":"enable","_flag":"disable","a_b_counter":{"decrement":1},
        "m_map":{"update":{"in_set":{}},"remove":["old_map"]}},"remove":["gone_set","e_flag"],"context":"aGVsbG8="}"#;
    let edit = |name: &'static str, update| FieldEdit { name: name.into(), update };
    let inner = MapEdits {
        removes: vec![FieldName::new("old", EmbeddedType::Map)],
        updates: vec![edit("in", EmbeddedUpdate::Set(Vec::new()))],
    };
    let updates = vec![
        edit("n", EmbeddedUpdate::Counter(1)),
        edit("t", EmbeddedUpdate::Set(set(&["x"], &[]))),
        edit("r", EmbeddedUpdate::Register("v".into())),
        edit("s", EmbeddedUpdate::Register("w".into())),
        edit("f", EmbeddedUpdate::Flag(true)),
        edit("", EmbeddedUpdate::Flag(false)),
        edit("a_b", EmbeddedUpdate::Counter(-1)),
        edit("m", EmbeddedUpdate::Map(inner)),
    ];
    let removes = vec![FieldName::new("gone", EmbeddedType::Set), FieldName::new("e", EmbeddedType::Flag)];
    let decoded = decode(Datatype::Map, document.as_bytes()).unwrap();
    assert_eq!(decoded.update, DatatypeUpdate::Map(MapEdits { removes, updates }));
    assert_eq!(decoded.context, Some("hello".into()));
    let edits = MapEdits { removes: vec![FieldName::new("f", EmbeddedType::Flag)], updates: Vec::new() };
    assert_eq!(update(Datatype::Map, r#"{"remove":"f_flag"}"#), DatatypeUpdate::Map(edits));
    for empty in ["{}", r#"{"update":{}}"#, r#"{"context":"aGVsbG8="}"#] {
        assert_eq!(update(Datatype::Map, empty), DatatypeUpdate::Map(MapEdits::default()), "{empty}");
    }
}

#[test]
fn a_byte_that_is_no_text_is_named_as_a_read_shows_it() {
    let shown = serde_json::json!({ "add": super::super::super::path::listed_name(b"\xff/") }).to_string();
    assert_eq!(update(Datatype::Hll, &shown), DatatypeUpdate::Hll(vec![Bytes::from_static(b"\xff/")]));
}

#[test]
fn refusals_are_riaks() {
    for (datatype, document, of, shown) in [
        (Datatype::Counter, r#"{"increment":1.5}"#, "counter", r#"{"increment":1.5}"#),
        (Datatype::Counter, r#"{"increment":5,"decrement":1}"#, "counter", r#"{"increment":5,"decrement":1}"#),
        (Datatype::Counter, r#"{"add":"x"}"#, "counter", r#"{"add":"x"}"#),
        (Datatype::Counter, "[]", "counter", "[]"),
        (Datatype::Counter, r#"[{"increment":1}, {"increment":2}]"#, "counter", r#"[{"increment":1},{"increment":2}]"#),
        (Datatype::Counter, "null", "counter", "null"),
        (Datatype::Counter, "{}", "counter", "{}"),
        (Datatype::Counter, r#""5""#, "counter", r#""5""#),
        (Datatype::Counter, "9223372036854775808", "counter", "9223372036854775808"),
        (
            Datatype::Counter,
            r#"{"decrement":-9223372036854775808}"#,
            "counter",
            r#"{"decrement":-9223372036854775808}"#,
        ),
        (Datatype::Set, r#"{"add":["x"]}"#, "set", r#"{"add":["x"]}"#),
        (Datatype::Set, r#"{"add_all":"x"}"#, "set", r#"{"add_all":"x"}"#),
        (Datatype::Set, r#"{"increment":1}"#, "set", r#"{"increment":1}"#),
        (Datatype::Set, r#"[{"add":"g"},{"add":"h"}]"#, "set", r#"[{"add":"g"},{"add":"h"}]"#),
        (Datatype::Set, r#"{"add":null}"#, "set", r#"{"add":null}"#),
        (Datatype::Set, r#"{"update":5}"#, "set", r#"{"update":5}"#),
        (Datatype::Gset, r#"{"remove_all":["a"]}"#, "gset", r#"{"remove_all":["a"]}"#),
        (Datatype::Gset, "5", "gset", "5"),
        (Datatype::Hll, r#"{"remove":"a"}"#, "hll", r#"{"remove":"a"}"#),
        (Datatype::Hll, r#"{"add":1}"#, "hll", r#"{"add":1}"#),
        (Datatype::Map, r#"{"remove":5}"#, "map", r#"{"remove":5}"#),
        (Datatype::Map, r#"{"add":"x"}"#, "map", r#""add""#),
        (Datatype::Map, r#"{"update":{"x_counter":1},"unknown":1}"#, "map", r#""unknown""#),
        (Datatype::Map, r#"{"update":{"tags_set":5}}"#, "set", "5"),
        (Datatype::Map, r#"{"update":{"cnt_counter":"a"}}"#, "counter", r#""a""#),
        (Datatype::Map, r#"{"update":{"sub_map":5}}"#, "map", "5"),
        (Datatype::Map, r#"{"update":{"ok_flag":true}}"#, "flag", "true"),
        (Datatype::Map, r#"{"update":{"r_register":null}}"#, "register", "null"),
        (Datatype::Map, r#"{"update":{"s_set":[{"add":"1"},{"add":"2"}]}}"#, "set", r#"[{"add":"1"},{"add":"2"}]"#),
    ] {
        refused(datatype, document, &format!("Invalid operation on datatype '{of}': {shown}"));
    }
    for name in ["x_bogus", "nosuffix", "h_hll", "g_gset", "counter", "X_COUNTER", ""] {
        refused(Datatype::Map, &format!(r#"{{"update":{{"{name}":1}}}}"#), &format!("Invalid map field name '{name}'"));
    }
    refused(Datatype::Counter, "\n", "Couldn't decode JSON: {badmatch,any}");
    refused(Datatype::Set, r#"{"remove":"a","context":"!!"}"#, "Couldn't decode JSON: function_clause");
    refused(Datatype::Set, r#"{"remove":"a","context":5}"#, "Couldn't decode JSON: function_clause");
    let not_text = decode(Datatype::Set, b"{\"add\":\"\xff\"}").unwrap_err();
    assert_eq!(not_text.to_string(), "Malformed JSON submitted, invalid UTF-8");
}

#[test]
fn a_small_document_cannot_become_large_in_memory_or_in_its_refusal() {
    let many = format!("[{}0]", "0,".repeat(JSON_PARTS_MAX));
    assert_eq!(decode(Datatype::Set, many.as_bytes()), Err(JsonRefusal::TooManyParts));
    let commas_in_a_string = format!(r#"{{"add":"{}\"{}"}}"#, ",".repeat(JSON_PARTS_MAX), "[".repeat(10));
    assert!(decode(Datatype::Set, commas_in_a_string.as_bytes()).is_ok());
    let long = format!(r#"{{"bad":"{}"}}"#, "é".repeat(SHOWN_BYTES_MAX));
    assert!(decode(Datatype::Set, long.as_bytes()).unwrap_err().to_string().len() < SHOWN_BYTES_MAX + 100);
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(matches!(decode(Datatype::Set, deep.as_bytes()), Err(JsonRefusal::TooManyParts)));
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    assert!(matches!(decode(Datatype::Set, deep.as_bytes()), Err(JsonRefusal::Undecodable(_))));
}

proptest! {
    #[test]
    fn arbitrary_documents_decode_without_a_panic(
        at in 0..5_usize,
        bytes: Vec<u8>,
        document in r#"[\[\]{}":,a-z_0-9é\\ -]{0,40}|\{"(add|remove|update|context|add_all)":[\["{a-z_0-9}:\]]{0,20}\}"#,
    ) {
        let datatype = Datatype::ALL[at];
        let _ = decode(datatype, &bytes);
        let _ = decode(datatype, document.as_bytes());
    }

    #[test]
    fn every_name_of_a_field_is_read_as_a_value_shows_it(name: Vec<u8>, at in 0..5_usize) {
        let field = FieldName::new(name, EmbeddedType::ALL[at]);
        let shown = format!("{}_{}", crate::http::path::listed_name(&field.name), field.embedded.name());
        prop_assert_eq!(field_name(&shown), Ok(field));
    }
}
