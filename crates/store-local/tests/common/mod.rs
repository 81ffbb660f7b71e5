//! A store in its own directory, with a clock that only the test moves.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{CallOptions, Clock, ConsistencyLevel, Durability, Row, Timestamp};
use larder_store_local::{LocalStore, OpenOptions};

pub struct SteppedClock(pub AtomicU64);

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now().0)
    }
}

pub fn clock() -> Arc<SteppedClock> {
    Arc::new(SteppedClock(AtomicU64::new(1_000_000)))
}

pub fn options(dir: &Path, clock: &Arc<SteppedClock>) -> OpenOptions {
    OpenOptions {
        dir: dir.to_owned(),
        cache_bytes: 16 << 20,
        memtables_bytes: u64::MAX,
        durable: true,
        accept_damaged_journal: false,
        sizes: None,
        clock: clock.clone(),
    }
}

pub fn open(dir: &Path, clock: &Arc<SteppedClock>) -> LocalStore {
    LocalStore::open(options(dir, clock)).unwrap()
}

pub fn call(durability: Durability) -> CallOptions {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    CallOptions::new(ConsistencyLevel::One, deadline, durability)
}

pub fn row(name: impl AsRef<[u8]>, stamp: Timestamp, value: impl AsRef<[u8]>) -> Row {
    Row {
        name: bytes::Bytes::copy_from_slice(name.as_ref()),
        value: bytes::Bytes::copy_from_slice(value.as_ref()),
        stamp,
        expires: None,
    }
}
