//! Blobs as their callers see them: small blocks for edge cases, real ones for sizes.

mod faults;
mod golden;
mod memory_bulk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::disk_space::testing::{FakeDisk, space_on};
use larder_store::{Durability, Kind, Partition, Table};
use memory_bulk::MemoryBulk;

/// Rows up to 16 bytes, blocks of 8.
const SMALL: BlobSizes = BlobSizes { row_max: 16, block: 8 };
const REAL: BlobSizes = BlobSizes { row_max: BULK_MAX, block: BLOCK_BYTES };

struct BlobFixture {
    dir: tempfile::TempDir,
    bulk: Arc<MemoryBulk>,
    blobs: LocalBlobs,
}

fn fixture(sizes: BlobSizes) -> BlobFixture {
    fixture_on(sizes, Box::new(SystemDisk))
}

fn fixture_on(sizes: BlobSizes, disk: Box<dyn BlobDisk>) -> BlobFixture {
    let dir = tempfile::tempdir().unwrap();
    let bulk = Arc::new(MemoryBulk::default());
    let blobs = LocalBlobs::open_sized(dir.path(), bulk.clone(), endless(), sizes, disk).unwrap();
    BlobFixture { dir, bulk, blobs }
}

/// A disk that never fills up.
fn endless() -> Arc<DiskSpace> {
    space_on(&FakeDisk::with_bytes(1 << 60), Arc::new(larder_store::SystemClock::default()))
}

fn id(number: u8) -> BlobId {
    BlobId([number; 24])
}

/// The list entry of a blob without a lease.
fn free(number: u8) -> ListedBlob {
    ListedBlob { id: id(number), owner: owner("row"), leased: false }
}

fn owner(row: &'static str) -> BlobOwner {
    let partition = Partition::new(Table::Objects, Bytes::from_static(b"bucket/key"));
    BlobOwner { partition, row: Bytes::from_static(row.as_bytes()) }
}

