//! Durable writes per second of many writers, against a bare journal and bare trees, alternating in one run.
//!
//! `cargo run --release -p larder-store-local --example local_throughput [writers] [seconds]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement, not the product"
)]

use larder_store::Timestamp;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_store::{
    Batch, CallOptions, Change, ConsistencyLevel, Durability, Partition, Row, Store, SystemClock, Table,
};
use larder_store_local::{LocalStore, OpenOptions};
use lsm_tree::{AbstractTree, Config};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().unwrap());
    let writers = numbers.next().unwrap_or(64);
    let time = Duration::from_secs(numbers.next().unwrap_or(4));
    for round in 1..=3 {
        let begun = cpu_time();
        let (bare, bare_syncs) = bare(writers, time);
        let between = cpu_time();
        let (store, stats) = store(writers, time);
        let share = 100 * store / bare;
        let cpu = |spent: Duration, rate: u64| spent.as_secs_f64() * 1e6 / (rate as f64 * time.as_secs_f64());
        let (bare_cpu, store_cpu) = (cpu(between - begun, bare), cpu(cpu_time() - between, store));
        println!(
            "round {round}: bare {bare}/s {bare_cpu:.1} us of CPU ({bare_syncs} syncs/s)  \
             store {store}/s {store_cpu:.1} us of CPU = {share} %  {stats}"
        );
    }
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // Linux shows a hundred ticks a second to programs.
    Duration::from_millis(ticks * 10)
}

/// One thread that appends `writers` writes at a time to a file, syncs it and inserts them into two trees: the bound of a
/// perfect committer.
fn bare(writers: u64, time: Duration) -> (u64, u64) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let tree = |name: &str| Config::new(dir.path().join(name), Default::default(), Default::default()).open().unwrap();
    let (packed, wide) = (tree("packed"), tree("wide"));
    let mut journal = std::fs::File::create(dir.path().join("journal")).unwrap();
    let (start, mut written, mut syncs) = (Instant::now(), 0_u64, 0);
    while start.elapsed() < time {
        let mut frame = Vec::new();
        for _ in 0..writers {
            written += 1;
            frame.extend_from_slice(&[7; 1100]);
            packed.insert(written.to_be_bytes(), vec![7; 1024], written);
            wide.insert(written.to_be_bytes(), [0; 18], written);
        }
        journal.write_all(&frame).unwrap();
        journal.sync_data().unwrap();
        syncs += 1;
        for tree in [&packed, &wide] {
            if tree.active_memtable().size() > 64 << 20 {
                tree.rotate_memtable();
                tree.flush(&tree.get_flush_lock(), 0).unwrap();
            }
        }
    }
    (per_second(written, start), per_second(syncs, start))
}

fn store(writers: u64, time: Duration) -> (u64, String) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let store = LocalStore::open(OpenOptions {
        dir: dir.path().to_owned(),
        cache_bytes: 64 << 20,
        memtables_bytes: u64::MAX,
        durable: true,
        accept_damaged_journal: false,
        sizes: None,
        clock: Arc::new(SystemClock::default()),
    });
    let (store, keys) = (store.unwrap(), Arc::new(AtomicU64::new(0)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let start = Instant::now();
    runtime.block_on(async {
        let writers = (0..writers).map(|_| tokio::spawn(write(store.clone(), keys.clone(), start + time)));
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
    let stats = store.stats();
    let text = format!("({} syncs/s, {} a group)", per_second(stats.syncs, start), stats.batches / stats.groups.max(1));
    (per_second(stats.batches, start), text)
}

async fn write(store: LocalStore, keys: Arc<AtomicU64>, end: Instant) {
    while Instant::now() < end {
        let key = bytes::Bytes::copy_from_slice(&keys.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let row = |name, value| Row { name, value, stamp: Timestamp(1), expires: None };
        let object = Partition::new(Table::Objects, key.clone());
        let mut batch = Batch::single(object, vec![Change::Put(row("slot".into(), vec![7; 1024].into()))]);
        let view = Partition::new(Table::Keys, "bucket");
        batch.add(view, vec![Change::Put(row(key, bytes::Bytes::new()))]);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        store.apply(batch, &CallOptions::new(ConsistencyLevel::One, deadline, Durability::Disk)).await.unwrap();
    }
}

fn per_second(count: u64, start: Instant) -> u64 {
    (count as f64 / start.elapsed().as_secs_f64()) as u64
}
