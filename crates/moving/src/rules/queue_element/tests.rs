//! Answers that a node of Riak 3.2.3 sent, byte by byte.

use larder_rows::content::KvBody;
use proptest::prelude::*;

use super::*;
use crate::rules::{
    RiakDatatype, RiakField, RiakFieldKind, RiakFlag, RiakMap, RiakMapCounter, RiakPnCounter, RiakRegister, RiakSet,
};

const SENCHA: &str = "01008979a985100000000000000004746561730000000673656e636861350100000026836c0000000168026d0000000c2309\
    fef9e5ba393800000001680261016e05001e5077e40e6a000000010000000601677265656e000001370000070300054d5e00\
    0c46ba16326972515761536449536445464450674d7971364270000000000801636861727365740000000a00836b00057574\
    662d380000000c01582d5269616b2d4d6574610000002300836c0000000168026b0010582d5269616b2d4d6574612d466172\
    6d6b0003756a696a0000000601696e6465780000003400836c0000000268026d0000000a6f726967696e5f62696e6d000000\
    026a7068026d00000008796561725f696e7462000007ea6a0000000d01636f6e74656e742d747970650000000f00836b000a\
    746578742f706c61696e0000001101636f6e74656e742d656e636f64696e670000000d00836b00086964656e746974790000\
    0006014c696e6b730000002800836c00000001680268026d00000004746561736d000000066d61746368616d000000036b69\
    6e6a";
const TOMBSTONE: &str = "01010000005c836c0000000368026d0000000c2309fef9e5ba435100000001680261016e05001e5077e40e68026d00000008\
    2309fef9e5ba437f680261016e05001e5077e40e68026d000000082309fef9e5ba43a5680261026e05001e5077e40e6aa478\
    798d1000000005706c61696e0000000162000000016b35010000005c836c0000000368026d0000000c2309fef9e5ba435100\
    000001680261016e05001e5077e40e68026d000000082309fef9e5ba437f680261016e05001e5077e40e68026d0000000823\
    09fef9e5ba43a5680261026e05001e5077e40e6a0000000100000001010000005e0000070300054d5e000e1c681635346549\
    513977706236777548625767674954525472010000000601696e6465780000000300836a0000000401646f740000001d0083\
    68026d000000082309fef9e5ba437f680261016e05001e5077e40e";
const COUNTER: &str = "01007184ca341000000008636f756e746572730000000163000000016e350100000026836c0000000168026d0000000c2309\
    fef9e5ba43f000000001680261016e0500285077e40e6a0000000100000038014502000000117269616b5f64745f706e636f\
    756e7465724702836c0000000168036d0000000c2309fef9e5ba43f000000001610561006a000000670000070300054d6800\
    0249ed163173394a7651735a6d57473969773363794341757248000000000601696e6465780000000300836a0000000d0163\
    6f6e74656e742d747970650000001d00836b00186170706c69636174696f6e2f7269616b5f636f756e746572";
const SET: &str = "0100f3d7ca621000000004736574730000000173000000016e350100000026836c0000000168026d0000000c2309fef9e5ba\
    437f00000002680261016e0500285077e40e6a00000001000000790145020000000e7269616b5f64745f6f7273776f744b02\
    8350000000df7801cb60ce61606060cc60ca05523cca9cff7e3edde55c0f64332532656570a630b0a46426972432250a0021\
    476240a2418640161ac8604411031b0822c066322661371b68069ac2446c0a1981ea10ce6020c1196047020011ca3ed90000\
    00630000070300054d680002750e16343633694c71455a62313866564d5177366d33324262000000000601696e6465780000\
    000300836a0000000d01636f6e74656e742d747970650000001900836b00146170706c69636174696f6e2f7269616b5f7365\
    74";
