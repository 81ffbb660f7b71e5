//! Protocol buffers over a socket: Riak's texts and traps, hostile frames, connections, and the same objects as over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "connections are closed in real time")]

mod connections;
mod corpus;
mod datatypes;
mod faces;
mod observed;
mod outcomes;
mod replicas;

use PbField::{Bytes, Number};
use larder_admission::MemoryBudget;
use larder_api_riak::http::HttpSettings;
use larder_core::Config;
use larder_net::ConnectionSettings;
use larder_testkit::SplitMix64;
use larder_testkit::pb::{PbClient, PbField, PbMessage, frame, message};

use crate::support::RiakServer;

const GET: u8 = 9;
const PUT: u8 = 11;
const DELETE: u8 = 13;

fn key<'a>(bucket: &'a str, key: &'a str) -> [PbField<'a>; 2] {
    [Bytes(1, bucket.as_bytes()), Bytes(2, key.as_bytes())]
}

fn content(value: &str) -> Vec<u8> {
    message(&[Bytes(1, value.as_bytes()), Bytes(2, b"text/plain")])
}

fn put(client: &mut PbClient, at: [PbField<'_>; 2], value: &str, more: &[PbField<'_>]) -> (u8, PbMessage) {
    client.ask(PUT, &[&at[..], &[Bytes(4, &content(value))], more].concat())
}

fn values(answer: &PbMessage) -> Vec<String> {
    answer.all(1).map(|content| PbMessage::decode(content).text(1)).collect()
}

#[test]
fn an_object_is_written_read_and_deleted() {
    let server = RiakServer::start();
    let mut client = server.pb();
    let at = key("b", "k");
    assert_eq!(put(&mut client, at, "one", &[]), (12, PbMessage::default()));
    let (code, found) = client.ask(GET, &at);
    let shown = PbMessage::decode(found.bytes(1).unwrap());
    assert_eq!(
        (code, shown.text(1), shown.text(2), shown.text(5).is_empty()),
        (10, "one".into(), "text/plain".into(), false)
    );
    assert!(shown.number(7).unwrap() > 1_500_000_000 && shown.number(8).unwrap() < 1_000_000, "{shown:?}");
    let context = found.bytes(2).unwrap().to_vec();

    let (_, head) = client.ask(GET, &[&at[..], &[Number(8, 1)]].concat());
    assert_eq!(PbMessage::decode(head.bytes(1).unwrap()).fields[0], (1, 0, vec![]), "a head has an empty value");
    let unchanged = client.ask(GET, &[&at[..], &[Bytes(7, &context)]].concat()).1;
    assert_eq!(unchanged.fields, [(3, 1, vec![])], "unchanged and nothing else");

    let (_, back) = put(&mut client, at, "two", &[Bytes(3, &context), Number(7, 1)]);
    assert_eq!(values(&back), ["two"]);
    let (_, blank) = put(&mut client, at, "three", &[Number(11, 1), Number(7, 1)]);
    assert_eq!((values(&blank), blank.bytes(2).is_some()), (vec![String::new()], true), "return_head wins");

    assert_eq!(client.ask(DELETE, &at), (14, PbMessage::default()));
    assert_eq!(client.ask(DELETE, &key("b", "never")), (14, PbMessage::default()), "a missing key is deleted");
    assert_eq!(client.ask(GET, &at), (10, PbMessage::default()));
    let (_, tombstone) = client.ask(GET, &[&at[..], &[Number(9, 1)]].concat());
    assert_eq!(
        (tombstone.all(1).count(), tombstone.bytes(2).is_some()),
        (0, true),
        "the context of the tombstone alone"
    );
    server.stop();
}

