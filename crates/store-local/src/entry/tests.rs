use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn keys_survive_a_round_trip(partition in proptest::collection::vec(any::<u8>(), 0..300), name: Vec<u8>) {
        let partition = Partition::new(Table::Keys, partition);
        let key = row_key(&partition, &name);
        prop_assert_eq!(split_key(&key), Ok((partition, Bytes::from(name))));
    }

    #[test]
    fn rows_lie_between_their_partition_key_and_its_prefix_end(a: Vec<u8>, b: Vec<u8>, name: Vec<u8>) {
        let start = partition_key(&Partition::new(Table::Keys, a.clone()));
        let row = row_key(&Partition::new(Table::Keys, b.clone()), &name);
        prop_assert_eq!(row >= start && row < prefix_end(&start), a == b);
    }
}

fn row() -> impl Strategy<Value = Row> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    (bytes(), bytes(), any::<u64>(), any::<Option<u64>>()).prop_map(|(name, value, stamp, expires)| Row {
        name: name.into(),
        value: value.into(),
        stamp: Timestamp(stamp),
        expires: expires.map(Timestamp),
    })
}

proptest! {
    #[test]
    fn packed_entries_survive_a_round_trip(mut rows in proptest::collection::vec(row(), 0..8)) {
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows.dedup_by(|a, b| a.name == b.name);
        let entry = encode_packed(&rows);
        prop_assert_eq!(decode_single(entry.clone()), Ok(Some(rows.clone()).filter(|rows| rows.len() == 1).map(|mut rows| rows.remove(0))));
        prop_assert_eq!(decode_packed(entry), Ok(rows));
    }

    #[test]
    fn wide_entries_survive_a_round_trip(row in row()) {
        prop_assert_eq!(decode_wide(row.name.clone(), encode_wide(&row)), Ok(row));
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
        let _ = decode_packed(bytes.clone().into());
        // A single row that decodes is the same both ways.
        if let Ok(Some(row)) = decode_single(bytes.clone().into()) {
            prop_assert_eq!(decode_packed(bytes.clone().into()), Ok(vec![row]));
        }
        let _ = decode_wide(Bytes::new(), bytes.clone().into());
    }
}

#[test]
fn values_share_the_memory_of_the_entry() {
    let row = Row { name: "n".into(), value: vec![7; 1000].into(), stamp: Timestamp(1), expires: None };
    let entry = encode_packed(&[row]);
    let rows = decode_packed(entry.clone()).unwrap();
    assert!(entry.as_ptr_range().contains(&rows[0].value.as_ptr()));
}

fn named_row(name: &'static str, stamp: Timestamp, value: &'static str) -> Row {
    Row { name: name.into(), value: value.into(), stamp, expires: None }
}

fn after(changes: &[Change]) -> Vec<Row> {
    let mut rows = Vec::new();
    for change in changes {
        apply_change(&mut rows, change.clone());
    }
    rows
}

#[test]
fn the_newer_stamp_wins_and_then_the_greater_value() {
    let (old, new, greater) =
        (named_row("a", Timestamp(1), "z"), named_row("a", Timestamp(2), "b"), named_row("a", Timestamp(2), "c"));
    let mut orders = [old, new, greater.clone()].map(Change::Put).to_vec();
    for _ in 0..3 {
        orders.rotate_left(1);
        assert_eq!(after(&orders), vec![greater.clone()]);
    }
}

#[test]
fn a_removal_wins_a_tie_and_spares_newer_rows() {
    let put = Change::Put(named_row("a", Timestamp(5), "x"));
    assert!(after(&[put.clone(), Change::Remove { name: "a".into(), stamp: Timestamp(5) }]).is_empty());
    assert_eq!(after(&[put.clone(), Change::Remove { name: "a".into(), stamp: Timestamp(4) }]).len(), 1);
    assert!(after(&[put.clone(), Change::Clear { stamp: Timestamp(5) }]).is_empty());
    assert_eq!(after(&[put, Change::Clear { stamp: Timestamp(4) }]).len(), 1);
}