const MAP: &str = "01002d7cef7910000000046d617073000000016d000000016e350100000026836c0000000168026d0000000c2309fef9e5ba\
    437f00000003680261016e0500285077e40e6a00000001000001460145020000000b7269616b5f64745f6d61704d02835000\
    00068b7801cd544b4ec330101ddbe153814aeec0055871012ec00dc2a80e99b48903a9a52036dc8b25d760cd8223b0411897\
    26ee000194208817b165f9f9bd376f4caa000041b274bffdc3c9f3d3c3edc98d9b2b14739a6888743eb3b885b11bbb788a47\
    14cfd94782628f1240c9ca6838a8735c24da26954ece0bcc487688e22bc4d74b382a23487de40332ecd8267d527ecdaf5298\
    a51aa66b05693933b61e5d80ec61f9d916b9d2a044d8904172b5e432228365a8a3689a3a1dbf103e3e0a8d313b9045778ff7\
    67db21bd55bcc073e60c65ee92b2b7f6b9c48bd14dee4bc90f03d98ae22ac4651096df34595c3b8b8fa7bd1677a2e03b5dd6\
    8a6213d7190390061c7ddff891c56c19385cd5cba6b2ff3e296d4a7c7f88ab8f9fd937db0719d695ee0fabe6480c10f102ce\
    a8ec14000000630000070300054d6800029a29163330514e54745369694a65626775343776464e4c5174000000000601696e\
    6465780000000300836a0000000d01636f6e74656e742d747970650000001900836b00146170706c69636174696f6e2f7269\
    616b5f6d6170";
const HYPER_LOG_LOG: &str = "0100a10ddf801000000004686c6c730000000168000000016e350100000026836c0000000168026d0000000c2309fef9e5ba\
    393800000002680261016e0500285077e40e6a00000001000000550145020000000b7269616b5f6b765f686c6c5601836803\
    6400056879706572610e680264000c68797065725f62696e61727968056400066275666665726c00000001680262000021bd\
    61016a6101610e6200000199000000630000070300054d680002e96c16317373494e7a394c72504c6b7577774e5a4e4c3553\
    36000000000601696e6465780000000300836a0000000d01636f6e74656e742d747970650000001900836b00146170706c69\
    636174696f6e2f7269616b5f686c6c";
const GROW_ONLY_SET: &str = "010093912af5100000000567736574730000000167000000016e350100000026836c0000000168026d0000000c2309fef9e5\
    ba43f000000002680261016e0500285077e40e6a00000001000000220145020000000c7269616b5f64745f67736574520283\
    6c000000016d00000001616a000000640000070300054d680002ffdc1636424a30326b5031334a373852686f353957594771\
    6c000000000601696e6465780000000300836a0000000d01636f6e74656e742d747970650000001a00836b00156170706c69\
    636174696f6e2f7269616b5f67736574";

fn bytes(hex: &str) -> Bytes {
    hex::decode(hex).unwrap().into()
}

fn answer_in(bytes: Bytes) -> Result<QueueAnswer, RiakFormError> {
    QueueAnswer::decode(bytes, INFLATED_BYTES_MAX)
}

fn element_in(bytes: Bytes) -> Result<QueueElement, RiakFormError> {
    QueueElement::decode(bytes, INFLATED_BYTES_MAX)
}

fn element(hex: &str) -> QueueElement {
    match answer_in(bytes(hex)).unwrap() {
        QueueAnswer::Element(element) => element,
        QueueAnswer::Empty => panic!("it has an element"),
    }
}

fn object(element: &QueueElement) -> RiakObject {
    match &element.change {
        ReplicatedChange::Object(object) => object.clone(),
        ReplicatedChange::Reap { .. } => panic!("it is an object"),
    }
}

fn datatype(hex: &str) -> RiakDatatype {
    let object = object(&element(hex));
    let KvBody::Inline(body) = object.siblings[0].content.body.clone() else { panic!("it is inline") };
    assert!(RiakDatatype::is_one(&body));
    RiakDatatype::decode(body).unwrap()
}

/// An element of these bytes, with the right checksum.
fn checked(rest: &[u8]) -> Bytes {
    [&crc32fast::hash(rest).to_be_bytes()[..], rest].concat().into()
}

