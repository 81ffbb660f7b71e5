//! Promises about blobs.

use bytes::Bytes;
use larder_rows::content::BlobId;
use larder_store::{BlobReader, Durability, Kind};

use super::subject::BlobSubject;

/// A body whose period is no power of two.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Reads everything from `offset`, in pieces of at most `max` bytes.
async fn read_to_end(reader: &mut dyn BlobReader, mut offset: u64, max: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while offset < reader.length() {
        let piece = reader.read(offset, max).await.expect("a piece is read");
        assert!((1..=max).contains(&piece.len()), "a piece of {} bytes, at most {max} were asked for", piece.len());
        offset += piece.len() as u64;
        all.extend_from_slice(&piece);
    }
    all
}

async fn assert_holds(subject: &BlobSubject, id: BlobId, expected: &[u8]) {
    let mut reader = subject.blobs.open(id).await.expect("the blob is there");
    assert_eq!(reader.length(), expected.len() as u64);
    assert!(read_to_end(&mut *reader, 0, 64 * 1024).await == expected, "the blob has other bytes");
}

async fn assert_absent(subject: &BlobSubject, id: BlobId) {
    let kind = subject.blobs.open(id).await.map(|_| ()).map_err(|error| error.kind);
    assert_eq!(kind, Err(Kind::NoSuchBlob));
}

pub(super) async fn a_blob_comes_back_as_it_was_written(subject: BlobSubject) {
    let lengths = [1, 4096, 65_536, 65_537, 1 << 20, 3_000_001];
    for (which, length) in (0..).zip(lengths) {
        let body = body(length);
        let (front, back) = body.split_at(length / 3);
        drop(subject.write(which, &[front, b"", back]).await);
        assert_holds(&subject, subject.id(which), &body).await;
    }
    let mut writer = subject.blobs.create(subject.id(99), subject.owner(99)).await.expect("a blob begins");
    writer.write(Bytes::from_static(b"on disk")).await.expect("a piece is taken");
    drop(writer.finish(Durability::Disk).await.expect("a blob is finished"));
    assert_holds(&subject, subject.id(99), b"on disk").await;
}

pub(super) async fn an_empty_blob_is_a_blob(subject: BlobSubject) {
    drop(subject.write(0, &[]).await);
    let mut reader = subject.blobs.open(subject.id(0)).await.expect("the blob is there");
    assert_eq!(reader.length(), 0);
    assert_eq!(reader.read(0, 10).await.expect("the end is read"), "");
}

pub(super) async fn any_part_of_a_blob_can_be_read(subject: BlobSubject) {
    let body = body(200_000);
    drop(subject.write(0, &[&body]).await);
    let mut reader = subject.blobs.open(subject.id(0)).await.expect("the blob is there");
    for (offset, max) in
        [(0, 1), (1, 7), (65_535, 2), (65_536, 70_000), (131_071, 100_000), (199_999, 10), (3, 1 << 30)]
    {
        let piece = reader.read(offset, max).await.expect("a piece is read");
        let from = usize::try_from(offset).expect("a small offset");
        assert!(!piece.is_empty() && piece.len() <= max, "{} bytes at {offset}", piece.len());
        assert!(body[from..].starts_with(&piece), "other bytes at {offset}");
    }
    assert_eq!(reader.read(200_000, 10).await.expect("the end is read"), "");
    assert!(read_to_end(&mut *reader, 100_001, 999).await == body[100_001..]);
}

pub(super) async fn a_blob_is_not_there_before_it_is_finished(subject: BlobSubject) {
    let id = subject.id(0);
    let mut writer = subject.blobs.create(id, subject.owner(0)).await.expect("a blob begins");
    assert_absent(&subject, id).await;
    writer.write(Bytes::from(body(100_000))).await.expect("a piece is taken");
    assert_absent(&subject, id).await;
    drop(writer.finish(Durability::Buffered).await.expect("a blob is finished"));
    assert_holds(&subject, id, &body(100_000)).await;
}

pub(super) async fn nothing_remains_of_an_abandoned_blob(subject: BlobSubject) {
    let mut writer = subject.blobs.create(subject.id(0), subject.owner(0)).await.expect("a blob begins");
    writer.write(Bytes::from(body(100_000))).await.expect("a piece is taken");
    drop(writer);
    assert_absent(&subject, subject.id(0)).await;
    assert_eq!(subject.listed(10).await, []);
}

pub(super) async fn a_blob_may_be_written_again(subject: BlobSubject) {
    for _ in 0..2 {
        drop(subject.write(0, &[&body(100_000)]).await);
    }
    assert_holds(&subject, subject.id(0), &body(100_000)).await;
    let again = subject.blobs.create(subject.id(0), subject.owner(0)).await.expect("a blob begins");
    drop(again);
    assert_holds(&subject, subject.id(0), &body(100_000)).await;
    assert_eq!(subject.listed(10).await.len(), 1);
}

pub(super) async fn a_removed_blob_is_gone(subject: BlobSubject) {
    for which in 0..2 {
        drop(subject.write(which, &[&body(2_000)]).await);
    }
    subject.blobs.remove(subject.id(0)).await.expect("a blob is removed");
    assert_absent(&subject, subject.id(0)).await;
    assert_holds(&subject, subject.id(1), &body(2_000)).await;
    assert_eq!(subject.listed(10).await, [subject.blob(1, false)]);
}

pub(super) async fn removing_an_absent_blob_is_no_error(subject: BlobSubject) {
    for _ in 0..2 {
        subject.blobs.remove(subject.id(0)).await.expect("there is nothing to remove");
    }
}

pub(super) async fn a_reader_keeps_a_removed_blob(subject: BlobSubject) {
    let body = body(500_000);
    drop(subject.write(0, &[&body]).await);
    let mut reader = subject.blobs.open(subject.id(0)).await.expect("the blob is there");
    let piece = reader.read(0, 1000).await.expect("a piece is read");
    subject.blobs.remove(subject.id(0)).await.expect("a blob is removed");
    let tail = read_to_end(&mut *reader, piece.len() as u64, 10_000).await;
    assert!([&piece[..], &tail].concat() == body, "the reader lost its blob");
    drop(reader);
    assert_absent(&subject, subject.id(0)).await;
}

pub(super) async fn blobs_are_listed_in_order_with_their_owners(subject: BlobSubject) {
    let mut written = Vec::new();
    for which in 0..9 {
        drop(subject.write(which, &[&body(3_000)]).await);
        written.push(subject.blob(which, false));
    }
    written.sort_by_key(|blob| blob.id);
    for limit in [1, 4, 1000] {
        assert_eq!(subject.listed(limit).await, written, "pages of {limit}");
    }
}

pub(super) async fn a_blob_is_listed_as_leased_until_its_lease_is_dropped(subject: BlobSubject) {
    let lease = subject.write(0, &[&body(3_000)]).await;
    let writer = subject.blobs.create(subject.id(1), subject.owner(1)).await.expect("a blob begins");
    assert_eq!(subject.listed(10).await, [subject.blob(0, true)], "its row may yet be written");
    assert_holds(&subject, subject.id(0), &body(3_000)).await;
    drop((lease, writer));
    assert_eq!(subject.listed(10).await, [subject.blob(0, false)]);
}
