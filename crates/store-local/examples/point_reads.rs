//! Point reads per second of one row of a wide table, against range reads of the same rows, on flushed tables. Half of the rows
//! exist.
//!
//! `cargo run --release -p larder-store-local --example point_reads [partitions] [seconds]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement, not the product"
)]

use larder_store::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_store::{
    Batch, CallOptions, Change, ConsistencyLevel, Durability, Partition, ReadQuery, Row, Store, SystemClock, Table,
};
use larder_store_local::{LocalStore, OpenOptions};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().unwrap());
    let partitions = numbers.next().unwrap_or(300_000);
    let time = Duration::from_secs(numbers.next().unwrap_or(4));
    let dir = tempfile::tempdir_in(".").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(dir.path());
        fill(&store, partitions).await;
        store.close().await.unwrap();
        drop(store);
        let store = open(dir.path());
        for round in 1..=2 {
            let range = read(&store, partitions, time, |name| ReadQuery::prefix(name, 1)).await;
            let one = read(&store, partitions, time, ReadQuery::one).await;
            println!("round {round}: by range {range}/s, by name {one}/s");
        }
    });
}

fn open(dir: &std::path::Path) -> LocalStore {
    let options = OpenOptions {
        dir: dir.to_owned(),
        cache_bytes: 128 << 20,
        memtables_bytes: u64::MAX,
        durable: false,
        accept_damaged_journal: false,
        sizes: None,
        clock: Arc::new(SystemClock::default()),
    };
    LocalStore::open(options).unwrap()
}

/// The partition with this number; even ones exist.
fn partition(number: u64) -> Partition {
    Partition::new(Table::Parts, number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec())
}

async fn fill(store: &LocalStore, partitions: u64) {
    let value = bytes::Bytes::from(vec![7; 512]);
    for first in (0..partitions).step_by(500) {
        let mut batch = Batch::default();
        for number in first..(first + 500).min(partitions) {
            let row = Row { name: "part".into(), value: value.clone(), stamp: Timestamp(1), expires: None };
            batch.add(partition(2 * number), vec![Change::Put(row)]);
        }
        store.apply(batch, &options()).await.unwrap();
    }
}

async fn read(store: &LocalStore, partitions: u64, time: Duration, query: impl Fn(bytes::Bytes) -> ReadQuery) -> u64 {
    let (start, mut reads, mut number) = (Instant::now(), 0_u64, 1_u64);
    while start.elapsed() < time {
        for _ in 0..100 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let which = (number >> 20) % (2 * partitions);
            let page = store.read(&partition(which), &query("part".into()), &options()).await.unwrap();
            assert_eq!(page.rows.len() as u64, (which + 1) % 2);
            reads += 1;
        }
    }
    (reads as f64 / start.elapsed().as_secs_f64()) as u64
}

fn options() -> CallOptions {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    CallOptions::new(ConsistencyLevel::One, deadline, Durability::Buffered)
}