#[test]
fn golden_answers_are_written_as_riak_writes_them() {
    for golden in [SENCHA, TOMBSTONE] {
        let element = element(golden);
        assert_eq!(QueueElement::answer(&element.key, &object(&element)), bytes(golden));
    }
}

#[test]
fn the_golden_object_has_all_its_metadata() {
    let element = element(SENCHA);
    assert_eq!(
        (&element.key.bucket_type[..], &element.key.bucket[..], &element.key.key[..]),
        (&b""[..], &b"teas"[..], &b"sencha"[..])
    );
    assert_eq!(element.tombstone, None);
    let object = object(&element);
    assert_eq!(object.clock.entries().len(), 1);
    assert_eq!((object.clock.entries()[0].count, object.clock.entries()[0].seconds), (1, 63_962_566_686));
    let [sibling] = &object.siblings[..] else { panic!("one sibling") };
    assert_eq!(sibling.modified, Timestamp(1_795_347_486_804_538));
    assert_eq!(&sibling.vtag[..], b"2irQWaSdISdEFDPgMyq6Bp");
    assert!(!sibling.deleted && !sibling.is_term && sibling.dot.is_none() && sibling.unknown.is_empty());
    let content = &sibling.content;
    let text = |bytes: &Option<Bytes>| String::from_utf8(bytes.clone().unwrap().to_vec()).unwrap();
    assert_eq!(text(&content.content_type), "text/plain");
    assert_eq!(text(&content.charset), "utf-8");
    assert_eq!(text(&content.encoding), "identity");
    assert_eq!(content.meta, [(Bytes::from("X-Riak-Meta-Farm"), Bytes::from("uji"))]);
    let terms: Vec<_> = content.terms.iter().map(|term| (&term.field[..], &term.value[..])).collect();
    assert_eq!(terms, [(&b"origin_bin"[..], &b"jp"[..]), (b"year_int", b"2026")]);
    let links: Vec<_> = content.links.iter().map(|link| (&link.bucket[..], &link.key[..], &link.tag[..])).collect();
    assert_eq!(links, [(&b"teas"[..], &b"matcha"[..], &b"kin"[..])]);
    assert_eq!(content.body, KvBody::Inline("green".into()));
}

#[test]
fn the_golden_tombstone_has_its_clock_twice_and_its_dot() {
    let element = element(TOMBSTONE);
    assert_eq!((&element.key.bucket_type[..], &element.key.key[..]), (&b"plain"[..], &b"k"[..]));
    let object = object(&element);
    assert_eq!(element.tombstone.as_ref(), Some(&object.clock));
    assert_eq!(object.clock.entries().len(), 3);
    assert!(object.is_tombstone());
    let dot = object.siblings[0].dot.clone().unwrap();
    assert_eq!((&dot.actor[..], dot.count), (&b"#\t\xfe\xf9\xe5\xbaC\x7f"[..], 1));
}

#[test]
fn the_golden_data_types_have_their_values() {
    let actor = Bytes::from_static(b"#\t\xfe\xf9\xe5\xbaC\xf0\0\0\0\x01");
    let counter = RiakPnCounter { actors: vec![(actor, 5, 0)] };
    assert_eq!((counter.value(), datatype(COUNTER)), (5, RiakDatatype::Counter(counter)));
    let actor = Bytes::from_static(b"#\t\xfe\xf9\xe5\xbaC\x7f\0\0\0\x02");
    let member = |member: &'static str, count| (Bytes::from(member), vec![(actor.clone(), count)]);
    let clock = vec![(actor.clone(), 2)];
    assert_eq!(datatype(SET), RiakDatatype::Set(RiakSet { clock, members: vec![member("b", 2), member("a", 1)] }));
    assert_eq!(datatype(GROW_ONLY_SET), RiakDatatype::GrowOnlySet(vec!["a".into()]));
    assert_eq!(datatype(HYPER_LOG_LOG), RiakDatatype::HyperLogLog { precision: 14, registers: vec![(0x21bd, 1)] });
}

