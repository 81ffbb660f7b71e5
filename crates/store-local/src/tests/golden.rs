//! Encoded bytes that must not change, see `docs/format.md`.

use bytes::Bytes;
use larder_store::Timestamp;
use larder_store::{Partition, Row, Table};

use crate::entry;
use crate::journal::{FrameBuffer, JournalHeader, WriteGroup, decode_synced, encode_synced};
use crate::tree_id::TreeId;

const GOLDEN: &str = include_str!("../../tests/golden/v2/entries.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rows() -> Vec<Row> {
    let row = |name: &'static [u8], value: &'static [u8], stamp, expires| Row {
        name: Bytes::from_static(name),
        value: Bytes::from_static(value),
        stamp,
        expires,
    };
    vec![
        row(b"", b"", Timestamp(1), None),
        row(b"a\0", b"\x01value", Timestamp(0x0005_1234_5678_9abc), Some(Timestamp(0x0006_0000_0000_0001))),
    ]
}

fn entries() -> Vec<(&'static str, Bytes)> {
    let long = Partition::new(Table::Objects, vec![0xff; 130]);
    let wide = Partition::new(Table::Keys, Bytes::from_static(b"\x04type\x06bucket\x00\x03"));
    let writes = vec![
        (TreeId::Wide, Bytes::from_static(b"key"), Some(Bytes::from_static(b"value"))),
        (TreeId::Bulk, Bytes::from_static(b"gone"), None),
    ];
    let mut frame = FrameBuffer::default();
    frame.encode(&WriteGroup { number: 0x0102, seqno: 0x0304, writes }, 0x0506, 0x0100);
    let frame: Vec<u8> = frame.pieces().flatten().copied().collect();
    vec![
        ("packed key", entry::partition_key(&long)),
        ("wide key", entry::row_key(&wide, b"key\0\x01slot")),
        ("bulk key", entry::bulk_key(b"\x00\x01id")),
        ("packed entry, no rows", entry::encode_packed(&[])),
        ("packed entry", entry::encode_packed(&rows())),
        ("wide entry", entry::encode_wide(&rows()[1])),
        ("wide entry, no expiry", entry::encode_wide(&rows()[0])),
        ("journal header", JournalHeader { number: 7, first: 0x0102, chain: 0x0506 }.encode().into()),
        ("journal frame", frame.into()),
        ("side file", encode_synced(0x0102)),
    ]
}

#[test]
fn encoded_entries_equal_the_golden_ones() {
    let text: String = entries().iter().map(|(name, bytes)| format!("{name}: {}\n", hex(bytes))).collect();
    assert_eq!(text, GOLDEN, "the format changed: give it a new version instead");
}

#[test]
fn golden_entries_decode() {
    let golden = |name: &str| -> Bytes {
        let line = GOLDEN.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap();
        (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect()
    };
    assert_eq!(entry::decode_packed(golden("packed entry")).unwrap(), rows());
    assert_eq!(entry::decode_wide(rows()[1].name.clone(), golden("wide entry")).unwrap(), rows()[1]);
    assert_eq!(JournalHeader::decode(&golden("journal header")).unwrap().first, 0x0102);
    assert_eq!(decode_synced(golden("side file")).unwrap(), 0x0102);
    assert_eq!(entry::split_key(&golden("wide key")).unwrap().1, &b"key\0\x01slot"[..]);
    let mut newer = golden("packed entry").to_vec();
    newer[0] = 2;
    assert!(entry::decode_packed(newer.into()).is_err(), "a later version is never guessed at");
}
