//! `kv-admin export` and `import` move data types from one server to another: values, contexts and checksums are the same, an old
//! context still removes what it covered and nothing else, and a repeated increment still counts once.
//!
//! With `LARDER_CASSANDRA=host:port` they go through that cluster, which shows the same values.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads the place of a cluster from the environment"
)]

use std::collections::BTreeMap;

use crate::harness::{Home, HttpClient, HttpRequest, KvAdmin, LarderNode, NamedKeyspaces, TestEngine};
use serde_json::{Value, json};

/// Elements of a set that takes several pages.
const ELEMENTS: usize = 2500;
const KEYS: [&str; 10] = [
    "counters/buckets/b/datatypes/k",
    "counters/buckets/b/datatypes/gone",
    "sets/buckets/b/datatypes/k",
    "sets/buckets/b/datatypes/large",
    "sets/buckets/b/datatypes/empty",
    "sets/buckets/b/datatypes/gone",
    "gsets/buckets/b/datatypes/k",
    "maps/buckets/b/datatypes/k",
    "hlls/buckets/b/datatypes/k",
    "hlls/buckets/b/datatypes/rough",
];

/// The contexts that a client got from the first server, each before a later update.
struct EarlierContexts {
    set: Value,
    map: Value,
    /// As the header of an object has it.
    deleted: String,
}

fn update(client: &mut HttpClient, key: &str, body: &Value) {
    client.send(&HttpRequest::post_json(&format!("/types/{key}"), &body.to_string())).expect(204);
}

/// Sends an increment that counts once.
fn increment_once(client: &mut HttpClient, target: &str, by: i64, id: &str) {
    let request = HttpRequest::post_json(target, &by.to_string());
    client.send(&request.header("X-Larder-Request-Id", id)).expect(204);
}

fn value(client: &mut HttpClient, key: &str) -> Value {
    client.get(&format!("/types/{key}")).json()
}

