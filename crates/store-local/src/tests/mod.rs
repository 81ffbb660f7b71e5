//! Tests below the store's interface: failing journals, damaged files, full disks.

mod backup;
mod contained;
mod damage;
mod golden;
mod inspect;
mod large_values;
mod mirror;
mod poison;
mod reclaim;
mod restart;
mod retired;
mod scan;
mod space;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use larder_store::{
    Batch, CallOptions, Change, Clock, ConsistencyLevel, Durability, Partition, ReadQuery, Result, Row, Store, Table,
    Timestamp,
};

use crate::{EngineSizes, LocalStore, OpenOptions};

pub(crate) struct FrozenClock(pub(crate) AtomicU64);

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now().0)
    }
}

pub(crate) fn options(dir: &Path) -> OpenOptions {
    OpenOptions {
        dir: dir.to_owned(),
        cache_bytes: 4 << 20,
        memtables_bytes: u64::MAX,
        durable: true,
        accept_damaged_journal: false,
        sizes: None,
        clock: Arc::new(FrozenClock(AtomicU64::new(1_000_000))),
    }
}

/// A store whose memtables are flushed early.
fn small(dir: &Path) -> OpenOptions {
    OpenOptions { sizes: Some(EngineSizes::from_memtable(64 * 1024)), ..options(dir) }
}

pub(crate) fn call(durability: Durability) -> CallOptions {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    CallOptions::new(ConsistencyLevel::One, deadline, durability)
}

fn place(table: Table, key: u64) -> Partition {
    Partition::new(table, Bytes::copy_from_slice(&key.to_be_bytes()))
}

fn row(stamp: u64) -> Row {
    Row { name: "row".into(), value: "value".into(), stamp: Timestamp(stamp), expires: None }
}

/// Writes a row to a packed or a wide partition.
async fn put(store: &LocalStore, key: u64, durability: Durability) -> Result<()> {
    let table = if key.is_multiple_of(2) { Table::Objects } else { Table::Keys };
    store.apply(Batch::single(place(table, key), vec![Change::Put(row(1))]), &call(durability)).await
}

async fn is_there(store: &LocalStore, key: u64) -> bool {
    let table = if key.is_multiple_of(2) { Table::Objects } else { Table::Keys };
    let page = store.read(&place(table, key), &ReadQuery::all(1), &call(Durability::Disk)).await.unwrap();
    !page.rows.is_empty()
}