/// Bytes in which every block differs from every other.
fn body(length: usize) -> Bytes {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl BlobFixture {
    async fn put(&self, id: BlobId, chunks: impl IntoIterator<Item = Bytes>) -> Box<dyn Send + Sync> {
        let mut writer = self.blobs.create(id, owner("row")).await.unwrap();
        for chunk in chunks {
            writer.write(chunk).await.unwrap();
        }
        writer.finish(Durability::Disk).await.unwrap()
    }

    async fn get(&self, id: BlobId) -> Result<Bytes> {
        let mut reader = self.blobs.open(id).await?;
        let length = reader.length();
        let bytes = range(reader.as_mut(), 0, usize::MAX).await?;
        assert_eq!(bytes.len() as u64, length);
        Ok(bytes)
    }

    fn path(&self, id: BlobId) -> std::path::PathBuf {
        let hex = id.hex();
        self.dir.path().join("blobs").join(&hex[..2]).join(&hex)
    }

    fn temporary(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("blobs/tmp")).unwrap().count()
    }

    /// A background task creates and removes temporary files: one may appear after a check that found none.
    async fn assert_nothing_left(&self, id: BlobId) {
        let mut empty_checks = 0;
        for _ in 0..500 {
            empty_checks = if self.temporary() == 0 { empty_checks + 1 } else { 0 };
            if empty_checks == 3 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(empty_checks, 3, "a temporary file stays");
        assert_eq!(kind(self.get(id).await), Kind::NoSuchBlob);
        assert!(self.blobs.list(None, 10).await.unwrap().is_empty());
    }

    async fn listed(&self, after: Option<BlobId>, limit: usize) -> Vec<u8> {
        let listed = self.blobs.list(after, limit).await.unwrap();
        listed.into_iter().map(|blob| blob.id.0[0]).collect()
    }
}

fn kind<T>(answer: Result<T>) -> Kind {
    answer.err().expect("an error").kind
}

async fn range(reader: &mut dyn BlobReader, mut offset: u64, mut length: usize) -> Result<Bytes> {
    let mut all = Vec::new();
    while length > 0 {
        let piece = reader.read(offset, length).await?;
        if piece.is_empty() {
            break;
        }
        assert!(piece.len() <= length);
        offset += piece.len() as u64;
        length -= piece.len();
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}

#[tokio::test]
async fn blobs_conform_as_rows_and_as_files() {
    for sizes in [REAL, BlobSizes { row_max: 0, block: 4096 }] {
        larder_testkit::conformance::blob_conformance(Arc::new(fixture(sizes).blobs)).await;
    }
}

#[tokio::test]
async fn bodies_are_read_whole_and_in_ranges_around_every_edge() {
    const K256: usize = BLOCK_BYTES as usize;
    let sizes = [0, 1, K256 - 1, K256, K256 + 1, BULK_MAX - 1, BULK_MAX, BULK_MAX + 1, 3 * BULK_MAX, 3 * BULK_MAX + 7];
    let f = fixture(REAL);
    for (number, size) in sizes.into_iter().enumerate() {
        let (id, bytes) = (id(number as u8), body(size));
        drop(f.put(id, [bytes.clone()]).await);
        assert_eq!(f.path(id).exists(), size > BULK_MAX, "{size}");
        assert_eq!(f.get(id).await.unwrap(), bytes, "{size}");
        let mut reader = f.blobs.open(id).await.unwrap();
        assert_eq!(reader.length(), size as u64);
        for edge in [0, K256, 2 * K256, BULK_MAX, size] {
            let (from, to) = (edge.saturating_sub(3).min(size), (edge + 3).min(size));
            let piece = range(reader.as_mut(), from as u64, to - from).await.unwrap();
            assert_eq!(piece, bytes[from..to], "{from}..{to} of {size}");
        }
        assert!(reader.read(size as u64, 10).await.unwrap().is_empty());
        assert!(reader.read(u64::MAX, usize::MAX).await.unwrap().is_empty());
        assert!(reader.read(0, 0).await.unwrap().is_empty());
    }
    assert_eq!(f.temporary(), 0);
}

#[tokio::test]
async fn every_flipped_bit_of_a_file_is_damage_and_never_wrong_bytes() {
    let f = fixture(SMALL);
    let bytes = body(37);
    drop(f.put(id(1), [bytes.clone()]).await);
    let stored = std::fs::read(f.path(id(1))).unwrap();
    for at in 0..stored.len() * 8 {
        let mut flipped = stored.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        std::fs::write(f.path(id(1)), flipped).unwrap();
        assert_eq!(kind(f.get(id(1)).await), Kind::Damaged, "bit {at}");
    }
    std::fs::write(f.path(id(1)), stored).unwrap();
    assert_eq!(f.get(id(1)).await.unwrap(), bytes);
}

#[tokio::test]
async fn damage_in_one_block_leaves_the_others_readable() {
    let f = fixture(SMALL);
    let bytes = body(40);
    drop(f.put(id(1), [bytes.clone()]).await);
    let mut stored = std::fs::read(f.path(id(1))).unwrap();
    let at = stored.len() - format::FOOT_BYTES - 3 * 12;
    stored[at] ^= 1;
    std::fs::write(f.path(id(1)), stored).unwrap();
    let mut reader = f.blobs.open(id(1)).await.unwrap();
    assert_eq!(range(reader.as_mut(), 24, 16).await.unwrap(), bytes[24..]);
    assert_eq!(kind(reader.read(16, 1).await), Kind::Damaged);
    assert_eq!(reader.read(8, 8).await.unwrap(), bytes[8..16]);
}

#[tokio::test]
async fn bytes_that_wait_for_a_slow_client_are_not_overwritten_by_the_next_blocks() {
    let f = fixture(SMALL);
    let bytes = body(8 * 40);
    drop(f.put(id(1), [bytes.clone()]).await);
    let mut reader = f.blobs.open(id(1)).await.unwrap();
    let mut held: std::collections::VecDeque<(u64, Bytes)> = std::collections::VecDeque::new();
    for block in 0..40 {
        held.push_back((8 * block, reader.read(8 * block, 8).await.unwrap()));
        // Pieces are sent in order, and up to five wait.
        if held.len() > (block % 6) as usize {
            held.pop_front();
        }
        for (offset, piece) in &held {
            assert_eq!(*piece, bytes[*offset as usize..][..8], "block {block}, the piece at {offset}");
        }
    }
    drop(reader);
    assert!(held.iter().all(|(offset, piece)| *piece == bytes[*offset as usize..][..8]), "after the end of the reader");
}

#[tokio::test]
async fn a_download_from_memory_lets_other_requests_of_its_thread_run() {
    let f = fixture(SMALL);
    drop(f.put(id(1), [body(8 * 40)]).await);
    let mut reader = f.blobs.open(id(1)).await.unwrap();
    let others = Arc::new(AtomicU64::new(0));
    let counted = others.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    });
    for block in 0..40 {
        reader.read(8 * block, 8).await.unwrap();
    }
    other.abort();
    assert!(others.load(Ordering::SeqCst) >= 5, "the reader kept the thread for itself");
}