/// Makes data types of every kind, and updates them after a client read their contexts.
fn fill(node: &LarderNode) -> EarlierContexts {
    let (admin, mut client) = (node.admin(), node.client());
    for name in ["counter", "set", "gset", "map", "hll"] {
        admin.active_type(&format!("{name}s"), &json!({ "props": { "datatype": name } }).to_string());
    }
    client.put_json("/buckets/old/props", r#"{"props":{"allow_mult":true}}"#).expect(204);
    let client = &mut client;
    for by in [5, -2] {
        update(client, "counters/buckets/b/datatypes/k", &json!(by));
    }
    for key in ["k", "gone"] {
        increment_once(client, &format!("/types/counters/buckets/b/datatypes/{key}"), 10, "id");
        increment_once(client, &format!("/buckets/old/counters/{key}"), 7, "id");
    }
    client.delete("/types/counters/buckets/b/keys/gone").expect(204);
    client.delete("/buckets/old/keys/gone").expect(204);
    let large: Vec<String> = (0..ELEMENTS).map(|at| format!("element-{at:06}")).collect();
    for (key, edits) in [
        ("k", json!({ "add_all": ["old", "both", "kept"] })),
        ("large", json!({ "add_all": large })),
        ("large", json!({ "remove_all": large[..500] })),
        ("empty", json!({ "add": "x" })),
        ("empty", json!({ "remove": "x" })),
        ("gone", json!({ "add": "before" })),
    ] {
        update(client, &format!("sets/buckets/b/datatypes/{key}"), &edits);
    }
    update(client, "gsets/buckets/b/datatypes/k", &json!({ "add_all": ["a", "b", "\u{e9}"] }));
    let fields = json!({ "n_counter": 3, "old_set": { "add": "old" }, "r_register": "text", "f_flag": "enable",
        "in_map": { "update": { "n_counter": 1, "in_map": { "update": { "x_register": "y" } } } } });
    update(client, "maps/buckets/b/datatypes/k", &json!({ "update": fields }));
    let seen: Vec<String> = (0..1000).map(|at| format!("visitor {at}")).collect();
    update(client, "hlls/buckets/b/datatypes/k", &json!({ "add_all": seen }));
    update(client, "hlls/buckets/b/datatypes/rough", &json!({ "add": "one" }));

    let context = |client: &mut HttpClient, key: &str| value(client, key)["context"].clone();
    let earlier = EarlierContexts {
        set: context(client, "sets/buckets/b/datatypes/k"),
        map: context(client, "maps/buckets/b/datatypes/k"),
        deleted: client.get("/types/sets/buckets/b/keys/gone").context().to_owned(),
    };
    update(client, "sets/buckets/b/datatypes/k", &json!({ "add_all": ["both", "late"] }));
    update(client, "sets/buckets/b/datatypes/gone", &json!({ "add": "after" }));
    update(client, "maps/buckets/b/datatypes/k", &json!({ "update": { "old_set": { "add": "late" } } }));
    earlier
}

/// The documents of all keys with their contexts, and the listings, as clients see them.
fn documents(node: &LarderNode) -> BTreeMap<String, (u16, String)> {
    let mut client = node.client();
    let counters = ["/buckets/old/counters/k", "/buckets/old/counters/gone"].map(str::to_owned);
    let mut found = BTreeMap::new();
    for target in KEYS.iter().map(|key| format!("/types/{key}")).chain(counters) {
        let answer = client.get(&target);
        let text = answer.text();
        found.insert(target, (answer.status, text));
    }
    for place in ["types/counters/buckets/b", "types/sets/buckets/b", "types/maps/buckets/b", "buckets/old"] {
        let mut keys = client.get(&format!("/{place}/keys?keys=true")).expect(200).json()["keys"].clone();
        keys.as_array_mut().unwrap().sort_by_key(ToString::to_string);
        found.insert(place.to_owned(), (200, keys.to_string()));
    }
    found
}

fn run(admin: &KvAdmin, command: &str, dir: &Home) -> String {
    admin.output(&[command, dir.path().to_str().unwrap()])
}

/// Rows and checksum of the table of data types.
fn checksum(stdout: &str) -> (u64, String) {
    let words = stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut tables = words.filter(|words| words.len() == 5 && words[0].starts_with("data"));
    let found = tables.next().unwrap_or_else(|| panic!("no table of data types: {stdout}"));
    (found[1].replace(',', "").parse().unwrap(), found[4].to_owned())
}

#[test]
fn data_types_are_the_same_after_a_transfer() {
    if !TestEngine::is_local_for("data types") {
        return;
    }
    let first = LarderNode::start(&[]);
    let earlier = fill(&first);
    let before = documents(&first);
    let mut dir = Home::new();
    let exported = run(&first.admin(), "export", &dir);
    drop(first);
    let (rows, sum) = checksum(&exported);
    assert!(rows > ELEMENTS as u64 - 500, "{exported}");
    if let Ok(cassandra) = std::env::var("LARDER_CASSANDRA") {
        let keyspaces = NamedKeyspaces::new(cassandra.parse().unwrap(), "datatypes");
        let between = keyspaces.start(Home::new(), &[]);
        let imported = run(&between.admin(), "import", &dir);
        assert_eq!(checksum(&imported), (rows, sum.clone()));
        let there = documents(&between);
        for (target, found) in &before {
            assert_eq!(&there[target], found, "{target} over Cassandra");
        }
        dir = Home::new();
        run(&between.admin(), "export", &dir);
    }
    let second = LarderNode::start(&[]);
    let imported = run(&second.admin(), "import", &dir);
    assert!(imported.contains("verified: counts and checksums are those of the export"), "{imported}");
    assert_eq!(checksum(&imported), (rows, sum));
    let after = documents(&second);
    for (target, found) in &before {
        assert_eq!(&after[target], found, "{target}");
    }
    contexts_and_ids_hold(&mut second.client(), &earlier);
}

/// Contexts and ids of requests of the first server mean the same at another.
fn contexts_and_ids_hold(client: &mut HttpClient, earlier: &EarlierContexts) {
    let set = "sets/buckets/b/datatypes/k";
    update(client, set, &json!({ "remove_all": ["old", "both", "late"], "context": earlier.set }));
    assert_eq!(value(client, set)["value"], json!(["both", "kept", "late"]), "what the context covered, and no more");
    let map = "maps/buckets/b/datatypes/k";
    update(client, map, &json!({ "remove": ["old_set", "r_register"], "context": earlier.map }));
    let left = value(client, map)["value"].clone();
    assert_eq!((&left["old_set"], &left["r_register"]), (&json!(["late"]), &Value::Null), "{left}");
    let delete = HttpRequest::new("DELETE", "/types/sets/buckets/b/keys/gone");
    client.send(&delete.header("X-Riak-Vclock", &earlier.deleted)).expect(204);
    assert_eq!(value(client, "sets/buckets/b/datatypes/gone")["value"], json!(["after"]));

    for key in ["k", "gone"] {
        increment_once(client, &format!("/types/counters/buckets/b/datatypes/{key}"), 10, "id");
        increment_once(client, &format!("/buckets/old/counters/{key}"), 7, "id");
    }
    assert_eq!(value(client, "counters/buckets/b/datatypes/k")["value"], 13, "a repeat counted");
    assert_eq!(value(client, "counters/buckets/b/datatypes/gone")["error"], "notfound");
    assert_eq!(client.get("/buckets/old/counters/k").text(), "7");
    assert_eq!(client.get("/buckets/old/counters/gone").status, 404);
    // New updates count, also on the rows that the first server wrote.
    update(client, "counters/buckets/b/datatypes/k", &json!(1));
    assert_eq!(value(client, "counters/buckets/b/datatypes/k")["value"], 14);
    update(client, set, &json!({ "remove": "kept" }));
    assert_eq!(value(client, set)["value"], json!(["both", "late"]));
}
