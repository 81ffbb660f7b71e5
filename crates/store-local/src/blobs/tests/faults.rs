//! Blobs on a disk that is full or whose syncs fail.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::blobs::disk::faulty::FaultyDisk;

/// A fixture whose disk takes `room` bytes and fails the sync after `syncs` successful ones.
fn faulty(room: u64, syncs: u64) -> (BlobFixture, Arc<FaultyDisk>) {
    let disk = Arc::new(FaultyDisk { room: AtomicU64::new(room), syncs: AtomicU64::new(u64::MAX) });
    let f = fixture_on(SMALL, Box::new(disk.clone()));
    disk.syncs.store(syncs, Ordering::SeqCst);
    (f, disk)
}

async fn write_and_finish(f: &BlobFixture, length: usize, durability: Durability) -> Result<()> {
    let mut writer = f.blobs.create(id(1), owner("row")).await?;
    let mut rest = body(length);
    while !rest.is_empty() {
        if let Err(error) = writer.write(rest.split_to(rest.len().min(10))).await {
            assert_eq!(kind(writer.write(body(1)).await), error.kind, "a failed writer keeps failing");
            assert_eq!(kind(writer.finish(durability).await), error.kind);
            return Err(error);
        }
    }
    writer.finish(durability).await.map(drop)
}

#[tokio::test]
async fn a_disk_that_fills_up_at_any_byte_answers_full_and_keeps_no_file() {
    let (f, disk) = faulty(u64::MAX, 10);
    write_and_finish(&f, 100, Durability::Disk).await.unwrap();
    let needed = std::fs::metadata(f.path(id(1))).unwrap().len();
    f.blobs.remove(id(1)).await.unwrap();
    for room in 0..needed {
        disk.room.store(room, Ordering::SeqCst);
        assert_eq!(kind(write_and_finish(&f, 100, Durability::Disk).await), Kind::Full, "room for {room}");
        f.assert_nothing_left(id(1)).await;
        assert!(!f.blobs.is_poisoned(), "a full disk can be emptied");
    }
    disk.room.store(needed, Ordering::SeqCst);
    write_and_finish(&f, 100, Durability::Disk).await.unwrap();
}

#[tokio::test]
async fn a_failed_sync_of_a_file_or_folder_keeps_no_file_and_poisons() {
    for syncs in [0, 1] {
        let (f, _) = faulty(u64::MAX, syncs);
        write_and_finish(&f, 10, Durability::Disk).await.unwrap();
        f.blobs.remove(id(1)).await.unwrap();
        assert_eq!(kind(write_and_finish(&f, 100, Durability::Disk).await), Kind::Io, "sync {syncs}");
        f.assert_nothing_left(id(1)).await;
        assert!(f.blobs.is_poisoned() && !f.blobs.is_ready());
        assert_eq!(kind(f.blobs.create(id(2), owner("row")).await), Kind::Poisoned);
        assert_eq!(kind(f.blobs.remove(id(2)).await), Kind::Poisoned);
    }
}

#[tokio::test]
async fn poisoning_stops_writers_in_flight() {
    let (f, _) = faulty(u64::MAX, 0);
    let mut under_way = f.blobs.create(id(2), owner("row")).await.unwrap();
    under_way.write(body(100)).await.unwrap();
    assert_eq!(kind(write_and_finish(&f, 100, Durability::Disk).await), Kind::Io);
    assert_eq!(kind(under_way.write(body(1)).await), Kind::Poisoned);
    assert_eq!(kind(under_way.finish(Durability::Buffered).await), Kind::Poisoned);
    f.assert_nothing_left(id(2)).await;
}

#[tokio::test]
async fn a_file_and_its_folder_are_synced_even_for_a_buffered_write() {
    let (f, disk) = faulty(u64::MAX, u64::MAX);
    write_and_finish(&f, 100, Durability::Buffered).await.unwrap();
    assert_eq!(disk.syncs.load(Ordering::SeqCst), u64::MAX - 2, "the file and its folder");
    assert_eq!(f.get(id(1)).await.unwrap(), body(100));
}
