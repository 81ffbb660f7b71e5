//! The answers that a Riak was seen to give, by their number there, in their order; and where each rule of the protocol is
//! tested that clients rely on.
//!
//! ```text
//! timeout texts                                    every_observed_answer_is_given, every_request_has_one_outcome_through_both_faces
//! match_found, modified, notfound                  the_texts_of_errors_are_riaks
//! no other code than the answer's or 0             fuzz: requests_are_answered_in_order_with_their_answer_or_an_error
//! errcode is 0, the connection goes on             PbClient::refused, the_texts_of_errors_are_riaks
//! an entry of the preflist for each replica        the_server_and_the_connection_say_who_they_are
//! get: nothing, tombstone, unchanged               an_object_is_written_read_and_deleted
//! put: empty, key only when made, context          a_put_without_a_key_returns_one, an_object_is_written_read_and_deleted
//! the last frame of a listing has `done` alone     listings_come_in_pages_and_end_with_done_alone
//! flags of hooks, absent fields, 31→20, 32→22      properties_are_set_read_and_reset, every_observed_answer_is_given
//! words for counts near 2³²                        the_words_for_replica_counts_are_numbers_near_the_greatest
//! a missing key is deleted                         an_object_is_written_read_and_deleted
//! after half, empty, oversized frames: closed      a_frame_that_means_nothing_ends_its_connection_alone
//! data types and counters                          datatypes.rs
//! index queries                                    refused as where they are switched off: every_observed_answer_is_given
//! ```

use larder_testkit::pb::{PbClient, PbField, PbMessage, message};

use crate::pb::{DELETE, GET, PUT, content, key, values};
use crate::support::RiakServer;

use PbField::{Bytes, Number};

/// An answer that was seen.
enum Observed {
    /// A message without fields.
    Empty(u8),
    /// Exactly these fields.
    Fields(u8, Vec<u8>),
    /// An error with this text.
    Error(&'static str),
    /// The values of an object, in any order, with a context.
    Values(&'static [&'static str]),
    /// A context alone.
    Context,
    /// An answer with this code, and a name that the server made.
    NewKey,
    /// Not as observed: the number of the row stands in the manual's differences, with this answer instead.
    Instead(Box<Observed>, &'static str),
}

use Observed::{Context, Empty, Error, Fields, Instead, NewKey, Values};

#[track_caller]
fn check(number: u32, observed: &Observed, (code, answer): (u8, PbMessage)) {
    match observed {
        Empty(wanted) => assert_eq!((code, answer), (*wanted, PbMessage::default()), "{number}"),
        Fields(wanted, fields) => assert_eq!((code, answer), (*wanted, PbMessage::decode(fields)), "{number}"),
        Error(text) => {
            assert_eq!((code, answer.text(1), answer.number(2)), (0, (*text).to_owned(), Some(0)), "{number}");
        }
        Values(wanted) => {
            let mut values = values(&answer);
            values.sort();
            assert_eq!(
                (values, answer.bytes(2).is_some()),
                (wanted.iter().map(|one| (*one).into()).collect(), true),
                "{number}"
            );
        }
        Context => assert_eq!((answer.fields.len(), answer.bytes(2).is_some()), (1, true), "{number} {answer:?}"),
        NewKey => assert_eq!((code, answer.fields.len(), answer.text(3).len() > 20), (12, 1, true), "{number}"),
        Instead(answer_here, why) => {
            assert!(!why.is_empty());
            check(number, answer_here, (code, answer));
        }
    }
}

fn typed<'a>(fields: &[PbField<'a>], number: u32, name: &'a str) -> Vec<PbField<'a>> {
    [fields, &[Bytes(number, name.as_bytes())]].concat()
}

