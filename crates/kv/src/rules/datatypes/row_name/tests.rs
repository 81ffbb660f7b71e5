use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(prop_oneof![Just(0_u8), Just(1), Just(0x80), Just(0xff), any::<u8>()], 0..6).prop_map(Bytes::from)
}

fn path() -> impl Strategy<Value = DatatypePath> {
    vec((bytes(), 0..5_usize), 0..3).prop_map(|steps| {
        steps
            .into_iter()
            .fold(DatatypePath::root(), |path, (name, at)| path.child(&FieldName::new(name, EmbeddedType::ALL[at])))
    })
}

fn leaf() -> impl Strategy<Value = DatatypeLeaf> {
    let actor = || any::<u64>().prop_map(ActorId);
    prop_oneof![
        actor().prop_map(DatatypeLeaf::Presence),
        (bytes(), actor()).prop_map(|(element, actor)| DatatypeLeaf::Element(element, actor)),
        actor().prop_map(DatatypeLeaf::Register),
        actor().prop_map(DatatypeLeaf::Flag),
        (actor(), any::<u64>())
            .prop_map(|(actor, birth)| DatatypeLeaf::Counter(CounterSource { actor, birth: Timestamp(birth) })),
        actor().prop_map(DatatypeLeaf::Resets),
        bytes().prop_map(DatatypeLeaf::Request),
        (any::<u8>(), any::<u8>(), actor()).prop_map(|(form, chunk, actor)| DatatypeLeaf::Chunk(
            HllForm(form),
            chunk,
            actor
        )),
    ]
}

proptest! {
    #[test]
    fn row_names_decode_to_themselves(path in path(), leaf in leaf(), actor: u64) {
        for name in [
            DatatypeRowName::Data(path.clone(), leaf),
            DatatypeRowName::Marker(path.clone(), ActorId(actor)),
            DatatypeRowName::Clock(ActorId(actor)),
            DatatypeRowName::Import,
        ] {
            prop_assert_eq!(DatatypeRowName::decode(&name.encode()), Ok(name));
        }
        prop_assert!(path.fields().is_ok());
    }

    #[test]
    fn rows_of_a_field_are_below_its_prefix_and_no_others(a in path(), b in path(), leaf in leaf()) {
        let name = DatatypeRowName::Data(b.clone(), leaf).encode();
        let is_below = a.fields().unwrap().iter().zip(b.fields().unwrap()).filter(|(a, b)| *a == b).count()
            == a.fields().unwrap().len();
        prop_assert_eq!(a.contains(&b), is_below);
        if is_below {
            prop_assert!(name.starts_with(&a.prefix()));
        }
    }

    #[test]
    fn elements_sort_as_their_bytes(a in bytes(), b in bytes(), a_actor: u64, b_actor: u64) {
        let name = |element: &Bytes, actor| {
            DatatypeRowName::Data(DatatypePath::root(), DatatypeLeaf::Element(element.clone(), ActorId(actor))).encode()
        };
        prop_assert_eq!((&a, a_actor).cmp(&(&b, b_actor)), name(&a, a_actor).cmp(&name(&b, b_actor)));
    }

    #[test]
    fn random_names_decode_or_fail_without_panic(name: Vec<u8>) {
        let _ = DatatypeRowName::decode(&name.into());
    }
}

/// The stored names, byte for byte: a change here is a change of format.
#[test]
fn the_golden_row_names_stay() {
    let actor = ActorId(7);
    let path = DatatypePath::root().child(&FieldName::new("a\0", EmbeddedType::Set));
    let golden: [(DatatypeRowName, &[u8]); 10] = [
        (DatatypeRowName::Clock(actor), b"\0\0\0\0\0\0\0\0\x07"),
        (DatatypeRowName::Marker(path.clone(), actor), b"\x01\x80a\0\xff\0\x01\x05\0\0\0\0\0\0\0\0\x07"),
        (
            DatatypeRowName::Data(path.clone(), DatatypeLeaf::Presence(actor)),
            b"\x02\x80a\0\xff\0\x01\x05\x01\0\0\0\0\0\0\0\x07",
        ),
        (
            DatatypeRowName::Data(path, DatatypeLeaf::Element("e".into(), actor)),
            b"\x02\x80a\0\xff\0\x01\x05\x02e\0\x01\0\0\0\0\0\0\0\x07",
        ),
        (root(DatatypeLeaf::Register(actor)), b"\x02\x03\0\0\0\0\0\0\0\x07"),
        (root(DatatypeLeaf::Flag(actor)), b"\x02\x04\0\0\0\0\0\0\0\x07"),
        (
            root(DatatypeLeaf::Counter(CounterSource { actor, birth: Timestamp(9) })),
            b"\x02\x05\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09",
        ),
        (root(DatatypeLeaf::Resets(actor)), b"\x02\x06\0\0\0\0\0\0\0\x07"),
        (root(DatatypeLeaf::Request("id".into())), b"\x02\x07id"),
        (root(DatatypeLeaf::Chunk(HllForm(14), 63, actor)), b"\x02\x09\x0e\x3f\0\0\0\0\0\0\0\x07"),
    ];
    for (name, bytes) in golden {
        assert_eq!(name.encode(), bytes, "{name:?}");
    }
}

fn root(leaf: DatatypeLeaf) -> DatatypeRowName {
    DatatypeRowName::Data(DatatypePath::root(), leaf)
}
