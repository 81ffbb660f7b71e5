//! The same request through both faces: one outcome, each protocol in its own words. A refused request changes nothing.

use PbField::{Bytes, Number};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_core::Config;
use larder_testkit::http::HttpRequest;
use larder_testkit::pb::{PbField, PbMessage, message};
use serde_json::Value as Json;

use crate::pb::faces::{Face, FaceAddress, FaceObject, Faces};
use crate::support::RiakServer;

const OBJECT_BYTES_MAX: u64 = 100_000;

/// One request in both protocols, with the outcome in each.
struct FaceRequest {
    name: &'static str,
    http: HttpRequest,
    status: u16,
    /// A part of the body.
    text: &'static str,
    code: u8,
    message: Vec<u8>,
    /// The code and the fields of the answer, or the text of the error.
    answer: Result<(u8, Vec<u8>), &'static str>,
}

fn row(
    name: &'static str,
    (http, status, text): (HttpRequest, u16, &'static str),
    (code, fields): (u8, &[PbField<'_>]),
    answer: Result<(u8, Vec<u8>), &'static str>,
) -> FaceRequest {
    FaceRequest { name, http, status, text, code, message: message(fields), answer }
}

/// The object of the requests, and contexts to send.
struct StoredContexts {
    /// The context before the last write.
    stale: Vec<u8>,
    current: Vec<u8>,
    vtag: String,
}

const KEY: [PbField<'_>; 2] = [Bytes(1, b"b"), Bytes(2, b"k")];
const PATH: &str = "/buckets/b/keys/k";

/// Requests about replica counts and deadlines: the query of HTTP, and the field of a get, a put and a delete.
fn of_counts() -> Vec<FaceRequest> {
    const ABOVE: &str = "Specified w/dw/pw/node_confirms values invalid for bucket n value of 3";
    let content = FaceObject::text("v").content();
    let put = |field| [&KEY[..], &[Bytes(4, &content), field]].concat();
    let get = |field| [&KEY[..], &[field]].concat();
    let violated = || Err("{n_val_violation,3}");
    let late = || Err("timeout");
    let reading = |query: &str| HttpRequest::get(&format!("{PATH}?{query}"));
    let writing = |query: &str| HttpRequest::put(&format!("{PATH}?{query}"), "v");
    let deleting = |query: &str| HttpRequest::new("DELETE", &format!("{PATH}?{query}"));
    vec![
        row("r", (reading("r=4"), 400, ABOVE), (9, &get(Number(3, 4))), violated()),
        row("pr", (reading("pr=4"), 400, ABOVE), (9, &get(Number(4, 4))), violated()),
        row("w", (writing("w=4"), 400, ABOVE), (11, &put(Number(5, 4))), violated()),
        row("dw", (writing("dw=4"), 400, ABOVE), (11, &put(Number(6, 4))), violated()),
        row("pw", (writing("pw=4"), 400, ABOVE), (11, &put(Number(8, 4))), violated()),
        row("rw", (deleting("rw=4"), 400, ABOVE), (13, &get(Number(3, 4))), violated()),
        row("w of a delete", (deleting("w=4"), 400, ABOVE), (13, &get(Number(6, 4))), violated()),
        row(
            "machines of a get",
            (reading("node_confirms=2"), 503, "{insufficient_nodes,1,need,2}"),
            (9, &get(Number(14, 2))),
            Err("{insufficient_nodes,1,need,2}"),
        ),
        row(
            "machines of a put",
            (writing("node_confirms=2"), 503, "node_confirms-value unsatisfied: 1/2"),
            (11, &put(Number(17, 2))),
            Err("{node_confirms_val_unsatisfied,2,1}"),
        ),
        row("a get in no time", (reading("timeout=0"), 503, "request timed out"), (9, &get(Number(10, 0))), late()),
        row("a put in no time", (writing("timeout=0"), 503, "request timed out"), (11, &put(Number(12, 0))), late()),
        row(
            "a delete in no time",
            (deleting("timeout=0"), 503, "request timed out"),
            (13, &get(Number(10, 0))),
            late(),
        ),
    ]
}

/// Requests whose context or condition does not fit the object.
fn of_conditions(contexts: &StoredContexts) -> Vec<FaceRequest> {
    const OTHER: &str = "The vclock belongs to another bucket type, bucket or key";
    const DAMAGED: &str = "The vclock was not issued by this server or is damaged";
    let content = FaceObject::text("v").content();
    let put = |more: &[PbField<'_>]| message(&[&KEY[..], &[Bytes(4, &content)], more].concat());
    let writing = |path: &str, header: &str, value: &str| HttpRequest::put(path, "v").header(header, value);
    let (stale, current) = (STANDARD.encode(&contexts.stale), STANDARD.encode(&contexts.current));
    let other: &[PbField<'_>] =
        &[Bytes(1, b"b"), Bytes(2, b"missing"), Bytes(4, &content), Bytes(3, &contexts.current)];
    let missing = "/buckets/b/keys/missing";
    let mut rows = vec![
        row("a put if there is nothing", (writing(PATH, "If-None-Match", "*"), 412, ""), (11, &[]), Err("match_found")),
        row(
            "a put if it is not modified",
            (writing(PATH, "X-Riak-If-Not-Modified", &stale), 409, ""),
            (11, &[]),
            Err("modified"),
        ),
        row(
            "a put if nothing is not modified",
            (writing(missing, "X-Riak-If-Not-Modified", &current), 409, ""),
            (11, &[other, &[Number(9, 1)]].concat()),
            Err("notfound"),
        ),
        row(
            "a context of another key",
            (writing(missing, "X-Riak-Vclock", &current), 400, OTHER),
            (11, other),
            Err(OTHER),
        ),
        row(
            "a damaged context",
            (writing(PATH, "X-Riak-Vclock", "AAECAwQFBgcI"), 400, DAMAGED),
            (11, &[]),
            Err(DAMAGED),
        ),
        row(
            "a delete with a context of another key",
            (HttpRequest::new("DELETE", missing).header("X-Riak-Vclock", &current), 400, OTHER),
            (13, &[Bytes(1, b"b"), Bytes(2, b"missing"), Bytes(4, &contexts.current)]),
            Err(OTHER),
        ),
        row(
            "a get of what the client has",
            (HttpRequest::get(PATH).header("If-None-Match", &format!("\"{}\"", contexts.vtag)), 304, ""),
            (9, &[&KEY[..], &[Bytes(7, &contexts.current)]].concat()),
            Ok((10, message(&[Number(3, 1)]))),
        ),
    ];
    rows[0].message = put(&[Number(10, 1)]);
    rows[1].message = put(&[Number(9, 1), Bytes(3, &contexts.stale)]);
    rows[4].message = put(&[Bytes(3, &[0, 1, 2, 3, 4, 5, 6, 7, 8])]);
    rows
}

/// Requests to addresses and with values that are not taken.
fn of_addresses() -> Vec<FaceRequest> {
    let content = FaceObject::text("v").content();
    let typed = |name: &str| format!("/types/{name}/buckets/b/keys/k");
    let (long, large) = ("l".repeat(13_000), "v".repeat(OBJECT_BYTES_MAX as usize + 1));
    let terms =
        |field: &str| FaceObject { terms: vec![(field.into(), "abc".into())], ..FaceObject::text("v") }.content();
    let meta = FaceObject { meta: vec![("X-Riak-Meta-A".into(), "m".repeat(66_000))], ..FaceObject::text("v") };
    let put = |content: &[u8], more: &[PbField<'_>]| message(&[&KEY[..], &[Bytes(4, content)], more].concat());
    let index = |field: &str| HttpRequest::put(PATH, "v").header(&format!("X-Riak-Index-{field}"), "abc");
    let hooked: &[PbField<'_>] = &[Bytes(1, b"hooked"), Bytes(2, b"k"), Bytes(4, &content)];
    let mut rows = vec![
        row(
            "a get in no type",
            (HttpRequest::get(&typed("nosuch")), 404, "Unknown bucket type: nosuch"),
            (9, &[&KEY[..], &[Bytes(13, b"nosuch")]].concat()),
            Err("no_type"),
        ),
        row("a put in no type", (HttpRequest::put(&typed("nosuch"), "v"), 404, "nosuch"), (11, &[]), Err("no_type")),
        row(
            "a delete in no type",
            (HttpRequest::new("DELETE", &typed("nosuch")), 404, "nosuch"),
            (13, &[&KEY[..], &[Bytes(13, b"nosuch")]].concat()),
            Err("no_type"),
        ),
        row(
            "a get in a type that is not active",
            (HttpRequest::get(&typed("inactive")), 404, "Unknown bucket type: inactive"),
            (9, &[&KEY[..], &[Bytes(13, b"inactive")]].concat()),
            Err("no_type"),
        ),
        row(
            "a key that is too long",
            (HttpRequest::get(&format!("/buckets/b/keys/{long}")), 400, "key"),
            (9, &[Bytes(1, b"b"), Bytes(2, long.as_bytes())]),
            Err("The key is longer than 12288 bytes"),
        ),
        row(
            "a term that is no integer",
            (index("a_int"), 400, ""),
            (11, &[]),
            Err("{precommit_fail,[{field_parsing_failed,{<<\"a_int\">>,<<\"abc\">>}}]}"),
        ),
        row(
            "a term of no kind",
            (index("nosuffix"), 400, ""),
            (11, &[]),
            Err("{precommit_fail,[{unknown_field_type,<<\"nosuffix\">>}]}"),
        ),
        row(
            "much metadata",
            (HttpRequest::put(PATH, "v").header("X-Riak-Meta-A", &"m".repeat(66_000)), 431, ""),
            (11, &[]),
            Err("metadata, links and index terms have 66"),
        ),
        row(
            "a large value",
            (HttpRequest::put(PATH, large.as_bytes()), 413, "{too_large,100001}"),
            (11, &[]),
            Err("{too_large,100001}"),
        ),
        row(
            "a bucket with hooks",
            (HttpRequest::put("/buckets/hooked/keys/k", "v"), 403, "PUT aborted by pre-commit hook."),
            (11, hooked),
            Err("precommit_fail"),
        ),
    ];
    rows[1].message = put(&content, &[Bytes(16, b"nosuch")]);
    rows[5].message = put(&terms("a_int"), &[]);
    rows[6].message = put(&terms("nosuffix"), &[]);
    rows[7].message = put(&meta.content(), &[]);
    rows[8].message = put(&FaceObject::text(&large).content(), &[]);
    rows
}

/// Requests that are no writes of objects, and what is not offered.
fn of_the_rest() -> Vec<FaceRequest> {
    let props = message(&[Number(1, 0)]);
    let none = "/buckets/b/keys/never";
    vec![
        row("ping", (HttpRequest::get("/ping"), 200, "OK"), (1, &[]), Ok((2, vec![]))),
        row(
            "a get of nothing",
            (HttpRequest::get(none), 404, "not found"),
            (9, &[Bytes(1, b"b"), Bytes(2, b"never")]),
            Ok((10, vec![])),
        ),
        // As in Riak: the one protocol says it, the other does not.
        row(
            "a delete of nothing",
            (HttpRequest::new("DELETE", none), 404, "not found"),
            (13, &[Bytes(1, b"b"), Bytes(2, b"never")]),
            Ok((14, vec![])),
        ),
        row(
            "keys of no bucket",
            (HttpRequest::get("/buckets/never/keys?keys=true"), 200, r#"{"keys":[]}"#),
            (17, &[Bytes(1, b"never")]),
            Ok((18, message(&[Number(2, 1)]))),
        ),
        row(
            "keys of no type",
            (HttpRequest::get("/types/nosuch/buckets/b/keys?keys=true"), 404, ""),
            (17, &[Bytes(1, b"b"), Bytes(3, b"nosuch")]),
            Err("No bucket-type named 'nosuch'"),
        ),
        row(
            "invalid properties",
            (HttpRequest::put_json("/buckets/b/props", r#"{"props":{"n_val":0}}"#), 400, r#"{"n_val":"not_integer"}"#),
            (21, &[Bytes(1, b"b"), Bytes(2, &props)]),
            Err("Invalid bucket properties: [{n_val,not_integer}]"),
        ),
        row(
            "properties of no type",
            (HttpRequest::get("/types/nosuch/buckets/b/props"), 404, ""),
            (19, &[Bytes(1, b"b"), Bytes(2, b"nosuch")]),
            Err("No bucket-type named 'nosuch'"),
        ),
        row(
            "a query of an index",
            (HttpRequest::get("/buckets/never/index/a_int/1"), 200, r#"{"keys":[]}"#),
            (25, &[Bytes(1, b"never"), Bytes(2, b"a_int"), Number(3, 0), Bytes(4, b"1")]),
            Ok((26, vec![])),
        ),
        row(
            "a query of no integer",
            (HttpRequest::get("/buckets/b/index/a_int/x"), 400, r#"{field_parsing_failed,{<<"a_int">>,<<"x">>}}"#),
            (25, &[Bytes(1, b"b"), Bytes(2, b"a_int"), Number(3, 0), Bytes(4, b"x")]),
            Err(r#"{field_parsing_failed,{<<"a_int">>,<<"x">>}}"#),
        ),
        row("a counter", (HttpRequest::get("/buckets/b/counters/k"), 404, "not found"), (52, &KEY), Ok((53, vec![]))),
    ]
}

#[test]
fn every_request_has_one_outcome_through_both_faces() {
    let config = Config { object_bytes_max: OBJECT_BYTES_MAX, ..Config::default() };
    let server = RiakServer::start_with(config, Default::default());
    server.make_type("inactive", "{}", false);
    let mut faces = Faces { http: server.client(), pb: server.pb() };
    let at = FaceAddress { bucket_type: "default", key: "k" };
    faces.put(Face::Http, at, &FaceObject::text("one"), None);
    let stale = faces.see(at).context.unwrap();
    faces.put(Face::Pb, at, &FaceObject::text("two"), Some(&stale));
    let hooks = message(&[Number(5, 1), Bytes(4, &message(&[Bytes(2, b"Hooks.check")]))]);
    assert_eq!(faces.pb.ask(21, &[Bytes(1, b"hooked"), Bytes(2, &hooks)]).0, 22);
    let before = faces.see(at);
    let contexts =
        StoredContexts { stale, current: before.context.clone().unwrap(), vtag: before.values[0].vtag.clone() };

    let rows = [of_counts(), of_conditions(&contexts), of_addresses(), of_the_rest()];
    let rows: Vec<_> = rows.into_iter().flatten().collect();
    assert!(rows.len() >= 38, "{} requests, and the objects of the corpus", rows.len());
    for FaceRequest { name, http, status, text, code, message, answer } in rows {
        let shown = faces.http.send(&http);
        assert_eq!(shown.status, status, "{name}: {shown:?}");
        assert!(shown.text().contains(text), "{name}: {shown:?}");
        let (got, fields) = faces.pb.ask_message(code, &message);
        match answer {
            Ok(answer) => assert_eq!((got, fields), (answer.0, PbMessage::decode(&answer.1)), "{name}"),
            Err(text) => assert!(got == 0 && fields.text(1).starts_with(text), "{name}: {got} {fields:?}"),
        }
        assert_eq!(faces.see(at), before, "{name}: a request that is refused, or that reads, changes nothing");
    }
    server.stop();
}

/// Properties as JSON, and as a message with Riak's numbers of fields.
fn properties() -> Vec<(&'static str, Vec<u8>)> {
    let function = message(&[Bytes(1, b"larder"), Bytes(2, b"json")]);
    let (hook, script) = (message(&[Bytes(1, &function)]), message(&[Bytes(2, b"M.f")]));
    vec![
        (r#"{"allow_mult":true}"#, message(&[Number(2, 1)])),
        (r#"{"allow_mult":false,"last_write_wins":true}"#, message(&[Number(2, 0), Number(3, 1)])),
        (r#"{"n_val":2,"r":1,"w":"all"}"#, message(&[Number(1, 2), Number(15, 1), Number(16, 4_294_967_292)])),
        (r#"{"pr":"one","pw":0,"dw":"quorum","rw":2}"#, {
            message(&[Number(14, 4_294_967_294), Number(17, 0), Number(18, 4_294_967_293), Number(19, 2)])
        }),
        (r#"{"basic_quorum":true,"notfound_ok":false}"#, message(&[Number(20, 1), Number(21, 0)])),
        (r#"{"old_vclock":1,"young_vclock":2,"big_vclock":3,"small_vclock":4}"#, {
            message(&[Number(10, 1), Number(11, 2), Number(12, 3), Number(13, 4)])
        }),
        (r#"{"precommit":[{"mod":"larder","fun":"json"}]}"#, message(&[Bytes(4, &hook), Number(5, 1)])),
        (r#"{"postcommit":[{"name":"M.f"}]}"#, message(&[Bytes(6, &script), Number(7, 1)])),
        (r#"{"repl":"realtime","search_index":"i"}"#, message(&[Number(24, 1), Bytes(25, b"i")])),
    ]
}

#[test]
fn properties_are_set_and_shown_alike_through_both_faces() {
    let server = RiakServer::start();
    let mut faces = Faces { http: server.client(), pb: server.pb() };
    for (at, (json, message)) in properties().into_iter().enumerate() {
        let [by_http, by_pb] = ["http", "pb"].map(|face| format!("{face}{at}"));
        let path = |bucket: &str| format!("/buckets/{bucket}/props");
        let set = faces.http.put_json(&path(&by_http), &format!("{{\"props\":{json}}}"));
        assert_eq!(set.status, 204, "{json}: {set:?}");
        assert_eq!(faces.pb.ask(21, &[Bytes(1, by_pb.as_bytes()), Bytes(2, &message)]).0, 22, "{json}");
        let over_http = [&by_http, &by_pb].map(|bucket| {
            let mut shown = faces.http.get(&path(bucket)).json()["props"].clone();
            shown.as_object_mut().unwrap().remove("name");
            shown
        });
        assert_eq!(over_http[0], over_http[1], "{json}");
        let wanted: Json = serde_json::from_str(json).unwrap();
        for (name, value) in wanted.as_object().unwrap() {
            assert_eq!(&over_http[0][name], value, "{json}");
        }
        let over_pb = [&by_http, &by_pb].map(|bucket| faces.pb.ask(19, &[Bytes(1, bucket.as_bytes())]));
        assert_eq!(over_pb[0], over_pb[1], "{json}");
        assert_eq!(faces.http.delete(&path(&by_pb)).status, 204);
        assert_eq!(faces.pb.ask(29, &[Bytes(1, by_http.as_bytes())]).0, 30);
        let reset = [&by_http, &by_pb].map(|bucket| faces.pb.ask(19, &[Bytes(1, bucket.as_bytes())]));
        assert_eq!(reset[0], reset[1]);
        assert_ne!(reset[0], over_pb[0], "{json}: a reset takes it back");
    }
    server.stop();
}

#[test]
fn listings_are_the_same_through_both_faces() {
    let server = RiakServer::start();
    let mut faces = Faces { http: server.client(), pb: server.pb() };
    for at in 0..30 {
        let key = format!("k{at}");
        let face = if at % 2 == 0 { Face::Http } else { Face::Pb };
        faces.put(face, FaceAddress { bucket_type: "default", key: &key }, &FaceObject::text("v"), None);
    }
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let listed =
        |json: &Json| sorted(json.as_array().unwrap().iter().map(|name| name.as_str().unwrap().into()).collect());
    let over_http = listed(&faces.http.get("/buckets/b/keys?keys=true").json()["keys"]);
    let (_, page) = faces.pb.ask(17, &[Bytes(1, b"b")]);
    assert_eq!(faces.pb.receive().unwrap().1, PbMessage::decode(&message(&[Number(2, 1)])));
    let over_pb = sorted(page.all(1).map(|key| String::from_utf8(key.to_vec()).unwrap()).collect());
    assert_eq!((over_http.len(), &over_http), (30, &over_pb));
    let buckets = listed(&faces.http.get("/buckets?buckets=true").json()["buckets"]);
    assert_eq!((buckets, faces.pb.ask(15, &[]).1.text(1)), (vec!["b".to_owned()], "b".to_owned()));
    server.stop();
}