#[test]
fn the_golden_map_has_its_fields_also_those_of_its_map() {
    let RiakDatatype::Map(map) = datatype(MAP) else { panic!("it is a map") };
    let mut fields: Vec<_> = map.fields.iter().map(|field| (&field.name[..], field.kind)).collect();
    fields.sort_by_key(|(name, _)| name.to_vec());
    let expected = [
        (&b"age"[..], RiakFieldKind::Counter),
        (b"in", RiakFieldKind::Map),
        (b"name", RiakFieldKind::Register),
        (b"on", RiakFieldKind::Flag),
        (b"tags", RiakFieldKind::Set),
    ];
    assert_eq!(fields, expected);
    let values = |map: &RiakMap, name: &str| {
        let field = map.fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!((&field.removed[..], field.values.len()), (&[][..], 1));
        field.values.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let register = |value: &'static str, time| vec![RiakDatatype::Register(RiakRegister { value: value.into(), time })];
    assert_eq!(values(&map, "name"), register("ann", 1795347496174695));
    let clock = map.clock.clone();
    assert!(matches!(&clock[..], [(_, 1)]), "one request is one write: {clock:?}");
    assert_eq!(values(&map, "on"), [RiakDatatype::Flag(RiakFlag { clock: clock.clone(), dots: clock.clone() })]);
    let actors = vec![(clock[0].0.clone(), 1, 2, 0)];
    assert_eq!(values(&map, "age"), [RiakDatatype::MapCounter(RiakMapCounter { clock, actors })]);
    assert!(matches!(&values(&map, "tags")[..], [RiakDatatype::Set(tags)] if tags.members[0].0 == "x"));
    let [RiakDatatype::Map(inner)] = &values(&map, "in")[..] else { panic!("one map") };
    assert!(matches!(&inner.fields[..], [RiakField { kind: RiakFieldKind::Register, .. }]));
}

#[test]
fn the_golden_values_are_states_with_a_row_for_each_write() {
    let places = |hex: &str| datatype(hex).into_state().unwrap().clock().len();
    assert_eq!([COUNTER, SET, MAP, GROW_ONLY_SET, HYPER_LOG_LOG].map(places), [1; 5]);
}

#[test]
fn a_counter_of_riak_1_4_has_its_sum() {
    let body = b"E\x01G\x01\0\0\0\x1eF\x01\x83l\0\0\0\x01h\x02m\0\0\0\x0c#\t\xfe\xf9\xe5\xbaDF\0\0\0\x1fa\x03j\0\0\0\x04F\x01\x83j";
    let RiakDatatype::Counter(counter) = RiakDatatype::decode(Bytes::from_static(body)).unwrap() else {
        panic!("it is a counter")
    };
    assert_eq!(counter.value(), 3);
}

#[test]
fn the_key_of_an_element_is_read_alone_when_its_object_is_not() {
    let key = |name: &'static str| ElementKey {
        bucket_type: Bytes::from_static(b"plain"),
        bucket: Bytes::from_static(b"b"),
        key: Bytes::from_static(name.as_bytes()),
    };
    assert_eq!(QueueAnswer::key_alone(bytes(TOMBSTONE)), Some(key("k")));
    let names = b"\x10\0\0\0\x05plain\0\0\0\x01b\0\0\0\x01v\x83h";
    let stored_v0: Bytes = [b"\x01\0", &checked(names)[..]].concat().into();
    assert!(answer_in(stored_v0.clone()).is_err());
    assert_eq!(QueueAnswer::key_alone(stored_v0.clone()), Some(key("v")));
    let mut damaged = stored_v0.to_vec();
    damaged[9] ^= 1;
    assert_eq!(QueueAnswer::key_alone(damaged.into()), None);
    assert_eq!(QueueAnswer::key_alone(bytes("00")), None);
}