#[tokio::test]
async fn a_block_of_which_a_part_is_in_memory_is_read_to_its_end_and_checked() {
    let f = fixture(SMALL);
    let bytes = body(40);
    drop(f.put(id(1), [bytes.clone()]).await);
    let file = std::fs::File::open(f.path(id(1))).unwrap();
    let (_, layout) = reader::read_layout(&file, id(1)).unwrap();
    let stored = [&bytes[8..16], &[0; 4]].concat();
    for read in 0..8 {
        let mut buffer = bytes::BytesMut::zeroed(12);
        buffer[..read].copy_from_slice(&stored[..read]);
        assert_eq!(reader::read_block(&file, &layout, 1, buffer, read).unwrap()[..8], bytes[8..16], "{read}");
        let mut wrong = bytes::BytesMut::zeroed(12);
        wrong[..read].copy_from_slice(&stored[..read]);
        wrong[0] ^= u8::from(read > 0);
        let read_wrong = reader::read_block(&file, &layout, 1, wrong, read);
        assert_eq!(read_wrong.is_ok(), read == 0, "{read}");
    }
}

#[tokio::test]
async fn a_file_that_shrinks_or_changes_under_a_reader_is_damage() {
    let f = fixture(SMALL);
    let bytes = body(40);
    drop(f.put(id(1), [bytes.clone()]).await);
    let mut reader = f.blobs.open(id(1)).await.unwrap();
    assert_eq!(reader.read(0, 8).await.unwrap(), bytes[..8]);
    let file = std::fs::OpenOptions::new().write(true).open(f.path(id(1))).unwrap();
    let length = file.metadata().unwrap().len();
    let second = length - (format::FOOT_BYTES + 4 * 12) as u64;
    std::os::unix::fs::FileExt::write_all_at(&file, &[bytes[8] ^ 1], second).unwrap();
    assert_eq!(kind(reader.read(8, 8).await), Kind::Damaged, "changed after the open");
    file.set_len(second + 12 + 5).unwrap();
    assert_eq!(kind(reader.read(16, 8).await), Kind::Damaged, "cut off within the block");
    assert_eq!(kind(reader.read(32, 8).await), Kind::Damaged, "cut off before the block");
}

#[tokio::test]
async fn blocks_in_another_order_or_of_another_blob_are_damage() {
    let f = fixture(SMALL);
    for number in [1, 2] {
        drop(f.put(id(number), [body(40)]).await);
    }
    let (file, other_file) = (std::fs::read(f.path(id(1))).unwrap(), std::fs::read(f.path(id(2))).unwrap());
    let first = file.len() - format::FOOT_BYTES - 5 * 12;
    let mut swapped = file.clone();
    swapped[first..first + 24].rotate_left(12);
    let mut foreign = file.clone();
    foreign[first..first + 12].copy_from_slice(&other_file[first..first + 12]);
    for bytes in [swapped, foreign, other_file] {
        std::fs::write(f.path(id(1)), bytes).unwrap();
        assert_eq!(kind(f.get(id(1)).await), Kind::Damaged);
    }
}