#[test]
fn a_put_without_a_key_returns_one() {
    let server = RiakServer::start();
    let mut client = server.pb();
    let fields = [Bytes(1, b"b"), Bytes(4, &content("x"))];
    let (code, answer) = client.ask(PUT, &fields);
    let made = answer.text(3);
    assert_eq!((code, answer.fields.len(), made.is_empty()), (12, 1, false));
    assert_eq!(values(&client.ask(GET, &key("b", &made)).1), ["x"]);
    let (_, shown) = client.ask(PUT, &[&fields[..], &[Number(7, 1)]].concat());
    assert_eq!((values(&shown), shown.bytes(2).is_some(), shown.text(3).is_empty()), (vec!["x".into()], true, false));
    server.stop();
}

#[test]
fn the_objects_of_a_range_of_keys_come_in_order_and_page_by_page() {
    const SCAN: u8 = 40;
    let server = RiakServer::start();
    let mut client = server.pb();
    for name in ["a", "b", "c", "d", "e"] {
        put(&mut client, key("b", name), &name.repeat(70_000), &[]);
    }
    client.ask(DELETE, &key("b", "c"));
    // The keys of a scan, with whether all its values are right, and its continuation.
    let mut scan = |more: &[PbField<'_>]| {
        client.send(&frame(SCAN, &message(&[&[Bytes(1, b"b")], more].concat()))).unwrap();
        let mut keys = Vec::new();
        loop {
            let (code, answer) = client.receive().unwrap();
            assert_eq!(code, 41, "{answer:?}");
            if answer.number(3) == Some(1) {
                return (keys.join(""), answer.bytes(2).map(<[u8]>::to_vec));
            }
            for object in answer.all(1).map(PbMessage::decode) {
                let found = PbMessage::decode(object.bytes(2).unwrap());
                assert_eq!(values(&found), [object.text(1).repeat(70_000)]);
                assert!(found.bytes(2).is_some(), "an object has a context");
                keys.push(object.text(1));
            }
        }
    };
    assert_eq!(scan(&[Bytes(2, b"")]), ("abde".into(), None));
    assert_eq!(
        scan(&[Bytes(2, b"b"), Bytes(3, b"e")]),
        ("bd".into(), None),
        "the first key is in, the last one is not"
    );
    assert_eq!(scan(&[Bytes(2, b"b"), Bytes(3, b"e"), Number(4, 0), Number(5, 1)]), ("de".into(), None));
    let (first, continuation) = scan(&[Bytes(2, b"a"), Number(7, 3)]);
    assert_eq!((first.as_str(), continuation.is_some()), ("abd", true));
    let rest = scan(&[Bytes(2, b"a"), Number(7, 3), Bytes(6, &continuation.unwrap())]);
    assert_eq!(rest, ("e".into(), None));
    assert_eq!(scan(&[Bytes(2, b"x")]).0, "");
    assert_eq!(scan(&[Number(7, 0)]), (String::new(), None));
    let (code, refused) = client.ask(SCAN, &[Bytes(1, b"b"), Bytes(6, b"junk")]);
    assert_eq!((code, refused.text(1).contains("continuation")), (0, true), "{refused:?}");
    server.stop();
}