#[test]
fn an_empty_queue_a_reap_and_a_compressed_object_decode() {
    assert_eq!(answer_in(bytes("00")), Ok(QueueAnswer::Empty));
    let names = b"\0\0\0\0\0\0\0\x01b\0\0\0\x01k";
    let reap = [&b"\x14"[..], names, &[0, 0, 7, 3, 0, 5, 0x4d, 0x5e, 0, 0, 0, 9], b"\x83j"].concat();
    let element = element_in(checked(&reap)).unwrap();
    let time = Timestamp(1_795_347_486_000_009);
    assert_eq!(element.change, ReplicatedChange::Reap { time, clock: VectorClock::default() });
    let object = b"\x35\x01\0\0\0\x02\x83j\0\0\0\0";
    let deflated = miniz_oxide::deflate::compress_to_vec_zlib(object, 6);
    let element = element_in(checked(&[&b"\x18"[..], names, &deflated].concat())).unwrap();
    let plain = RiakObject { clock: VectorClock::default(), siblings: Vec::new() };
    assert_eq!(element.change, ReplicatedChange::Object(plain));
}

#[test]
fn damaged_and_lying_elements_are_refused_by_what_is_wrong() {
    let mut damaged = bytes(SENCHA).to_vec();
    damaged[60] ^= 1;
    assert_eq!(answer_in(damaged.into()), Err(RiakFormError::Checksum));
    let cut = bytes(SENCHA).slice(..300);
    assert_eq!(answer_in(cut), Err(RiakFormError::Checksum));
    // A gibibyte of type, of siblings, of value.
    let names = b"\0\0\0\0\0\0\0\x01b\0\0\0\x01k";
    for (rest, error) in [
        (b"\x10\x40\0\0\0".to_vec(), RiakFormError::Truncated("type")),
        (
            [&b"\x10"[..], names, b"\x35\x01\0\0\0\x02\x83j\x40\0\0\0"].concat(),
            RiakFormError::TooLarge("number of siblings"),
        ),
        (
            [&b"\x10"[..], names, b"\x35\x01\0\0\0\x02\x83j\0\0\0\x01\x40\0\0\0"].concat(),
            RiakFormError::Truncated("value"),
        ),
        (
            [&b"\x10"[..], names, b"\x83"].concat(),
            RiakFormError::Invalid("form v0 (a cluster that was upgraded from Riak 1.x)"),
        ),
        ([&b"\x20"[..], names].concat(), RiakFormError::Invalid("version of an element")),
    ] {
        assert_eq!(element_in(checked(&rest)), Err(error));
    }
    let bomb = miniz_oxide::deflate::compress_to_vec_zlib(&vec![0; 65 << 20], 1);
    let rest = [&b"\x18"[..], names, &bomb].concat();
    assert_eq!(element_in(checked(&rest)), Err(RiakFormError::TooLarge("inflated form")));
}

proptest! {
    #[test]
    fn random_answers_never_panic(answer: Vec<u8>) {
        let _ = answer_in(answer.clone().into());
        let _ = element_in(checked(&answer));
        let _ = RiakObject::decode([b"\x35\x01", &answer[..]].concat().into());
        let _ = RiakDatatype::decode([b"\x45\x02", &answer[..]].concat().into());
    }

    #[test]
    fn golden_answers_with_one_changed_byte_never_panic(which in 0..7_usize, at: usize, byte: u8) {
        let golden = [SENCHA, TOMBSTONE, COUNTER, SET, MAP, HYPER_LOG_LOG, GROW_ONLY_SET][which];
        let mut changed = bytes(golden).to_vec();
        let at = at % changed.len();
        changed[at] = byte;
        let _ = answer_in(changed.clone().into());
        // Behind the checksum, too.
        let rest = changed.get(6..).unwrap_or_default();
        let Ok(QueueElement { change: ReplicatedChange::Object(object), .. }) = element_in(checked(rest)) else {
            return Ok(());
        };
        for sibling in object.siblings {
            if let KvBody::Inline(body) = sibling.content.body {
                let state = RiakDatatype::decode(body).ok().and_then(|value| value.into_state().ok());
                let _ = state.map(|state| state.check(Timestamp(1_800_000_000_000_000)));
            }
        }
    }
}