/// Rows of objects, in the order in which they were sent: number, code, fields, answer.
fn objects(client: &mut PbClient) {
    let at = key("pb", "k");
    let (one, three, n, x) = (content("one"), content("three"), content("n"), content("x"));
    let with = |fields: &[PbField<'static>]| [&at[..], fields].concat();
    let mut ask = |number, code, fields: &[PbField<'_>], wanted: Observed| {
        let answer = client.ask(code, fields);
        let context = answer.1.bytes(2).map(<[u8]>::to_vec);
        check(number, &wanted, answer);
        context
    };
    ask(16, PUT, &[&at[..], &[Bytes(4, &one)]].concat(), Empty(12));
    let first = ask(17, GET, &at, Values(&["one"])).unwrap();
    let second = ask(19, PUT, &[&at[..], &[Bytes(3, &first), Bytes(4, &three), Number(11, 1)]].concat(), Values(&[""]));
    let second = second.unwrap();
    ask(20, PUT, &[Bytes(1, b"pb"), Bytes(4, &x)], NewKey);
    ask(22, GET, &with(&[Number(8, 1)]), Values(&[""]));
    ask(23, GET, &at, Values(&["three"]));
    let put = |more: &[PbField<'static>]| [&at[..], &[Bytes(4, &n)], more].concat();
    ask(26, PUT, &put(&[Number(10, 1)]), Error("match_found"));
    ask(28, PUT, &put(&[Number(9, 1)]), Error("modified"));
    ask(29, PUT, &[&put(&[Number(9, 1)])[..], &[Bytes(3, &first)]].concat(), Error("modified"));
    ask(30, PUT, &[&put(&[Number(9, 1)])[..], &[Bytes(3, &second)]].concat(), Empty(12));
    let missing = [&key("pb", "missing")[..], &[Bytes(3, &second), Bytes(4, &n), Number(9, 1)]].concat();
    ask(31, PUT, &missing, Error("notfound"));
    for (number, field) in [(32, Number(3, 4)), (38, Number(3, 4_294_967_290)), (40, Number(4, 4))] {
        ask(number, GET, &[&at[..], &[field]].concat(), Error("{n_val_violation,3}"));
    }
    for (number, r) in [(34, 4_294_967_294), (35, 4_294_967_293), (36, 4_294_967_292), (37, 4_294_967_291)] {
        ask(number, GET, &[&at[..], &[Number(3, r)]].concat(), Values(&["n"]));
    }
    ask(41, GET, &with(&[Number(10, 1000)]), Values(&["n"]));
    ask(43, GET, &with(&[Number(11, 0)]), Values(&["n"]));
    ask(44, GET, &with(&[Number(14, 2)]), Error("{insufficient_nodes,1,need,2}"));
    ask(46, GET, &[&key("pb", "none")[..], &[Number(9, 1)]].concat(), Empty(10));
    ask(47, PUT, &put(&[Number(5, 4)]), Error("{n_val_violation,3}"));
    for asis in [1, 0] {
        ask(50, PUT, &put(&[Number(13, asis)]), Empty(12));
    }
    ask(52, PUT, &[Bytes(1, b"pb"), Bytes(2, b""), Bytes(4, &x)], Error("Key cannot be zero-length"));
    ask(53, GET, &[Bytes(1, b""), Bytes(2, b"k")], Error("Bucket cannot be zero-length"));
    let untyped = message(&[Bytes(1, b"v")]);
    ask(55, PUT, &[&key("pb", "noct")[..], &[Bytes(4, &untyped)]].concat(), Empty(12));
    ask(56, GET, &key("pb", "noct"), Values(&["v"]));
    let term =
        |field: &str| message(&[Bytes(1, b"v"), Bytes(10, &message(&[Bytes(1, field.as_bytes()), Bytes(2, b"abc")]))]);
    let [integer, unknown] = ["a_int", "nosuffix"].map(term);
    let bad = |content| [&key("pb", "badidx")[..], &[Bytes(4, content)]].concat();
    ask(58, PUT, &bad(&integer), Error("{precommit_fail,[{field_parsing_failed,{<<\"a_int\">>,<<\"abc\">>}}]}"));
    ask(59, PUT, &bad(&unknown), Error("{precommit_fail,[{unknown_field_type,<<\"nosuffix\">>}]}"));
    let fresh = key("pb", "fresh");
    ask(60, PUT, &[&fresh[..], &[Bytes(4, &x)]].concat(), Empty(12));
    ask(60, DELETE, &fresh, Empty(14));
    ask(61, GET, &[&fresh[..], &[Number(9, 1)]].concat(), Context);
    ask(62, DELETE, &key("pb", "none"), Empty(14));
    ask(101, GET, &typed(&at, 13, "default"), Values(&["n"]));
}

/// Rows of siblings in a type, and of types that are none.
fn types(client: &mut PbClient) {
    let at = key("pb", "k");
    let mut ask = |number, code, fields: &[PbField<'_>], wanted: Observed| {
        let answer = client.ask(code, fields);
        let context = answer.1.bytes(2).map(<[u8]>::to_vec);
        check(number, &wanted, answer);
        context
    };
    let contents = ["1", "2", "3"].map(content);
    let put = |value: usize, name: &'static str| typed(&[&at[..], &[Bytes(4, &contents[value])]].concat(), 16, name);
    ask(65, PUT, &put(0, "plain"), Empty(12));
    ask(66, PUT, &put(1, "plain"), Empty(12));
    let both = ask(67, GET, &typed(&at, 13, "plain"), Values(&["1", "2"])).unwrap();
    ask(68, GET, &typed(&[&at[..], &[Number(8, 1)]].concat(), 13, "plain"), Values(&["", ""]));
    ask(69, PUT, &put(2, "plain"), Empty(12));
    ask(70, DELETE, &typed(&[&at[..], &[Bytes(4, &both)]].concat(), 13, "plain"), Empty(14));
    let left = Instead(Box::new(Values(&["3"])), "a tombstone is no sibling");
    let left = ask(71, GET, &typed(&at, 13, "plain"), left).unwrap();
    ask(72, DELETE, &typed(&[&at[..], &[Bytes(4, &left)]].concat(), 13, "plain"), Empty(14));
    ask(73, GET, &typed(&[&at[..], &[Number(9, 1)]].concat(), 13, "plain"), Context);
    ask(74, PUT, &typed(&[Bytes(1, b"pb"), Bytes(4, &contents[0])], 16, "plain"), NewKey);
    ask(103, PUT, &put(2, "consistent"), Instead(Box::new(Empty(12)), "there is always consistency"));
    ask(104, PUT, &put(2, "wonce"), Empty(12));
    ask(106, GET, &typed(&at, 13, "wonce"), Values(&["3"]));
    let n_2 = message(&[Number(1, 2)]);
    for (name, none) in [("nosuch", "No bucket-type named 'nosuch'"), ("inactive", "No bucket-type named 'inactive'")] {
        ask(76, PUT, &put(2, name), Error("no_type"));
        ask(77, DELETE, &typed(&at, 13, name), Error("no_type"));
        ask(88, GET, &typed(&at, 13, name), Error("no_type"));
        ask(91, 19, &typed(&[Bytes(1, b"pb")], 2, name), Error(none));
        ask(79, 21, &typed(&[Bytes(1, b"pb"), Bytes(2, &n_2)], 3, name), Error(none));
        ask(80, 29, &typed(&[Bytes(1, b"pb")], 2, name), Empty(30));
        ask(82, 32, &typed(&[Bytes(2, &n_2)], 1, name), Error("Invalid bucket properties: not_active"));
        ask(83, 15, &typed(&[], 3, name), Error(none));
        ask(97, 17, &typed(&[Bytes(1, b"pb")], 3, name), Error(none));
        let query = [Bytes(1, b"pb"), Bytes(2, b"$bucket"), Number(3, 0), Bytes(4, b"pb")];
        let refused = Instead(Box::new(Error(none)), "Riak's request times out and its connection ends");
        ask(85, 25, &typed(&query, 12, name), refused);
    }
    ask(94, 31, &typed(&[], 1, "inactive"), Error("Invalid bucket type: <<\"inactive\">>"));
}

/// The fields of properties that every answer about the type `default` has: number, and value or text.
const DEFAULT_PROPS: &[(u32, u64)] = &[
    (1, 3),
    (2, 0),
    (3, 0),
    (5, 1),
    (7, 1),
    (10, 86_400),
    (11, 20),
    (12, 50),
    (13, 50),
    (14, 0),
    (15, 4_294_967_293),
    (16, 4_294_967_293),
    (17, 0),
    (18, 4_294_967_293),
    (19, 4_294_967_293),
    (20, 0),
    (21, 1),
    (24, 3),
    (28, 0),
];

fn shown_props(client: &mut PbClient, code: u8, fields: &[PbField<'_>]) -> PbMessage {
    let (code, answer) = client.ask(code, fields);
    assert_eq!(code, 20, "{answer:?}");
    PbMessage::decode(answer.bytes(1).unwrap())
}

/// Rows of properties: 107 to 122.
fn properties(client: &mut PbClient) {
    for (number, code, bucket) in [(107, 19, "pb"), (119, 31, "default"), (122, 19, "")] {
        let shown = shown_props(client, code, &[Bytes(1, bucket.as_bytes())]);
        let numbers: Vec<_> =
            shown.fields.iter().filter(|field| field.2.is_empty()).map(|one| (one.0, one.1)).collect();
        assert_eq!(numbers, DEFAULT_PROPS, "{number}: these and no other");
        let functions: Vec<_> = [8, 9].map(|field| PbMessage::decode(shown.bytes(field).unwrap()).text(2)).into();
        assert_eq!(functions, ["chash_std_keyfun", "mapreduce_linkfun"], "{number}");
    }
    let mut set = |number, code, fields: &[PbField<'_>], props: &[PbField<'_>], wanted: Observed| {
        let props = message(props);
        check(number, &wanted, client.ask(code, &[fields, &[Bytes(2, &props)]].concat()));
    };
    let pb = [Bytes(1, b"pb")];
    set(109, 21, &pb, &[Number(1, 2), Number(2, 1), Number(5, 0), Number(15, 4_294_967_292)], Empty(22));
    set(112, 21, &pb, &[Number(1, 0)], Error("Invalid bucket properties: [{n_val,not_integer}]"));
    let function = message(&[Bytes(1, b"a"), Bytes(2, b"b")]);
    let refused = Error("Invalid bucket properties: [{precommit,{unknown_hook_function,\"a:b is not built in\"}}]");
    let unknown = Instead(Box::new(refused), "a function that can never run is refused when it is set");
    set(113, 21, &[Bytes(1, b"hooked")], &[Bytes(4, &message(&[Bytes(1, &function)])), Number(5, 1)], unknown);
    set(
        115,
        21,
        &typed(&pb, 3, "plain"),
        &[Bytes(26, b"set")],
        Error("Invalid bucket properties: [{datatype,\"`datatype` must not be defined.\"}]"),
    );
    set(118, 32, &[Bytes(1, b"plain")], &[Number(15, 4_294_967_293)], Empty(22));
    let changed = shown_props(client, 19, &pb);
    assert_eq!([1, 2, 15].map(|field| changed.number(field)), [Some(2), Some(1), Some(4_294_967_292)], "110");
    assert_eq!([24, 28].map(|field| shown_props(client, 31, &[Bytes(1, b"plain")]).number(field)), [None, None], "116");
    let (_, preflist) = client.ask(33, &key("other", "k"));
    assert_eq!(preflist.all(1).count(), 3, "121");
}

/// Rows of listings, and of requests to parts that are switched off.
fn the_rest(client: &mut PbClient) {
    let mut ask =
        |number, code, fields: &[PbField<'_>], wanted: Observed| check(number, &wanted, client.ask(code, fields));
    let done = || Fields(18, message(&[Number(2, 1)]));
    ask(124, 17, &[Bytes(1, b"pbnone")], done());
    ask(125, 15, &[], Fields(16, message(&[Bytes(1, b"pb")])));
    ask(127, 15, &typed(&[], 3, "plain"), Fields(16, message(&[Bytes(1, b"pb")])));
    for (number, code, text) in [
        (13, 27, "Unknown message code: 27"),
        (14, 90, "Unknown message code: 90"),
        (11, 255, "Security not enabled; STARTTLS not allowed."),
    ] {
        ask(number, code, &key("pb", "k"), Error(text));
    }
    let json = Bytes(2, b"application/json");
    let count = br#"{"inputs":"pb","query":[{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_count_inputs"}}]}"#;
    ask(149, 23, &[Bytes(1, count), json], Fields(24, message(&[Number(1, 0), Bytes(2, b"[3]")])));
    check(149, &Fields(24, message(&[Number(3, 1)])), client.receive().unwrap());
    let mut ask =
        |number, code, fields: &[PbField<'_>], wanted: Observed| check(number, &wanted, client.ask(code, fields));
    ask(152, 23, &[Bytes(1, b"{}"), Bytes(2, b"text/x")], Error("{unknown_content_type,<<\"text/x\">>}"));
    for code in [15, 17] {
        let timeout = if code == 15 { Number(1, 0) } else { Number(2, 0) };
        ask(128, code, &[Bytes(if code == 15 { 3 } else { 1 }, b"default"), timeout], Error("timeout"));
    }
}

#[test]
fn every_observed_answer_is_given() {
    let server = RiakServer::start();
    for (name, props, active) in [
        ("plain", "{}", true),
        ("inactive", "{}", false),
        ("consistent", r#"{"consistent":true}"#, true),
        ("wonce", r#"{"write_once":true}"#, true),
    ] {
        server.make_type(name, props, active);
    }
    let mut client = server.pb();
    properties(&mut server.pb());
    server.pb().ask(29, &[Bytes(1, b"pb")]);
    objects(&mut client);
    types(&mut client);
    the_rest(&mut client);
    assert_eq!(client.ask(1, &[]).0, 2, "no answer ended the connection");
    server.stop();
}

#[test]
fn the_n_val_of_a_request_is_that_of_its_bucket_or_refused() {
    let server = RiakServer::start();
    let mut client = server.pb();
    let value = content("v");
    for (code, number, fields) in [(PUT, 15, vec![Bytes(4, &value)]), (GET, 12, vec![]), (DELETE, 12, vec![])] {
        let mut with = |n_val| client.ask(code, &[&key("b", "k")[..], &fields, &[Number(number, n_val)]].concat());
        assert_eq!(with(3).0, code + 1, "{code}: as it is");
        assert_eq!(with(4).1.text(1), "{n_val_violation,4}", "{code}");
        let less = "n_val=2 is not available: every object has the n_val 3 of its bucket";
        assert_eq!(with(2).1.text(1), less, "{code}");
    }
    assert_eq!(client.refused(GET, &[&key("b", "k")[..], &[Bytes(13, b"no"), Number(12, 3)]].concat()), "no_type");
    server.stop();
}