#[test]
fn the_texts_of_errors_are_riaks() {
    let server = RiakServer::start();
    server.make_type("inactive", "{}", false);
    let mut client = server.pb();
    let at = key("b", "k");
    let body = content("x");
    let written = [&at[..], &[Bytes(4, &body)]].concat();
    put(&mut client, at, "one", &[]);
    let context = client.ask(GET, &at).1.bytes(2).unwrap().to_vec();
    put(&mut client, at, "two", &[Bytes(3, &context)]);
    let bad_terms = message(&[
        Bytes(1, b"v"),
        Bytes(10, &message(&[Bytes(1, b"a_int"), Bytes(2, b"abc")])),
        Bytes(10, &message(&[Bytes(1, b"nosuffix"), Bytes(2, b"x")])),
    ]);
    let props = |fields: &[PbField<'_>]| message(fields);
    let n_0 = props(&[Number(1, 0), Number(15, 4_294_967_291)]);
    let n_2 = props(&[Number(1, 2)]);
    for (code, fields, text) in [
        (GET, vec![Bytes(1, b""), Bytes(2, b"")], "Bucket cannot be zero-length"),
        (GET, vec![Bytes(1, b"b")], "Key cannot be zero-length"),
        (GET, [&at[..], &[Bytes(13, b"")]].concat(), "Type cannot be zero-length"),
        (GET, [&at[..], &[Number(3, 4)]].concat(), "{n_val_violation,3}"),
        (GET, [&at[..], &[Number(3, 4_294_967_290)]].concat(), "{n_val_violation,3}"),
        (GET, [&at[..], &[Number(14, 2)]].concat(), "{insufficient_nodes,1,need,2}"),
        (GET, [&at[..], &[Number(10, 0)]].concat(), "timeout"),
        (GET, [&at[..], &[Bytes(13, b"nosuch")]].concat(), "no_type"),
        (GET, [&at[..], &[Bytes(13, b"inactive")]].concat(), "no_type"),
        (PUT, [&written[..], &[Number(10, 1)]].concat(), "match_found"),
        (PUT, [&written[..], &[Number(9, 1)]].concat(), "modified"),
        (PUT, [&written[..], &[Number(9, 1), Bytes(3, &context)]].concat(), "modified"),
        (PUT, vec![Bytes(1, b"b"), Bytes(2, b"new"), Bytes(4, &body), Number(9, 1)], "notfound"),
        (
            PUT,
            vec![Bytes(1, b"b"), Bytes(2, b"t"), Bytes(4, &bad_terms)],
            "{precommit_fail,[{field_parsing_failed,{<<\"a_int\">>,<<\"abc\">>}},{unknown_field_type,<<\"nosuffix\">>}]}",
        ),
        (DELETE, [&at[..], &[Bytes(13, b"nosuch")]].concat(), "no_type"),
        (15, vec![Bytes(3, b"nosuch")], "No bucket-type named 'nosuch'"),
        (17, vec![Bytes(1, b"b"), Bytes(3, b"inactive")], "No bucket-type named 'inactive'"),
        (19, vec![Bytes(1, b"b"), Bytes(2, b"nosuch")], "No bucket-type named 'nosuch'"),
        (21, vec![Bytes(1, b"b"), Bytes(2, &n_2), Bytes(3, b"nosuch")], "No bucket-type named 'nosuch'"),
        (
            21,
            vec![Bytes(1, b"b"), Bytes(2, &n_0)],
            "Invalid bucket properties: [{n_val,not_integer},{r,not_valid_quorum}]",
        ),
        (31, vec![Bytes(1, b"nosuch")], "Invalid bucket type: <<\"nosuch\">>"),
        (32, vec![Bytes(1, b"nosuch"), Bytes(2, &n_2)], "Invalid bucket properties: not_active"),
        (32, vec![Bytes(1, b"default"), Bytes(2, &n_2)], "Invalid bucket properties: no_default_update"),
        (25, vec![Bytes(1, b"b"), Bytes(2, b"a_int")], "Invalid equality query undefined"),
        (
            25,
            vec![Bytes(1, b"b"), Bytes(2, b"a_int"), Number(3, 1), Bytes(5, b"0")],
            "Invalid range query: <<\"0\">> -> undefined",
        ),
        (25, vec![Bytes(1, b"b"), Bytes(2, b"a_foo"), Bytes(4, b"1")], "{unknown_field_type,<<\"a_foo\">>}"),
        (
            25,
            vec![Bytes(1, b"b"), Bytes(2, b"a_int"), Bytes(4, b"1"), Bytes(13, b"1")],
            "Can not use term regular expression in integer query",
        ),
        (27, vec![], "Unknown message code: 27"),
        (90, vec![], "Unknown message code: 90"),
        (255, vec![], "Security not enabled; STARTTLS not allowed."),
    ] {
        assert_eq!(client.refused(code, &fields), text, "{code} {fields:?}");
    }
    assert_eq!(client.ask(29, &[Bytes(1, b"b"), Bytes(2, b"nosuch")]).0, 30, "a reset succeeds for an unknown type");
    assert_eq!(client.ask(1, &[]).0, 2, "the connection goes on after an error");
    server.stop();
}

#[test]
fn the_words_for_replica_counts_are_numbers_near_the_greatest() {
    let server = RiakServer::start();
    let mut client = server.pb();
    put(&mut client, key("b", "k"), "v", &[]);
    for word in 4_294_967_291..=4_294_967_294 {
        let (code, found) = client.ask(GET, &[&key("b", "k")[..], &[Number(3, word), Number(4, word)]].concat());
        assert_eq!((code, values(&found)), (10, vec!["v".to_owned()]), "{word}");
    }
    server.stop();
}

#[test]
fn the_server_and_the_connection_say_who_they_are() {
    let server = RiakServer::start();
    let mut client = server.pb();
    assert_eq!(client.ask(1, &[]), (2, PbMessage::default()));
    assert_eq!(client.ask(3, &[]).1.bytes(1), Some(&[0; 4][..]), "four zero bytes before an id is set");
    assert_eq!(client.ask(5, &[Bytes(1, &[1, 2, 3, 4])]).0, 6);
    assert_eq!(client.ask(3, &[]).1.bytes(1), Some(&[1, 2, 3, 4][..]));
    let (_, info) = client.ask(7, &[]);
    assert_eq!(info.text(1), "larder@127.0.0.1");
    assert_eq!(info.text(2).split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3, "clients parse x.y.z");
    let (_, preflist) = client.ask(33, &key("b", "k"));
    let items: Vec<_> = preflist.all(1).map(PbMessage::decode).collect();
    assert_eq!(items.len(), 3, "one entry per copy");
    assert!(items.iter().all(|item| item.number(3) == Some(1) && item.text(2) == "larder@127.0.0.1"), "{items:?}");
    server.stop();
}

#[test]
fn properties_are_set_read_and_reset() {
    let server = RiakServer::start();
    server.make_type("plain", "{}", true);
    let mut client = server.pb();
    let shown = |client: &mut PbClient, code, fields: &[PbField<'_>]| {
        let (code, answer) = client.ask(code, fields);
        assert_eq!(code, 20);
        PbMessage::decode(answer.bytes(1).unwrap())
    };
    let before = shown(&mut client, 19, &[Bytes(1, b"b")]);
    for (field, number) in [(1, 3), (2, 0), (5, 1), (7, 1), (15, 4_294_967_293), (17, 0), (21, 1), (24, 3), (28, 0)] {
        assert_eq!(before.number(field), Some(number), "field {field}");
    }
    assert_eq!(PbMessage::decode(before.bytes(8).unwrap()).text(1), "riak_core_util");
    let hook = message(&[Bytes(2, b"Hooks.check")]);
    let change = message(&[Number(2, 1), Bytes(4, &hook), Number(5, 1), Number(15, 4_294_967_292)]);
    assert_eq!(client.ask(21, &[Bytes(1, b"b"), Bytes(2, &change)]).0, 22);
    let after = shown(&mut client, 19, &[Bytes(1, b"b")]);
    assert_eq!((after.number(2), after.number(15)), (Some(1), Some(4_294_967_292)));
    assert_eq!(PbMessage::decode(after.bytes(4).unwrap()).text(2), "Hooks.check");
    let no_hooks = message(&[Number(5, 1)]);
    assert_eq!(client.ask(21, &[Bytes(1, b"b"), Bytes(2, &no_hooks)]).0, 22, "an empty list is set with its flag");
    assert_eq!(shown(&mut client, 19, &[Bytes(1, b"b")]).bytes(4), None);
    assert_eq!(client.ask(29, &[Bytes(1, b"b")]).0, 30);
    assert_eq!(shown(&mut client, 19, &[Bytes(1, b"b")]), before);
    assert_eq!(shown(&mut client, 19, &[Bytes(1, b"")]), before, "a bucket without a name has those of its type");
    assert_eq!(client.ask(32, &[Bytes(1, b"plain"), Bytes(2, &message(&[Number(15, 1)]))]).0, 22);
    assert_eq!(shown(&mut client, 31, &[Bytes(1, b"plain")]).number(15), Some(1));
    assert_eq!(shown(&mut client, 31, &[Bytes(1, b"plain")]).number(24), None, "made types have no repl");
    server.stop();
}

#[test]
fn listings_come_in_pages_and_end_with_done_alone() {
    let server = RiakServer::start();
    let mut client = server.pb();
    for at in 0..2500 {
        put(&mut client, key("b", &format!("k{at}")), "v", &[]);
    }
    client.send(&frame(17, &message(&[Bytes(1, b"b")]))).unwrap();
    let (mut keys, mut frames) = (0, 0);
    loop {
        let (code, page) = client.receive().unwrap();
        frames += 1;
        assert_eq!(code, 18);
        if page.number(2) == Some(1) {
            assert_eq!(page.all(1).count(), 0, "the last frame has no keys");
            break;
        }
        keys += page.all(1).count();
    }
    assert_eq!((keys, frames), (2500, 4));
    assert_eq!(client.ask(17, &[Bytes(1, b"none")]).1.fields, [(2, 1, vec![])]);
    let (_, whole) = client.ask(15, &[]);
    assert_eq!((whole.text(1), whole.number(2)), ("b".into(), None), "all buckets in one frame, without done");
    client.send(&frame(15, &message(&[Number(2, 1)]))).unwrap();
    assert_eq!(client.receive().unwrap().1.text(1), "b");
    assert_eq!(client.receive().unwrap().1.fields, [(2, 1, vec![])]);
    server.stop();
}

#[test]
fn large_values_and_siblings_arrive_whole() {
    let server = RiakServer::start();
    server.make_type("many", r#"{"allow_mult":true}"#, true);
    let mut client = server.pb();
    let large: Vec<String> = (0..3).map(|at| at.to_string().repeat(700_000 + at)).collect();
    let at = key("b", "k");
    for value in &large {
        assert_eq!(put(&mut client, at, value, &[Bytes(16, b"many")]).0, 12);
    }
    put(&mut client, at, "small", &[Bytes(16, b"many")]);
    let (_, found) = client.ask(GET, &[&at[..], &[Bytes(13, b"many")]].concat());
    let mut read = values(&found);
    read.sort_by_key(String::len);
    assert_eq!(read.len(), 4);
    assert!(
        read[0] == "small" && read[1..] == large[..],
        "lengths: {:?}",
        read.iter().map(String::len).collect::<Vec<_>>()
    );
    let context = found.bytes(2).unwrap().to_vec();
    put(&mut client, at, "resolved", &[Bytes(16, b"many"), Bytes(3, &context)]);
    assert_eq!(values(&client.ask(GET, &[&at[..], &[Bytes(13, b"many")]].concat()).1), ["resolved"]);
    server.stop();
}

#[test]
fn a_frame_that_means_nothing_ends_its_connection_alone() {
    let server = RiakServer::start();
    let mut other = server.pb();
    let bomb = message(&[Bytes(1, b"b"), Bytes(2, b"k"), Bytes(4, &message(&vec![Bytes(6, b""); 200_000]))]);
    for (sent, text) in [
        (vec![0, 0, 0, 0], None),
        (vec![0xff, 0xff, 0xff, 0xff, PUT], Some("{too_large,4294967294}")),
        (frame(GET, &[0xff]), Some("Error processing incoming message: ")),
        (frame(PUT, &message(&key("b", "k"))), Some("Error processing incoming message: the put has no content")),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Some("{too_large,1195725855}")),
    ] {
        let mut client = server.pb();
        client.send(&sent).unwrap();
        if let Some(text) = text {
            assert!(client.receive().unwrap().1.text(1).starts_with(text), "{text}");
        }
        assert_eq!(client.receive(), None, "{text:?}: the connection is closed");
    }
    let mut client = server.pb();
    client.send(&frame(PUT, &bomb)).unwrap();
    assert!(client.receive().unwrap().1.text(1).starts_with("metadata, links and index terms have "));
    assert_eq!((client.ask(1, &[]).0, other.ask(1, &[]).0), (2, 2));
    server.stop();
}

#[test]
fn a_client_that_still_writes_too_large_a_request_sees_the_refusal_and_goes_on() {
    let config = Config { object_bytes_max: 1_000_000, ..Config::default() };
    let server = RiakServer::start_with(config, HttpSettings::default());
    let mut client = server.pb();
    // More than both sockets hold, so that the client writes until the server has read it all.
    for (request, bytes) in [(PUT, 30_000_000), (GET, 100_000)] {
        client.send(&frame(request, &vec![0; bytes])).unwrap();
        let (code, refused) = client.receive().unwrap();
        assert_eq!((code, refused.text(1)), (0, format!("{{too_large,{bytes}}}")));
    }
    client.send(&[&[1, 0, 0, 0, PUT][..], &[0; 10]].concat()).unwrap();
    assert_eq!(client.receive().unwrap().1.text(1), "{too_large,16777215}", "it is refused before it arrives");
    let mut other = server.pb();
    let at = key("b", "k");
    assert_eq!(put(&mut other, at, "one", &[]).0, 12);
    assert_eq!(values(&other.ask(GET, &at).1), ["one"]);
    server.stop();
}

#[test]
fn claimed_lengths_hold_no_memory_that_other_requests_need() {
    let server = RiakServer::start();
    let memory = MemoryBudget::new(64 << 20, 0);
    let mut client = server.pb_with(ConnectionSettings { memory: memory.clone(), ..ConnectionSettings::default() });
    let claims: Vec<_> = (0..20)
        .map(|_| {
            let mut claim = client.beside();
            claim.send(&[&[2, 0, 0, 0, PUT][..], &[0; 10]].concat()).unwrap();
            claim
        })
        .collect();
    let value = "v".repeat(5_000_000);
    assert_eq!(put(&mut client, key("b", "k"), &value, &[]).0, 12);
    assert!(memory.usage().large <= 20 * (1 << 20), "{:?}", memory.usage());
    drop(claims);
    server.stop();
}

#[test]
fn a_hundred_thousand_malformed_frames_leave_it_serving() {
    let server = RiakServer::start();
    let (mut random, mut first, mut sent) = (SplitMix64::new(8), server.pb(), 0);
    let mut client = first.beside();
    let codes = [1, 3, 5, 7, 9, 11, 13, 15, 19, 21, 23, 25, 29, 31, 32, 33, 40, 50, 52, 80, 82, 253, 255];
    let frames = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    while sent < frames {
        let mut body = Vec::new();
        for _ in 0..random.below(7) {
            let field = 1 + random.below(17) as u32;
            match random.below(4) {
                0 => body.extend(message(&[Number(field, random.number())])),
                1 => body.extend(message(&[Bytes(field, b"a")])),
                2 => body.extend(message(&[Bytes(field, &message(&[Bytes(field, b"b_int"), Number(2, 7)]))])),
                _ => body.push(random.below(256) as u8),
            }
        }
        sent += 1;
        let asked = client.send(&frame(codes[random.below(codes.len())], &body)).is_ok() && client.receive().is_some();
        if !asked {
            client = first.beside();
        }
    }
    assert_eq!(first.ask(1, &[]).0, 2, "a connection of before");
    assert_eq!(first.beside().ask(1, &[]).0, 2, "a new one");
    server.stop();
}
