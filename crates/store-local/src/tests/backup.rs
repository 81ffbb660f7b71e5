//! Backups while writers go on: the copies are opened and compared with what was answered before each began.

use std::path::PathBuf;
use std::sync::Mutex;

use larder_rows::content::BlobId;
use larder_store::{BlobOwner, Blobs as _};

use super::*;
use crate::backup::{BackupProgress, back_up, backups_in};
use crate::blobs::{BULK_MAX, LocalBlobs};

const WRITERS: u64 = 8;
const BACKUPS: u64 = 6;
/// The row that names a body.
const NAMING: u64 = 1_000;

fn numbered(number: u64) -> Row {
    let value = [&number.to_be_bytes()[..], &[b'x'; 700]].concat();
    Row { name: "row".into(), value: value.into(), stamp: Timestamp(number), expires: None }
}

/// The number in a row, or 0.
async fn number(store: &LocalStore, table: Table, key: u64) -> u64 {
    let page = store.read(&place(table, key), &ReadQuery::all(1), &call(Durability::Disk)).await.unwrap();
    page.rows.first().map_or(0, |row| u64::from_be_bytes(row.value[..8].try_into().unwrap()))
}

/// Writes rows in two trees at once, with growing numbers, until the writes end.
async fn write_pairs(store: LocalStore, key: u64, answered: Arc<Mutex<Vec<u64>>>, ended: Arc<AtomicU64>) {
    for next in 1.. {
        if ended.load(Ordering::SeqCst) != 0 {
            return;
        }
        let change = || vec![Change::Put(numbered(next))];
        let mut batch = Batch::single(place(Table::Objects, key), change());
        batch.add(place(Table::Keys, key), change());
        let durability = if next % 8 == 0 { Durability::Disk } else { Durability::Buffered };
        store.apply(batch, &call(durability)).await.unwrap();
        answered.lock().unwrap()[key as usize] = next;
    }
}

fn blob_id(number: u64) -> BlobId {
    let mut id = [0; 24];
    id[..8].copy_from_slice(&number.to_be_bytes());
    BlobId(id)
}

/// Replaces a body of a file, then its row, then removes the body before.
async fn replace_bodies(store: LocalStore, blobs: Arc<LocalBlobs>, ended: Arc<AtomicU64>) {
    for next in 1.. {
        if ended.load(Ordering::SeqCst) != 0 {
            return;
        }
        let owner = BlobOwner { partition: place(Table::Objects, NAMING), row: "row".into() };
        let mut writer = blobs.create(blob_id(next), owner).await.unwrap();
        writer.write(vec![7; BULK_MAX + 1].into()).await.unwrap();
        let _lease = writer.finish(Durability::Disk).await.unwrap();
        let named = Batch::single(place(Table::Objects, NAMING), vec![Change::Put(numbered(next))]);
        store.apply(named, &call(Durability::Disk)).await.unwrap();
        blobs.remove(blob_id(next - 1)).await.unwrap();
    }
}

fn opened(dir: PathBuf) -> (LocalStore, LocalBlobs) {
    let store = LocalStore::open(small(&dir)).unwrap();
    let blobs = LocalBlobs::open(&dir, store.bulk_rows(), store.disk_space()).unwrap();
    (store, blobs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_under_load_has_all_that_was_answered_and_no_half_of_a_write() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, blobs) = opened(dir.path().join("data"));
    let blobs = Arc::new(blobs);
    let (answered, ended) = (Arc::new(Mutex::new(vec![0; WRITERS as usize])), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for key in 0..WRITERS {
        tasks.spawn(write_pairs(store.clone(), key, answered.clone(), ended.clone()));
    }
    tasks.spawn(replace_bodies(store.clone(), blobs.clone(), ended.clone()));
    for round in 0..BACKUPS {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let before = answered.lock().unwrap().clone();
        let name = format!("2026-11-28T18-40-0{round}Z");
        let (data, into, shared) = (dir.path().join("data"), home.path().join(&name), blobs.clone());
        let progress = BackupProgress::default();
        let task = tokio::task::spawn_blocking(move || {
            back_up(&data, &shared, &into, &progress).map(|()| progress.files.into_inner())
        });
        assert!(task.await.unwrap().unwrap() > 5);
        // Files of the original that are replaced later must stay in the backup.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (copy, bodies) = opened(home.path().join(name));
        for (key, before) in before.into_iter().enumerate() {
            let packed = number(&copy, Table::Objects, key as u64).await;
            let wide = number(&copy, Table::Keys, key as u64).await;
            assert!(
                packed == wide && packed >= before,
                "backup {round}, key {key}: {packed} and {wide}, {before} answered"
            );
        }
        let body = number(&copy, Table::Objects, NAMING).await;
        assert!(body == 0 || bodies.open(blob_id(body)).await.is_ok(), "backup {round} lacks body {body}");
        copy.close().await.unwrap();
    }
    ended.store(1, Ordering::SeqCst);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(backups_in(home.path()).unwrap().len() as u64, BACKUPS);
    assert!(!dir.path().join("data/backup.partial").exists());
    store.close().await.unwrap();
}
