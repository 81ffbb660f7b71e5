//! Data types and the counters of Riak 1.4: the answers that a Riak was seen to give, by their number there, and the traps.

use larder_testkit::http::HttpRequest;
use larder_testkit::pb::{PbClient, PbField, PbMessage, frame, message};

use crate::pb::{DELETE, GET, PUT, key};
use crate::support::RiakServer;

use PbField::{Bytes, Number};

const FETCH: u8 = 80;
const UPDATE: u8 = 82;
const COUNTER_UPDATE: u8 = 50;
const COUNTER_GET: u8 = 52;

fn server() -> RiakServer {
    let server = RiakServer::start();
    for (name, props) in [
        ("counters", r#"{"datatype":"counter"}"#),
        ("sets", r#"{"datatype":"set"}"#),
        ("gsets", r#"{"datatype":"gset"}"#),
        ("maps", r#"{"datatype":"map"}"#),
        ("hlls", r#"{"datatype":"hll"}"#),
        ("plain", "{}"),
    ] {
        server.make_type(name, props, true);
    }
    server.make_type("inactive", "{}", false);
    server
}

fn at<'a>(name: &'a str, place: &'a str) -> [PbField<'a>; 3] {
    let [bucket, key] = key("pb", place);
    [bucket, key, Bytes(3, name.as_bytes())]
}

/// An operation of this number in `DtOp`.
fn op(number: u32, fields: &[PbField<'_>]) -> Vec<u8> {
    message(&[Bytes(number, &message(fields))])
}

/// Sends an update that returns the value.
fn update(client: &mut PbClient, name: &str, operation: &[u8], more: &[PbField<'_>]) -> (u8, PbMessage) {
    client.ask(UPDATE, &[&at(name, "k")[..], &[Bytes(5, operation), Number(9, 1)], more].concat())
}

fn texts(answer: &PbMessage, number: u32) -> Vec<String> {
    answer.all(number).map(|one| String::from_utf8_lossy(one).into_owned()).collect()
}

fn field(name: &str, code: u64) -> Vec<u8> {
    message(&[Bytes(1, name.as_bytes()), Number(2, code)])
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

#[test]
fn counters_count_by_signed_numbers() {
    let server = server();
    let client = &mut server.pb();
    assert_eq!(client.ask(FETCH, &at("counters", "none")).1.fields, [(2, 1, vec![])], "155");
    update(client, "counters", &op(1, &[Number(1, zigzag(5))]), &[]);
    let (code, back) = update(client, "counters", &op(1, &[Number(1, zigzag(-2))]), &[]);
    assert_eq!((code, back.fields), (83, vec![(3, 6, vec![])]), "157");
    assert_eq!(update(client, "counters", &op(1, &[]), &[]).1.fields, [(3, 8, vec![])], "158: absent is one");
    let (_, found) = client.ask(FETCH, &at("counters", "k"));
    assert_eq!(found.fields, [(2, 1, vec![]), (3, 0, vec![8, 8])], "160");
    let operation = op(1, &[Number(1, 2)]);
    let (_, made) = client.ask(UPDATE, &[Bytes(1, b"pb"), Bytes(3, b"counters"), Bytes(5, &operation), Number(9, 1)]);
    assert_eq!((made.text(1).len() > 20, made.number(3)), (true, Some(2)), "161");
    let quiet = client.ask(UPDATE, &[&at("counters", "k")[..], &[Bytes(5, &operation)]].concat());
    assert_eq!(quiet, (83, PbMessage::default()));
    for _ in 0..2 {
        let (_, once) = update(client, "counters", &op(1, &[Number(1, 20)]), &[Bytes(1000, b"r1")]);
        assert_eq!(once.number(3), Some(zigzag(15)), "an id counts once");
    }
    let [bucket, place] = key("pb", "k");
    assert_eq!(client.ask(DELETE, &[bucket, place, Bytes(13, b"counters")]).0, 14);
    let (_, again) = update(client, "counters", &op(1, &[Number(1, 20)]), &[Bytes(1000, b"r1")]);
    assert_eq!(again.number(3), Some(0), "a repeat after the delete counts no second time");
    assert_eq!(client.ask(FETCH, &at("counters", "k")).1.fields, [(2, 1, vec![])], "and makes no counter");
    server.stop();
}

#[test]
fn sets_come_with_a_context_that_removals_send_back() {
    let server = server();
    let client = &mut server.pb();
    let (_, made) = update(client, "sets", &op(2, &[Bytes(1, b"b"), Bytes(1, b"a")]), &[]);
    assert_eq!((texts(&made, 4), made.bytes(2).is_some()), (vec!["a".into(), "b".into()], true), "166");
    let (_, found) = client.ask(FETCH, &at("sets", "k"));
    assert_eq!(
        (found.number(2), texts(&PbMessage::decode(found.bytes(3).unwrap()), 2)),
        (Some(2), vec!["a".into(), "b".into()]),
        "167"
    );
    let context = found.bytes(1).unwrap().to_vec();
    let (_, less) = update(client, "sets", &op(2, &[Bytes(2, b"a")]), &[Bytes(4, &context)]);
    assert_eq!(texts(&less, 4), ["b"], "169");
    let (code, same) = update(client, "sets", &op(2, &[Bytes(2, b"zz")]), &[Bytes(4, &context)]);
    assert_eq!((code, texts(&same, 4)), (83, vec!["b".to_owned()]), "170");
    let (_, bare) = update(client, "sets", &op(2, &[Bytes(1, b"c")]), &[Number(13, 0)]);
    assert_eq!((texts(&bare, 4), bare.bytes(2)), (vec!["b".into(), "c".into()], None), "172");
    assert_eq!(texts(&update(client, "sets", &op(2, &[]), &[]).1, 4), ["b", "c"], "173");
    let (_, both) = update(client, "sets", &op(2, &[Bytes(2, b"d"), Bytes(1, b"d")]), &[]);
    assert_eq!(texts(&both, 4), ["b", "c"], "additions come first");

    client.ask(UPDATE, &[&at("sets", "empty")[..], &[Bytes(5, &op(2, &[]))]].concat());
    let (_, empty) = client.ask(FETCH, &at("sets", "empty"));
    assert_eq!((empty.bytes(3), empty.bytes(1).is_some()), (Some(&[][..]), true), "an empty set has a value");
    let (_, gset) = update(client, "gsets", &op(5, &[Bytes(1, b"b"), Bytes(1, b"a")]), &[]);
    assert_eq!((texts(&gset, 7), gset.fields.len()), (vec!["a".into(), "b".into()], 2), "a Riak crashes here");
    let (_, found) = client.ask(FETCH, &at("gsets", "k"));
    assert_eq!(found.fields, [(2, 5, vec![]), (3, 0, b"\x2a\x01a\x2a\x01b".to_vec())], "182");
    assert_eq!(
        update(client, "hlls", &op(4, &[Bytes(1, b"a"), Bytes(1, b"b")]), &[]).1.fields,
        [(6, 2, vec![])],
        "179"
    );
    server.stop();
}

#[test]
fn maps_hold_fields_of_every_type() {
    let server = server();
    let client = &mut server.pb();
    let fields = [field("c", 1), field("s", 2), field("r", 3), field("f", 4), field("m", 5)];
    let (two, xy, enabled) = (message(&[Number(1, 4)]), message(&[Bytes(1, b"x"), Bytes(1, b"y")]), 1);
    let inner = message(&[Bytes(2, &message(&[Bytes(1, &fields[2]), Bytes(4, b"in")]))]);
    let updates = [
        message(&[Bytes(1, &fields[0]), Bytes(2, &two)]),
        message(&[Bytes(1, &fields[1]), Bytes(3, &xy)]),
        message(&[Bytes(1, &fields[2]), Bytes(4, b"v")]),
        message(&[Bytes(1, &fields[3]), Number(5, enabled)]),
        message(&[Bytes(1, &fields[4]), Bytes(6, &inner)]),
    ];
    let all: Vec<_> = updates.iter().map(|one| Bytes(2, one)).collect();
    update(client, "maps", &op(3, &all), &[]);
    let (_, found) = client.ask(FETCH, &at("maps", "k"));
    let wanted = "1A090A050A0163100110041A090A050A0166100428011A140A050A016D1005320B0A050A017210032202696E1A0A0A050A0172100322\
                  01761A0D0A050A017310021A01781A0179";
    let shown: String = found.bytes(3).unwrap().iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!((found.number(2), shown.as_str(), found.bytes(1).is_some()), (Some(3), wanted, true), "175");
    let context = found.bytes(1).unwrap().to_vec();
    let (_, less) = update(client, "maps", &op(3, &[Bytes(1, &fields[2])]), &[]);
    assert_eq!(less.all(5).count(), 4, "176");
    let off = message(&[Bytes(1, &fields[3]), Number(5, 2)]);
    let less_set = message(&[Bytes(1, &fields[1]), Bytes(3, &message(&[Bytes(2, b"x")]))]);
    let operation = op(3, &[Bytes(1, &fields[2]), Bytes(2, &less_set), Bytes(2, &off)]);
    let (code, less) = update(client, "maps", &operation, &[Bytes(4, &context)]);
    let flag = less.all(5).map(PbMessage::decode).find(|one| one.number(5).is_some()).unwrap();
    assert_eq!((code, less.all(5).count(), flag.number(5)), (83, 4, Some(0)), "178");
    server.stop();
}

#[test]
fn refusals_are_riaks_and_keep_the_connection() {
    let server = server();
    let client = &mut server.pb();
    let (counter, set) = (op(1, &[Number(1, 2)]), op(2, &[Bytes(2, b"x")]));
    let map = op(3, &[Bytes(1, &field("r", 3))]);
    let with = |name: &'static str, operation| [&at(name, "k")[..], &[Bytes(5, operation)]].concat();
    for (code, fields, text) in [
        (FETCH, at("nosuch", "k").to_vec(), "Error no bucket type `<<\"nosuch\">>`"),
        (UPDATE, with("inactive", &counter), "Error no bucket type `<<\"inactive\">>`"),
        (UPDATE, with("counters", &set), "Operation type is `set` but  bucket type is `counter`."),
        (UPDATE, with("gsets", &set), "Operation type is `set` but  bucket type is `gset`."),
        (UPDATE, with("plain", &counter), "Bucket datatype `undefined` is not a supported type"),
        (FETCH, at("plain", "k").to_vec(), "`undefined` is not a supported type"),
        (UPDATE, with("sets", &set), "{precondition,{not_present,<<\"x\">>}}"),
        (UPDATE, with("maps", &map), "{precondition,{not_present,{<<\"r\">>,riak_dt_lwwreg}}}"),
        (UPDATE, with("default", &set), "\"non-counter operation on default bucket\""),
        (UPDATE, with("default", &counter), "\"Bucket must be allow_mult=true\""),
        (FETCH, at("counters", "").to_vec(), "Key cannot be zero-length"),
        (FETCH, [&at("counters", "k")[..], &[Number(4, 4)]].concat(), "{n_val_violation,3}"),
        (
            UPDATE,
            [&with("sets", &set)[..], &[Bytes(4, b"hello")]].concat(),
            "The context was not issued by this server or is damaged",
        ),
        (
            UPDATE,
            [&with("sets", &set)[..], &[Bytes(4, b"")]].concat(),
            "The context was not issued by this server or is damaged",
        ),
    ] {
        assert_eq!(client.refused(code, &fields), text, "{code} {fields:?}");
    }
    let (code, put) =
        client.ask(11, &[&key("pb", "k")[..], &[Bytes(4, &crate::pb::content("raw")), Bytes(16, b"maps")]].concat());
    assert_eq!((code, put.text(1).contains("data type")), (0, true), "187: an object among data types");
    assert_eq!(client.ask(1, &[]).0, 2);
    server.stop();
}

#[test]
fn an_update_that_means_nothing_ends_its_connection() {
    let server = server();
    let mismatch = message(&[Bytes(1, &field("s", 2)), Bytes(2, &message(&[]))]);
    for operation in [vec![], op(3, &[Bytes(2, &mismatch)]), op(3, &[Bytes(1, &field("x", 9))])] {
        let mut client = server.pb();
        let fields = [&at("maps", "k")[..], &[Bytes(5, &operation)]].concat();
        assert!(client.refused(UPDATE, &fields).starts_with("Error processing incoming message: "));
        assert_eq!(client.receive(), None);
    }
    let many = op(2, &vec![Bytes(1, b""); 20_001]);
    let mut client = server.pb();
    let refused = client.refused(UPDATE, &[&at("sets", "k")[..], &[Bytes(5, &many)]].concat());
    assert_eq!(refused, "the update has more than 20000 edits");
    assert_eq!(client.ask(1, &[]).0, 2, "too many edits are no broken message");
    server.stop();
}

#[test]
fn a_large_set_is_one_frame() {
    let server = server();
    let client = &mut server.pb();
    let elements: Vec<String> = (0..5000).map(|number| format!("element {number:05}")).collect();
    let adds: Vec<_> = elements.iter().map(|one| Bytes(1, one.as_bytes())).collect();
    let (_, back) = update(client, "sets", &op(2, &adds), &[]);
    assert_eq!(texts(&back, 4), elements);
    client.send(&[frame(FETCH, &message(&at("sets", "k"))), frame(1, &[])].concat()).unwrap();
    let (code, found) = client.receive().unwrap();
    assert_eq!((code, texts(&PbMessage::decode(found.bytes(3).unwrap()), 2)), (81, elements));
    assert_eq!(client.receive().unwrap().0, 2, "the next answer follows");
    server.stop();
}

#[test]
fn the_counters_of_riak_1_4_are_those_of_http() {
    let server = server();
    let client = &mut server.pb();
    let at = key("cnt", "k");
    assert_eq!(client.ask(COUNTER_GET, &at), (53, PbMessage::default()), "188");
    let add = |amount, more: &[PbField<'static>]| [&at[..], &[Number(3, zigzag(amount))], more].concat();
    let refused = client.refused(COUNTER_UPDATE, &add(3, &[]));
    assert_eq!(refused, "\"Counters require bucket property 'allow_mult=true'\"");
    assert_eq!(client.ask(21, &[Bytes(1, b"cnt"), Bytes(2, &message(&[Number(2, 1)]))]).0, 22, "190");
    assert_eq!(client.ask(COUNTER_UPDATE, &add(3, &[])), (51, PbMessage::default()), "191");
    assert_eq!(client.ask(COUNTER_UPDATE, &add(-1, &[Number(7, 1)])).1.number(1), Some(zigzag(2)));
    assert_eq!(client.ask(COUNTER_GET, &at).1.fields, [(1, 4, vec![])], "193");
    for _ in 0..2 {
        let once = client.ask(COUNTER_UPDATE, &add(5, &[Number(7, 1), Bytes(1000, b"r1")]));
        assert_eq!(once.1.number(1), Some(zigzag(7)));
    }
    assert_eq!(server.client().send(&HttpRequest::get("/buckets/cnt/counters/k")).expect(200).text(), "7");
    let [bucket, key] = at;
    let (_, fetched) = client.ask(FETCH, &[bucket, key, Bytes(3, b"default")]);
    assert_eq!(fetched.fields, [(2, 1, vec![]), (3, 0, vec![8, 14])], "185: the same counter");
    server.stop();
}

#[test]
fn a_counter_of_riak_1_4_is_an_object_to_conditions_and_contexts() {
    let server = server();
    let client = &mut server.pb();
    let at = key("cnt", "k");
    assert_eq!(client.ask(21, &[Bytes(1, b"cnt"), Bytes(2, &message(&[Number(2, 1)]))]).0, 22);
    let add = [&at[..], &[Number(3, zigzag(5))]].concat();
    let seen = |client: &mut PbClient| {
        assert_eq!(client.ask(COUNTER_UPDATE, &add).0, 51);
        client.ask(GET, &at).1.bytes(2).unwrap().to_vec()
    };
    let (old, now) = (seen(client), seen(client));
    let content = crate::pb::content("object");
    let object = [&at[..], &[Bytes(4, &content)]].concat();
    let new = [&object[..], &[Number(10, 1)]].concat();
    assert_eq!(client.refused(PUT, &new), "match_found", "if_none_match");
    let unmodified = |context| [&object[..], &[Bytes(3, context), Number(9, 1)]].concat();
    assert_eq!(client.refused(PUT, &unmodified(&old)), "modified", "if_not_modified");
    assert_eq!(client.ask(COUNTER_GET, &at).1.number(1), Some(zigzag(10)), "nothing was put");
    assert_eq!(client.ask(PUT, &unmodified(&now)).0, 12);
    assert_eq!(client.ask(COUNTER_GET, &at), (53, PbMessage::default()), "the object replaced it");
    assert_eq!(crate::pb::values(&client.ask(GET, &at).1), ["object"]);
    server.stop();
}

#[test]
fn large_sets_read_as_objects_once_took_memory_without_a_bound() {
    let server = server();
    let client = &mut server.client();
    let mut add = |numbers: std::ops::Range<usize>| {
        let elements: Vec<String> = numbers.map(|number| format!("{number:07000}")).collect();
        let document = format!(r#"{{"add_all":["{}"]}}"#, elements.join("\",\""));
        let request = HttpRequest::new("POST", "/types/sets/buckets/pb/datatypes/large");
        let request = request.header("Content-Type", "application/json").body(document);
        assert_eq!(client.send(&request).status, 204);
        client.get("/types/sets/buckets/pb/keys/large").expect(200).body
    };
    let small = add(0..100);
    assert!(small.starts_with(&[69, 2]) && small.len() > 100 * 7000, "Riak's form, over several pages");
    add(100..250);
    add(250..400);
    add(400..550);
    let large = add(550..600);
    assert!(!large.starts_with(&[69, 2]) && large.len() < 1000, "{} bytes", large.len());
    server.stop();
}
