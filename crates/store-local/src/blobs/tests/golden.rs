//! The bytes on disk, computed with another CRC-32. A failure here means that stored blobs become unreadable: a change of
//! format needs a new version beside the old one.

use super::*;

const FILE: &str = concat!(
    "4c524442",
    "01",
    "00000039",
    "00000008",
    "abababababababababababababababababababababababab",
    "01",
    "0a6275636b65742f6b6579",
    "03726f77",
    "d3ed11cc",
    "7468652071756963",
    "83a0c2f4",
    "6b2062726f776e20",
    "0aa41012",
    "666f78",
    "d8337636",
    "0000000000000013",
    "ae779487",
    "4c524445",
);
const ROW: &str =
    concat!("01", "01", "0a6275636b65742f6b6579", "03726f77", "6afb29ea", "2ab01617", "74686520717569636b20666f78",);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[tokio::test]
async fn a_blob_file_has_these_bytes() {
    let f = fixture(SMALL);
    drop(f.put(id(0xab), [Bytes::from_static(b"the quick brown fox")]).await);
    assert_eq!(hex(&std::fs::read(f.path(id(0xab))).unwrap()), FILE);
}

#[tokio::test]
async fn these_bytes_are_a_blob_file_for_any_block_size() {
    let f = fixture(REAL);
    std::fs::write(f.path(id(0xab)), bytes(FILE)).unwrap();
    assert_eq!(f.get(id(0xab)).await.unwrap(), "the quick brown fox");
    assert_eq!(f.blobs.list(None, 9).await.unwrap(), [free(0xab)]);
}

#[tokio::test]
async fn a_bulk_row_has_these_bytes() {
    let f = fixture(SMALL);
    drop(f.put(id(0xab), [Bytes::from_static(b"the quick fox")]).await);
    assert_eq!(hex(&f.bulk.get(&id(0xab).0).await.unwrap().unwrap()), ROW);
}

#[tokio::test]
async fn these_bytes_are_a_bulk_row() {
    let f = fixture(REAL);
    f.bulk.put(Bytes::copy_from_slice(&id(0xab).0), bytes(ROW).into()).await.unwrap();
    assert_eq!(f.get(id(0xab)).await.unwrap(), "the quick fox");
    assert_eq!(f.blobs.list(None, 9).await.unwrap(), [free(0xab)]);
}