#[tokio::test]
async fn a_file_cut_off_anywhere_or_too_long_is_damage() {
    let f = fixture(SMALL);
    drop(f.put(id(1), [body(37)]).await);
    let stored = std::fs::read(f.path(id(1))).unwrap();
    for length in 0..stored.len() {
        std::fs::write(f.path(id(1)), &stored[..length]).unwrap();
        assert_eq!(kind(f.blobs.open(id(1)).await), Kind::Damaged, "{length}");
    }
    let long = [stored.as_slice(), &[0]].concat();
    std::fs::write(f.path(id(1)), long).unwrap();
    assert_eq!(kind(f.blobs.open(id(1)).await), Kind::Damaged);
}

#[tokio::test]
async fn every_flipped_bit_of_a_row_is_damage() {
    let f = fixture(SMALL);
    drop(f.put(id(1), [body(16)]).await);
    let stored = f.bulk.get(&id(1).0).await.unwrap().unwrap();
    for at in 0..stored.len() * 8 {
        let mut flipped = stored.to_vec();
        flipped[at / 8] ^= 1 << (at % 8);
        f.bulk.put(Bytes::copy_from_slice(&id(1).0), flipped.into()).await.unwrap();
        assert_eq!(kind(f.blobs.open(id(1)).await), Kind::Damaged, "bit {at}");
    }
    for length in 0..stored.len() {
        f.bulk.put(Bytes::copy_from_slice(&id(1).0), stored.slice(..length)).await.unwrap();
        assert_eq!(kind(f.blobs.open(id(1)).await), Kind::Damaged, "{length} bytes");
    }
    f.bulk.put(Bytes::copy_from_slice(&id(2).0), stored).await.unwrap();
    assert_eq!(kind(f.blobs.open(id(2)).await), Kind::Damaged, "a row under another key");
}

#[tokio::test]
async fn an_abandoned_writer_leaves_nothing() {
    let f = fixture(SMALL);
    for length in [0, 1, 16, 17, 200] {
        let mut writer = f.blobs.create(id(1), owner("row")).await.unwrap();
        writer.write(body(length)).await.unwrap();
        drop(writer);
        f.assert_nothing_left(id(1)).await;
    }
}

