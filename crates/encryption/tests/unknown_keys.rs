//! Values and bodies under a data key that a server does not know, or that look so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_store::memory::MemoryStore;
use larder_store::{Blobs, CallOptions, Result, Store, Table};
use larder_testkit::hooked::{Hooked, MakeCall, StoreCall, StoreHook};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::at_rest::{Disk, TEA, put, read_blob, write_blob};

/// How long the engine takes to read a data key.
const SLOW: Duration = Duration::from_secs(2);

/// An engine that counts its reads of data keys, and takes long for them.
struct SlowKeys {
    inner: Arc<MemoryStore>,
    reads: AtomicUsize,
}

impl SlowKeys {
    fn over(disk: &Disk) -> Arc<Self> {
        Arc::new(Self { inner: disk.engine.clone(), reads: AtomicUsize::new(0) })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl StoreHook for SlowKeys {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<'a, T: Send>(
        &'a self,
        call: StoreCall<'a>,
        options: CallOptions,
        make: MakeCall<'a, T>,
    ) -> Result<T> {
        if matches!(call, StoreCall::Read(partition) if partition.table == Table::DataKeys) {
            self.reads.fetch_add(1, Ordering::Relaxed);
            sleep(SLOW).await;
        }
        make(options).await
    }
}

fn looks_sealed() -> Vec<u8> {
    [&b"larder\xe5\x01"[..], &[7; 100]].concat()
}

async fn read_often(blobs: &Arc<dyn Blobs>) {
    let mut readers = JoinSet::new();
    for _ in 0..50 {
        let blobs = blobs.clone();
        readers.spawn(async move { assert_eq!(read_blob(&*blobs, 1).await, Ok(looks_sealed())) });
    }
    readers.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn each_read_of_a_clear_body_that_looks_sealed_read_all_data_keys() {
    let disk = Disk::new();
    write_blob(&*disk.engine, 1, &looks_sealed()).await;
    let engine = SlowKeys::over(&disk);
    let run = disk.start_over(Arc::new(Hooked(engine.clone())), &[1], true).await.unwrap().unwrap();
    let at_start = engine.reads();
    read_often(&run.blobs).await;
    read_often(&run.blobs).await;
    assert_eq!(engine.reads(), at_start + 1);
    sleep(Duration::from_secs(20)).await;
    read_often(&run.blobs).await;
    assert_eq!(engine.reads(), at_start + 2);
    // A key of another gateway does not wait for the end of those ten seconds.
    let other = disk.run(&[1], true).await;
    write_blob(&*other.blobs, 2, TEA).await;
    assert_eq!(read_blob(&*run.blobs, 2).await, Ok(TEA.to_vec()));
    assert_eq!(engine.reads(), at_start + 3);
}

#[tokio::test(start_paused = true)]
async fn the_first_write_waited_for_a_search_of_a_key_that_is_nowhere() {
    let disk = Disk::new();
    write_blob(&*disk.engine, 1, &looks_sealed()).await;
    let run = disk.start_over(Arc::new(Hooked(SlowKeys::over(&disk))), &[1], true).await.unwrap().unwrap();
    let began = Instant::now();
    let write = async {
        put(&*run.store, "a", TEA).await;
        began.elapsed()
    };
    let ((), wrote) = tokio::join!(read_often(&run.blobs), write);
    assert!(wrote < SLOW && began.elapsed() >= SLOW, "{wrote:?}");
}
