//! Measures puts, gets and compare-and-sets per second with many calls in flight.
//!
//! `cargo run --release -p larder-store-cassandra --example cassandra_throughput [node] [in flight] [seconds]`
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement, not the product"
)]

use larder_store::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_store::{
    Batch, CallOptions, CasResult, Change, ConsistencyLevel, Durability, Partition, ReadQuery, Row, Store, Table,
};
use larder_store_cassandra::{CassandraStore, ConnectOptions, Replication};

/// Partitions that are written and read.
const KEYS: u64 = 50_000;

#[derive(Debug, Clone, Copy)]
enum Workload {
    Put,
    PutWithKey,
    Get,
    CasNew,
    CasAgain,
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let node = args.next().unwrap_or_else(|| "127.0.0.1:9042".into());
    let in_flight = args.next().map_or(64, |word| word.parse::<u64>().unwrap());
    let time = Duration::from_secs(args.next().map_or(5, |word| word.parse().unwrap()));
    let options = ConnectOptions {
        contact_points: vec![node],
        keyspace: "h1_throughput".into(),
        replication: Replication::Simple,
        credentials: None,
        tls: None,
        clock: None,
    };
    let store = CassandraStore::connect(options).await.unwrap();
    println!("{:?}", store.notes());
    for verb in [Workload::Put, Workload::PutWithKey, Workload::Get, Workload::CasNew, Workload::CasAgain] {
        let (done, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let tasks: Vec<_> = (0..in_flight)
            .map(|task| tokio::spawn(work(Arc::clone(store.rows()), verb, task, done.clone(), start + time)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        println!("{verb:?}: {:.0}/s", done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64());
    }
    println!("{:?}", store.metrics());
    let text = format!("DROP KEYSPACE {}", store.keyspace(3));
    store.session().driver().query_unpaged(text, ()).await.unwrap();
}

async fn work(store: Arc<dyn Store>, verb: Workload, task: u64, done: Arc<AtomicU64>, end: Instant) {
    let mut at = task * 1_000_003;
    let mut stamp = None;
    while Instant::now() < end {
        at += 1;
        let key = Bytes::copy_from_slice(&(at % KEYS).to_be_bytes());
        let row = |name: Bytes, value: Bytes, stamp| Row { name, value, stamp, expires: None };
        let value = Bytes::from_static(&[7; 1024]);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let options = CallOptions::new(ConsistencyLevel::Quorum, deadline, Durability::Buffered);
        let object = Partition::new(Table::Objects, key.clone());
        let batch = Batch::single(object.clone(), vec![Change::Put(row("slot".into(), value.clone(), Timestamp(1)))]);
        match verb {
            Workload::Put => store.apply(batch, &options).await.unwrap(),
            Workload::PutWithKey => {
                let mut batch = batch;
                batch.add(
                    Partition::new(Table::Keys, "bucket"),
                    vec![Change::Put(row(key, Bytes::new(), Timestamp(1)))],
                );
                store.apply(batch, &options).await.unwrap();
            }
            Workload::Get => drop(store.read(&object, &ReadQuery::all(100), &options).await.unwrap()),
            Workload::CasNew => {
                let key = Bytes::copy_from_slice(&at.to_be_bytes());
                let head = row(Bytes::new(), value, Timestamp(1)).into();
                store
                    .apply_if(&Partition::new(Table::Consistent, key), None, head, Vec::new(), &options)
                    .await
                    .unwrap();
            }
            Workload::CasAgain => {
                let next: Timestamp = stamp.unwrap_or_default() + 1;
                let key = Bytes::copy_from_slice(&[task.to_be_bytes(), [1; 8]].concat());
                let at = Partition::new(Table::Consistent, key);
                let result =
                    store.apply_if(&at, stamp, row(Bytes::new(), value, next).into(), Vec::new(), &options).await;
                assert_eq!(result.unwrap(), CasResult::Applied);
                stamp = Some(next);
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}