#[tokio::test]
async fn a_writer_with_a_dropped_write_cannot_finish() {
    let f = fixture(SMALL);
    let mut writer = f.blobs.create(id(1), owner("row")).await.unwrap();
    {
        let write = writer.write(body(1000));
        let mut write = std::pin::pin!(write);
        let waker = std::task::Waker::noop();
        assert!(write.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    }
    assert_eq!(kind(writer.write(body(1)).await), Kind::Misuse);
    assert_eq!(kind(writer.finish(Durability::Disk).await), Kind::Misuse);
    f.assert_nothing_left(id(1)).await;
}

#[tokio::test]
async fn an_open_removes_the_unfinished_files_of_a_dead_process_and_no_others() {
    let f = fixture(SMALL);
    drop(f.put(id(1), [body(50)]).await);
    let tmp = f.dir.path().join("blobs/tmp");
    std::fs::write(tmp.join(format!("{}-0", id(2).hex())), "half").unwrap();
    std::fs::write(tmp.join("notes.txt"), "not ours").unwrap();
    let again = LocalBlobs::open_sized(f.dir.path(), f.bulk.clone(), endless(), SMALL, Box::new(SystemDisk)).unwrap();
    assert_eq!(f.temporary(), 1);
    assert!(tmp.join("notes.txt").exists());
    assert_eq!(again.open(id(1)).await.unwrap().length(), 50);
}

#[tokio::test]
async fn a_reader_survives_a_removal_and_a_second_removal_is_no_error() {
    let f = fixture(SMALL);
    for (number, length) in [(1, 16), (2, 100)] {
        let bytes = body(length);
        drop(f.put(id(number), [bytes.clone()]).await);
        let mut reader = f.blobs.open(id(number)).await.unwrap();
        f.blobs.remove(id(number)).await.unwrap();
        assert_eq!(range(reader.as_mut(), 0, usize::MAX).await.unwrap(), bytes);
        assert_eq!(kind(f.blobs.open(id(number)).await), Kind::NoSuchBlob);
        f.blobs.remove(id(number)).await.unwrap();
    }
}

#[tokio::test]
async fn the_last_of_two_bodies_is_read_and_a_removal_takes_both() {
    let f = fixture(SMALL);
    for lengths in [[100, 5], [5, 100], [5, 6], [100, 90]] {
        for length in lengths {
            drop(f.put(id(1), [body(length)]).await);
            assert_eq!(f.get(id(1)).await.unwrap(), body(length));
            assert_eq!(f.listed(None, 10).await, [1]);
        }
        f.blobs.remove(id(1)).await.unwrap();
        f.assert_nothing_left(id(1)).await;
    }
}

#[tokio::test]
async fn a_blob_is_listed_as_leased_until_its_last_lease_is_dropped() {
    let f = fixture(SMALL);
    for length in [3, 100] {
        let mut writer = f.blobs.create(id(1), owner("row")).await.unwrap();
        let other = f.blobs.create(id(1), owner("row")).await.unwrap();
        writer.write(body(length)).await.unwrap();
        let lease = writer.finish(Durability::Buffered).await.unwrap();
        let leased = [ListedBlob { leased: true, ..free(1) }];
        assert_eq!(f.blobs.list(None, 10).await.unwrap(), leased);
        drop(other);
        assert_eq!(f.blobs.list(None, 10).await.unwrap(), leased);
        drop(lease);
        assert_eq!(f.blobs.list(None, 10).await.unwrap(), [free(1)]);
        f.blobs.remove(id(1)).await.unwrap();
    }
}

#[tokio::test]
async fn listing_merges_rows_and_files_in_order_and_fills_pages_past_damaged_blobs() {
    let f = fixture(SMALL);
    for number in (0..40).rev() {
        drop(f.put(id(number), [body(if number % 3 == 0 { 100 } else { 5 })]).await);
    }
    std::fs::write(f.path(id(6)), "LRDB damaged").unwrap();
    f.bulk.put(Bytes::copy_from_slice(&id(7).0), Bytes::from_static(b"\x01damaged")).await.unwrap();
    f.bulk.put(Bytes::from_static(b"\x08 no id"), Bytes::from_static(b"\x01")).await.unwrap();
    std::fs::write(f.path(id(6)).with_file_name("stranger"), "").unwrap();
    let expected: Vec<u8> = (0..40).filter(|number| ![6, 7].contains(number)).collect();
    assert_eq!(f.listed(None, usize::MAX).await, expected);
    for limit in [1, 2, 5, 17] {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = f.listed(after, limit).await;
            let Some(&last) = page.last() else { break };
            assert!(page.len() == limit || all.len() + page.len() == expected.len());
            after = Some(id(last));
            all.extend(page);
        }
        assert_eq!(all, expected, "pages of {limit}");
    }
    assert!(f.listed(None, 0).await.is_empty());
}

/// Chunks to write, and offsets and lengths to read.
type Script = (Vec<usize>, Vec<(u64, usize)>);

fn scripts() -> impl Strategy<Value = Script> {
    (prop::collection::vec(0_usize..60, 0..12), prop::collection::vec((0_u64..400, 0_usize..80), 0..20))
}

async fn run_script(f: &BlobFixture, (chunks, reads): Script) {
    let bytes = body(chunks.iter().sum());
    let mut rest = bytes.clone();
    drop(f.put(id(9), chunks.iter().map(|&length| rest.split_to(length))).await);
    assert_eq!(f.get(id(9)).await.unwrap(), bytes);
    let mut reader = f.blobs.open(id(9)).await.unwrap();
    for (offset, length) in reads {
        let from = (offset as usize).min(bytes.len());
        let to = (from + length).min(bytes.len());
        assert_eq!(range(reader.as_mut(), offset, length).await.unwrap(), bytes[from..to]);
    }
    f.blobs.remove(id(9)).await.unwrap();
}

#[test]
fn any_chunks_and_any_reads_agree() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (row_max, block) in [(0, 1), (0, 7), (5, 3), (16, 8), (40, 19), (100, 64)] {
        let f = fixture(BlobSizes { row_max, block });
        let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
        let run = runner.run(&scripts(), |script| {
            runtime.block_on(run_script(&f, script));
            Ok(())
        });
        run.unwrap();
    }
}
